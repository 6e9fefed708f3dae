"""What needs an admin's attention: items that nobody has seen, and alarms of the proof and of parts that are away."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from flask import current_app, url_for
from sqlalchemy import ColumnElement, func, select

from app.extensions import db, now
from app.health import CachedAnswer, look_around, stopped_parts
from app.history.proof import Proof
from app.models import Agent, AttentionItem, AttentionKind
from app.models.attention import NEWEST_ITEMS
from app.models.keyset import TimeCursor
from app.models.statement_errors import LogBroken
from app.processes.datadir import StoppedPart
from app.refinement.attention import MOST_AT_ONCE, AttentionFilter
from app.refinement.failures import FailureReason
from app.shapes.audit import AttentionShape
from app.statements.checkpointing import overdue_words, unsent_words
from app.views.shown.entry import Subject, link_subject
from app.vocabulary import ATTENTION_KINDS
from app.vocabulary.term import Term

SHOWN = 8
ROWS = 50
KEPT_SECONDS = 15.0
REASONS_SHOWN = 3
"""As many as the box of failures has lines: it is as high for fifty as for one, so nothing jumps when they come in."""

COMMAND = "Stop changing things, keep a copy of the database, and run ./whetstone verify on the server."


@dataclass(frozen=True)
class ShownItem:
    """One of them, as a page shows it."""

    item: AttentionItem

    @property
    def look(self) -> Term:
        return ATTENTION_KINDS[self.item.kind]

    @property
    def subject(self) -> Subject:
        return link_subject(self.item.subject)

    @property
    def rollback_url(self) -> str:
        """Where to take the changes back; empty where there are none, or none any more."""
        kinds = (AttentionKind.UNFINISHED, AttentionKind.READING, AttentionKind.FAILED)
        refinement = self.item.refinement
        if self.item.kind not in kinds or self.item.is_resolved or not (refinement and refinement.has_done_something):
            return ""
        return url_for("rollbacks.undo_refinement", refinement_id=self.item.refinement_id)


class Unseen:
    """The newest that nobody has seen yet, for the top of a page: of an account, or of one agent of it."""

    def __init__(
        self, account_id: int, agent_id: int | None = None, kinds: Sequence[AttentionKind] = tuple(AttentionKind)
    ) -> None:
        mine = (AttentionItem.account_id == account_id) & AttentionItem.kind.in_(kinds)
        mine = mine if agent_id is None else mine & (AttentionItem.agent_id == agent_id)
        self.rows, last = _load_items(mine, AttentionItem.is_open(), limit=SHOWN)
        self.has_more = last is not None

    def as_json(self) -> list[dict[str, Any]]:
        return [AttentionShape.of(row.item).as_json() for row in self.rows]


@dataclass(frozen=True)
class AttentionForm:
    """The filters of the list as they stand in an address: `typed` as it was typed, `errors` a sentence by field."""

    wanted: AttentionFilter
    typed: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_filtered(self) -> bool:
        return bool(self.typed)

    @property
    def address(self) -> dict[str, str]:
        """What an address of the same list holds, but for where its page begins."""
        return {**self.typed, **({"seen": "1"} if self.wanted.with_seen else {})}

    @property
    def command(self) -> str:
        options = "".join(f" --{name} {shlex.quote(text)}" for name, text in self.typed.items())
        return f"./whetstone attention list{options}{' --all' if self.wanted.with_seen else ''}"


class AttentionList:
    """Those of an account that a filter wants, page by page; nothing where the filter can't be used."""

    def __init__(self, account_id: int, form: AttentionForm, *, before: str = "") -> None:
        self.form, self.with_seen = form, form.wanted.with_seen
        conditions = [AttentionItem.account_id == account_id, *form.wanted.conditions()]
        self.rows: Sequence[ShownItem] = ()
        last, self.matching = None, 0
        if not form.errors:
            self.rows, last = _load_items(*conditions, limit=ROWS, position=TimeCursor.parse(before))
            some = select(AttentionItem.id).where(*conditions).limit(MOST_AT_ONCE + 1).subquery()
            self.matching = db.session.scalar(select(func.count()).select_from(some)) or 0
        self.next_before = str(TimeCursor(last.at, last.id)) if last else ""
        self.kinds = [("", "All kinds"), *((str(kind), term.words) for kind, term in ATTENTION_KINDS.items())]
        if (typed := form.typed.get("kind", "")) not in dict(self.kinds):
            self.kinds.append((typed, _kind_words(form.wanted.kinds) or typed))

    @property
    def matching_words(self) -> str:
        """How many one press marks as seen."""
        return f"the newest {MOST_AT_ONCE}" if self.matching > MOST_AT_ONCE else f"all {self.matching:,}"

    def as_json(self) -> dict[str, Any]:
        items = [AttentionShape.of(row.item).as_json() for row in self.rows]
        return {"items": items, "next_before": self.next_before or None}


