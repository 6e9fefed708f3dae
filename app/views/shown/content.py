"""What the two pages with content show, under a live exception and to its own user only: what one look brought back.

Everything here that is content stays out of `repr`, and reaches a page through the filter `inert`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cached_property
from itertools import groupby
from typing import Any

from app.events.topics import newest_event
from app.models import AccessGrant, Refinement
from app.models.base import iso
from app.values.merge_depth import MergeDepth
from app.views.shown.diff import ADDED, REMOVED, DiffPiece, compare_texts
from app.views.shown.exception import ExceptionState
from app.vocabulary.actions import ActionTerm, action_term

Seen = Mapping[str, Any]
"""What the worker sealed for one look (`app.grants.opening`)."""


@dataclass(frozen=True)
class Text:
    """One core memory, with what it says. `merged_sources` and `merges`: see `MergeDepth`."""

    id: int
    origin_at: datetime
    tokens: int
    constitutional: bool
    tags: Sequence[str]
    other_days: Sequence[str]
    merged_sources: int
    merges: int
    content: str = field(repr=False)

    @property
    def merge_depth(self) -> MergeDepth:
        return MergeDepth(self.merged_sources, self.merges)


class LookContent:
    """What one look brought, beside the exception that covers it."""

    def __init__(self, grant: AccessGrant, seen: Seen) -> None:
        self.last_event = newest_event(grant.account_id)
        self.standing, self.seen = ExceptionState.load(grant), seen

    def as_json(self) -> dict[str, Any]:
        grant = self.standing.grant
        about = {"exception": grant.id, "agent": self.standing.agent.name, "expires_at": iso(grant.expires_at)}
        return {**about, **self.seen}


class LedgerContent(LookContent):
    def __init__(self, grant: AccessGrant, seen: Seen, *, after: str) -> None:
        super().__init__(grant, seen)
        self.after = after
        self.has_open_refinement = Refinement.open_of(grant.agent_id) is not None
        self.next_after: int | None = seen["next_after"]

    @property
    def texts(self) -> list[Text]:
        return [Text(**item | {"origin_at": datetime.fromisoformat(item["origin_at"])}) for item in self.seen["items"]]


@dataclass(frozen=True)
class ContentChange:
    """What an entry of the audit log did to one memory. `before` is None of one that it made."""

    entry: int
    action: str
    at: datetime
    id: int
    type: str
    constitutional: bool
    merged_sources: int
    merges: int
    discarded: bool
    before: str | None = field(repr=False)
    after: str = field(repr=False)

    @property
    def merge_depth(self) -> MergeDepth:
        return MergeDepth(self.merged_sources, self.merges)

    @property
    def look(self) -> ActionTerm:
        return action_term(self.action)

    @property
    def kind(self) -> str:
        if self.before is None:
            return "made"
        if self.before != self.after:
            return "changed"
        return "removed" if self.discarded else "kept"

    @cached_property
    def pieces(self) -> list[DiffPiece]:
        return compare_texts(self.before or "", self.after)

    @property
    def old_pieces(self) -> list[DiffPiece]:
        return [piece for piece in self.pieces if piece.kind != ADDED]

    @property
    def new_pieces(self) -> list[DiffPiece]:
        return [piece for piece in self.pieces if piece.kind != REMOVED]


@dataclass(frozen=True)
class AskedLosses:
    """What one call would have lost of a memory: nothing was changed then. None made a change after it, where
    `restored` and `confirmed` are None."""

    id: int
    at: datetime
    action: str
    restored: int | None
    confirmed: int | None
    missing: Sequence[str] = field(repr=False)

    @property
    def outcome(self) -> str:
        if self.restored is None or self.confirmed is None:
            return "the memory was left as it was"
        return f"{self.restored} put back, {self.confirmed} given up"


@dataclass(frozen=True)
class ReaderVerdict:
    """What a second reader said of one group of changes."""

    ids: Sequence[int]
    kept: bool
    words: str = field(repr=False)


@dataclass(frozen=True)
class RecallQuestion:
    """What the agent asked itself about a memory. `kept` is None where it was not asked again."""

    id: int
    kept: bool | None
    question: str = field(repr=False)
    answer: str = field(repr=False)

    @property
    def outcome(self) -> str:
        return {True: "answered", False: "not answered", None: "not asked again"}[self.kept]


SAID = {"consent": "Its answer, when it was asked for its consent", "summary": "Its summary at the end"}


class HistoryContent(LookContent):
    @property
    def steps(self) -> list[list[ContentChange]]:
        """By entry, all that it changed."""
        items = (item | {"at": datetime.fromisoformat(item["at"])} for item in self.seen["items"])
        known = [field.name for field in fields(ContentChange)]  # a worker that is newer may say more
        changes = [ContentChange(**{name: item[name] for name in known if name in item}) for item in items]
        return [list(group) for _, group in groupby(changes, key=lambda change: change.entry)]

    @property
    def questions(self) -> list[AskedLosses]:
        """In the order in which they were asked; an older worker sends none."""
        return [AskedLosses(**item | {"at": datetime.fromisoformat(item["at"])}) for item in self.seen.get("asked", ())]

    @property
    def verdicts(self) -> list[ReaderVerdict]:
        """In the order of the groups; an older worker sends none."""
        return [ReaderVerdict(**item) for item in self.seen.get("reader_words", ())]

    @property
    def recall(self) -> list[RecallQuestion]:
        """In the order in which they were written; an older worker sends none."""
        return [RecallQuestion(**item) for item in self.seen.get("recall", ())]

    @property
    def said(self) -> list[tuple[str, str]]:
        """The agent's own words: what they were said to, and the words."""
        return [(SAID[name], words) for name, words in self.seen["said"].items()]
