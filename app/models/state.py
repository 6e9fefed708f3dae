"""MemoryState: what a memory was at a time; append-only, one row for every audit entry that wrote it."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import ForeignKey, LargeBinary, String
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Identity, Model, Moment
from app.values.canonical import canonical_json
from app.values.merge_depth import MergeDepth

JOURNAL_DAYS = 7
"""A journal entry fades from prompts after so many days."""


class MemoryType(StrEnum):
    CORE = "core"
    JOURNAL = "journal"


class Source(StrEnum):
    """Where a memory came from. Only the platform says so, never a model or a client. An import adds its name.

    `system` are Whetstone's own notes to the agent.
    """

    AGENT = "agent"
    REFINEMENT = "refinement"
    CONVERSATION = "conversation"
    PROMOTION = "promotion"
    IMPORT = "import"
    SYSTEM = "system"


PLATFORM_NOTES = (Source.REFINEMENT, Source.SYSTEM)
"""Sources of journal entries that Whetstone wrote: how refinements ended, and what humans did."""


class StateColumns:
    """The columns that a memory and each of its states share.

    `content_digest` names the text (`MemoryText`): SHA-256 of its sealed bytes, 32 bytes. The bytes themselves can go.
    `merged_sources` and `merges` are its merge depth: how many memories stand behind it, over how many merges; both are
    0 until a refinement merges. Only the Knife's merge and the removal of exact duplicates write them.
    """

    type: Mapped[MemoryType] = mapped_column(String(8))
    content_digest: Mapped[bytes] = mapped_column(LargeBinary(32))
    token_estimate: Mapped[int]
    constitutional: Mapped[bool] = mapped_column(default=False)
    tags: Mapped[list[str]] = mapped_column(default=list)
    origin_at: Mapped[Moment]
    other_dates: Mapped[list[datetime]] = mapped_column(default=list)
    merged_sources: Mapped[int] = mapped_column(default=0)
    merges: Mapped[int] = mapped_column(default=0)
    source: Mapped[str] = mapped_column(String(100))
    created_at: Mapped[Moment]
    updated_at: Mapped[Moment]
    discarded_at: Mapped[Moment | None]
    version: Mapped[int] = mapped_column(default=1)

    @property
    def merge_depth(self) -> MergeDepth:
        return MergeDepth(self.merged_sources, self.merges)

    def fields(self) -> dict[str, Any]:
        """The state itself, by the names of its columns."""
        held = vars(self)
        return {field: held[field] if field in held else getattr(self, field) for field in STATE_FIELDS}


STATE_FIELDS = tuple(StateColumns.__annotations__)
"""All that exact restoration needs: a column declared there becomes part of every state and of the proof."""


class MemoryState(StateColumns, Model):
    """What a memory became by one audit entry. Append-only. The state before is the row of `previous_entry_id`.

    A text is bound to the memory, not to the entry: an undo copies its digest and needs no key. `kept` is what was
    left, after the entry, of the weight that the memory had when its refinement began, in tokens. `restores_entry_id`
    names the state that a reversal copied, never a copy itself, or is `NO_EARLIER_STATE` where it removed the memory:
    from it follows who wrote what a memory shows.
    """

    __tablename__ = "memory_states"

    memory_id: Mapped[int] = mapped_column(ForeignKey("memories.id"), primary_key=True, autoincrement=False)
    entry_id: Mapped[int] = mapped_column(ForeignKey("audit_log.id"), primary_key=True, autoincrement=False, index=True)
    previous_entry_id: Mapped[int | None] = mapped_column(Identity)
    restores_entry_id: Mapped[int | None] = mapped_column(Identity)
    kept: Mapped[int | None]

    def as_recorded(self) -> dict[str, Any]:
        """The state as plain JSON, without content: what the audit entry's hash covers.

        What a reversal wrote says what it restores: the hash of that entry covers the digest, and `verify` compares.
        """
        if self.restores_entry_id is not None:
            return _restored_form(self, self.discarded_at)
        said = {field: _plain_value(value) for field, value in self.fields().items()}
        return said | {"memory": self.memory_id, "previous_entry": self.previous_entry_id, "kept": self.kept}

    def recorded_json(self) -> str:
        """The same as canonical JSON."""
        return canonical_json(self.as_recorded())


NO_EARLIER_STATE = 0
"""Restored where there was nothing before: no entry has this number."""


class Restoration(NamedTuple):
    """One memory's way back to an earlier state; without `source_entry_id`, the state to copy, it is removed.

    `restores_entry_id` is the source, or what that one restores.
    """

    memory_id: int
    previous_entry_id: int | None
    source_entry_id: int | None
    restores_entry_id: int
    constitutional: bool
    at: datetime

    def as_recorded(self) -> dict[str, Any]:
        """The same as the state's own, once it is written."""
        return _restored_form(self, self.at)

    def recorded_json(self) -> str:
        """The same as the state's own, in one step where it says the least: an undo records hundreds."""
        memory, previous, _, restores, constitutional, _ = self
        if restores == NO_EARLIER_STATE or previous is None:
            return canonical_json(self.as_recorded())
        flag = "true" if constitutional else "false"
        return f'{{"constitutional":{flag},"memory":{memory},"previous_entry":{previous},"restores":{restores}}}'


def _restored_form(of: MemoryState | Restoration, discarded_at: datetime | None) -> dict[str, Any]:
    said = {"memory": of.memory_id, "previous_entry": of.previous_entry_id, "restores": of.restores_entry_id}
    said |= {"constitutional": of.constitutional}
    return said if of.restores_entry_id != NO_EARLIER_STATE else said | {"discarded_at": _plain_value(discarded_at)}


def _plain_value(value: object) -> object:
    if value is None or type(value) in _PLAIN:
        return value
    match value:
        case bytes():
            return value.hex()
        case datetime():
            return value.astimezone(UTC).isoformat()
        case list():
            return [_plain_value(each) for each in value]
        case _:
            return value


_PLAIN = (int, str, bool)