def _kind_words(kinds: Sequence[AttentionKind]) -> str:
    return ", ".join(ATTENTION_KINDS[kind].words for kind in kinds)


def _load_items(
    *conditions: ColumnElement[bool], limit: int, position: TimeCursor | None = None
) -> tuple[list[ShownItem], AttentionItem | None]:
    query = AttentionItem.newest(*conditions).execution_options(populate_existing=True)
    items, last = NEWEST_ITEMS.load(query, limit, position)
    return [ShownItem(item) for item in items], last


@dataclass(frozen=True)
class Attention:
    """One thing to look at. `items` are (name, address, remark); where there are `reasons`, they are shown instead.

    The overview has one line for it, in the place of its `kind`: `short` says how many of what, `line` the most
    important of it, `url` leads to all; `seen` and `retry` are the fields of the acts on all of it, if there are such.
    """

    tone: str
    icon: str
    title: str
    text: str
    items: Sequence[tuple[str, str, str]] = ()
    more: tuple[str, str] | None = None
    reasons: Sequence[FailureReason] = ()
    kind: str = "system"
    short: str = ""
    count: int = 1
    line: str = ""
    url: str = ""
    newest: datetime | None = None
    seen: Mapping[str, str] = field(default_factory=dict)
    retry: Mapping[str, str] = field(default_factory=dict)

    @property
    def first_reasons(self) -> Sequence[FailureReason]:
        return self.reasons[:REASONS_SHOWN]

    def as_json(self) -> dict[str, Any]:
        said = {"title": self.title, "text": self.text, "items": [name for name, _, _ in self.items]}
        return said | ({"reasons": [each.as_json() for each in self.reasons]} if self.reasons else {})


NO_BROKER = Attention(
    *("bad", "bolt", "The broker does not answer."),
    "Nothing is lost: what you start is kept in the database and begins when it is back. Run the doctor on the server.",
)
NO_WORKER = Attention(
    *("bad", "bolt", "No worker answers."),
    "What you start waits on the queue until one does. Look at the worker's log, or run the doctor on the server.",
)


def health_alarms() -> list[Attention]:
    """Parts that stopped, by name; what else is away, as of at most `KEPT_SECONDS` ago, whoever looks."""
    kept = current_app.extensions.setdefault("health_for_pages", CachedAnswer(look_around, KEPT_SECONDS))
    found = kept.get()
    stopped = stopped_parts()
    away = [NO_BROKER] if found["broker"] != "ok" else [] if found["worker"] == "ok" else [NO_WORKER]
    return [_stop_alarm(part) for part in stopped] or away


def proof_alarms(account_id: int, proof: Proof | None, rest: Proof | None) -> list[Attention]:
    """Of the account's last proof, worst first. What is wrong beside all accounts (`rest`) is told to each, naming
    nothing."""
    found = [_alteration_alarm(account_id, proof)] if proof and not proof.verdict.ok else []
    found += [_database_alarm(rest)] if rest and not rest.verdict.ok else []
    found += [_stale_alarm(proof)] if proof and proof.is_stale(now()) else []
    return found


def log_alarms() -> list[Attention]:
    """Of the log of statements: it is another one, or nobody signs it."""
    try:
        overdue, unsent = overdue_words(), unsent_words()
    except LogBroken as error:
        return [Attention("bad", "alert", "Everything is stopped.", error.sentence)]
    found = [Attention("bad", "clock", "Nobody signs the log of statements.", overdue)] if overdue else []
    return found + ([Attention("warn", "bolt", "A checkpoint was not sent.", unsent)] if unsent else [])


def _stop_alarm(part: StoppedPart) -> Attention:
    what_now = part.what_now(datetime.now(UTC))
    text = f"{what_now[:1].upper()}{what_now[1:]}. Its log: {part.log}"
    return Attention("bad", "bolt", f"{part.what}.", text)


def _alteration_alarm(account_id: int, proof: Proof) -> Attention:
    agents = select(Agent.id, Agent.name).where(Agent.id == proof.verdict.agent_id, Agent.account_id == account_id)
    items = [(name, url_for("agents.show", agent_id=number), "") for number, name in db.session.execute(agents)]
    text = f"{proof.verdict.first_problem} {_found_words(proof)} {COMMAND}"
    return Attention("bad", "alert", "The record is not as it was written.", text, items)


def _database_alarm(proof: Proof) -> Attention:
    what = "Rows were found that belong to nobody, or a trigger is gone that keeps the log append-only."
    return Attention("bad", "alert", "The database is not as it should be.", f"{what} {_found_words(proof)} {COMMAND}")


def _found_words(proof: Proof) -> str:
    return f"Found on {proof.at:%d %B, %H:%M} UTC."


def _stale_alarm(proof: Proof) -> Attention:
    days = (now() - proof.at).days
    text = "A worker does it every night, when beat runs beside it. Run ./whetstone doctor on the server."
    return Attention("warn", "clock", f"Nobody has verified the record for {days} days.", text)
