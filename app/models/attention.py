"""AttentionItem: something that an admin has to look at: a note of an agent, or a refinement's end to be checked.

What calls for attention stands in the audit log: the entry of a note, or of a refinement's end. The same two functions
that make the rows of an entry tell `verify` what they must be.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, cast

from sqlalchemy import (
    ColumnElement,
    ForeignKey,
    Index,
    Select,
    String,
    Table,
    UniqueConstraint,
    and_,
    bindparam,
    exists,
    not_,
    select,
    update,
)
from sqlalchemy.orm import Mapped, declared_attr, joinedload, mapped_column, relationship

from app.extensions import db
from app.models.audit import Action, AuditLog, record
from app.models.base import Identity, Lockable, Model, Moment, partial_index, require_row
from app.models.event import announce
from app.models.keyset import Keyset
from app.models.tally import MAX_PROTECTIONS, seems_unable
from app.prepared import Prepared, one_of_these
from app.values.actor import Actor
from app.values.mass_story import MUTATIONS
from app.values.refinement_states import BROKEN_STATES, OPEN_STATES, Status

if TYPE_CHECKING:
    from app.models.agent import Agent
    from app.models.grant import AccessGrant
    from app.models.refinement import Refinement
    from app.models.settings_request import SettingsRequest

MAX_NOTE = 280
"""Characters of a note to admins."""

_UNSEEN = "seen_at IS NULL AND settled_by IS NULL"


class AttentionKind(StrEnum):
    NOTE = "note"
    """An agent wrote to the admins, in its own words."""
    UNFINISHED = "unfinished"
    """A refinement ended without `complete`, and its changes stay."""
    PROTECTIONS = "protections"
    """A refinement made as many memories constitutional as it may."""
    REFUSALS = "refusals"
    """A refinement's model may not be able to refine: most of its calls were refused."""
    READING = "reading"
    """A second reader did not call kept what a refinement changed."""
    FAILED = "failed"
    """A refinement broke down: it failed or was interrupted."""
    ROLLED_BACK = "rolled_back"
    """A guard reversed all changes of a refinement: the latch, the limit of erosion, or a second reader."""


class AttentionItem(Lockable, Model):
    """`entry_id` is the audit entry that called for it. `text` is a note's, written for admins to read.
    `settled_by` is the later refinement of its agent whose end answered it, see `SETTLED_BY`.

    Of `refinement_id`, `grant_id` and `settings_request_id` one says what it is about; without any it is the agent
    itself.
    """

    __tablename__ = "attention_items"
    NOUN = "item"
    __table_args__ = (
        UniqueConstraint("entry_id", "kind"),
        Index("ix_attention_items_account", "account_id", "at", "id"),
        partial_index("ix_attention_items_unseen", "account_id", "at", "id", where=_UNSEEN),
        Index("ix_attention_items_agent", "agent_id", "id"),
        partial_index("ix_attention_items_agent_unseen", "agent_id", "at", "id", where=_UNSEEN),
    )

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"))
    entry_id: Mapped[int] = mapped_column(ForeignKey("audit_log.id"))
    kind: Mapped[AttentionKind] = mapped_column(String(16))
    refinement_id: Mapped[str | None] = mapped_column(ForeignKey("refinements.id"), index=True)
    grant_id: Mapped[str | None] = mapped_column(ForeignKey("access_grants.id"), index=True)
    settings_request_id: Mapped[str | None] = mapped_column(ForeignKey("settings_requests.id"), index=True)
    text: Mapped[str | None] = mapped_column(String(MAX_NOTE))
    at: Mapped[Moment]
    seen_by: Mapped[str | None] = mapped_column(String(300))
    seen_at: Mapped[Moment | None]
    settled_by: Mapped[str | None] = mapped_column(ForeignKey("refinements.id"))
    agent: Mapped[Agent] = relationship(viewonly=True)
    refinement: Mapped[Refinement | None] = relationship(foreign_keys=refinement_id, viewonly=True)

    @classmethod
    def agent_of(cls, item_id: int, account_id: int | None = None) -> int:
        """The id of the agent that it is about, of this account or of any. Raises NotFound."""
        query = select(cls.agent_id).where(cls.id == item_id)
        agent_id = db.session.scalar(query if account_id is None else query.where(cls.account_id == account_id))
        return require_row(agent_id, "There is no such item.")

    @classmethod
    def is_open(cls) -> ColumnElement[bool]:
        """Nobody has seen it, and there is still something to do about it: what was undone since asks for nothing, nor
        does what a later refinement of its agent settled."""
        from app.models.refinement import Refinement

        undone = exists().where(Refinement.id == cls.refinement_id, Refinement.undone_by.is_not(None))
        is_undone = and_(one_of_these(cls.kind, _ABOUT_CHANGES), undone.correlate(cls))
        return and_(cls.seen_at.is_(None), cls.settled_by.is_(None), not_(is_undone))

    @classmethod
    def newest(cls, *conditions: ColumnElement[bool]) -> Select[tuple[AttentionItem]]:
        """With all that is told of them, the newest first."""
        told = (joinedload(cls.agent), joinedload(cls.refinement))
        return select(cls).where(*conditions).options(*told).order_by(*NEWEST_ITEMS.order)

    @property
    def line(self) -> str:
        """What its agent, or the agent's model, did, in the machine's words: numbers, never content."""
        if self.refinement is None or self.kind == AttentionKind.NOTE:
            return "wrote to the admins"
        match self.kind:
            case AttentionKind.UNFINISHED:
                return f"ended a refinement unfinished: {self.refinement.machine_line}"
            case AttentionKind.PROTECTIONS:
                return f"made {self.refinement.protected} memories constitutional, as many as one refinement may"
            case AttentionKind.READING:
                return f"ended a refinement; second reading: {self.refinement.reading_line}"
            case AttentionKind.FAILED:
                return f"did not finish a refinement ({self.refinement.status}): {self.refinement.failure_words}"
            case AttentionKind.ROLLED_BACK:
                return f"had a refinement reversed by a guard: {self.refinement.machine_line}"
            case _:
                return self.refinement.refusal_line

    @property
    def is_resolved(self) -> bool:
        """Whether nothing is left to look at: what it is about was undone since, or a later refinement settled it."""
        return self.is_undone or self.settled_by is not None

    @property
    def is_undone(self) -> bool:
        undone = self.refinement is not None and self.refinement.undone_by is not None
        return undone and self.kind in _ABOUT_CHANGES

    @property
    def subject(self) -> str:
        """What it is about, as the audit log names it."""
        if self.settings_request_id:
            return f"settings_request:{self.settings_request_id}"
        if self.refinement_id is None and self.grant_id is None:
            return f"agent:{self.agent_id}"
        return f"refinement:{self.refinement_id}" if self.refinement_id else f"exception:{self.grant_id}"

    def mark_seen(self, agent: Agent, *, by: Actor) -> bool:
        """Returns whether it was unseen. The caller has locked the agent, then this row."""
        if self.seen_at is not None:
            return False
        self.seen_at, self.seen_by = self._record_action(Action.ATTENTION_SEEN, agent, by).at, str(by)
        return True

    def mark_unseen(self, agent: Agent, *, by: Actor) -> bool:
        """Take that back; returns whether it was seen. For a caller like `mark_seen`'s."""
        if self.seen_at is None:
            return False
        self._record_action(Action.ATTENTION_UNSEEN, agent, by)
        self.seen_at = self.seen_by = None
        return True

    def _record_action(self, action: Action, agent: Agent, by: Actor) -> AuditLog:
        announce(f"attention.{self.kind}", self.account_id, self.agent_id)
        data = {"item": self.id, "kind": str(self.kind)}
        return record(action, actor=by, of=agent, subject=self.subject, data=data)


class HasNotesToAdmins:
    """What an agent may write about. `NOTED_BY` is the column by which its notes name it."""

    NOTED_BY: ClassVar[str]

    @declared_attr
    @classmethod
    def notes(cls) -> Mapped[list[AttentionItem]]:
        """The notes about it, oldest first: written by `note_to_admins` alone."""
        about = f"{cls.__name__}.id == AttentionItem.{cls.NOTED_BY}"
        join = f"and_({about}, AttentionItem.kind == 'note')"
        return relationship(primaryjoin=join, order_by="AttentionItem.id", viewonly=True)

    @property
    def note_to_admins(self) -> str | None:
        """The latest of its notes."""
        return self.notes[-1].text if self.notes else None


NEWEST_ITEMS = Keyset((AttentionItem.at, AttentionItem.id), newest_first=True)

_ABOUT_CHANGES = tuple(kind for kind in AttentionKind if kind not in (AttentionKind.NOTE, AttentionKind.REFUSALS))
"""These ask for nothing once the refinement is undone."""

SETTLED_BY: Mapping[AttentionKind, Collection[Status]] = {
    AttentionKind.FAILED: frozenset(Status) - frozenset(OPEN_STATES),
    AttentionKind.ROLLED_BACK: frozenset({Status.COMPLETED, Status.DECLINED}),
}
"""By which ends of a later refinement of the same agent they ask for nothing more: one that broke down by any, because
the next one says how its agent fares now; one that a guard reversed only once the agent has finished, or said NO."""


def note_to_admins(
    agent: Agent, note: str | None, *, about: Refinement | AccessGrant | SettingsRequest | Agent
) -> None:
    """Keep what an agent wrote to the admins, if it did; `about` it itself where that was a token.

    `note` is clean; the caller holds the agent's lock.
    """
    if note is None:
        return
    refinement = str(about.id) if about.subject.startswith("refinement:") else None
    actor, data = agent.as_actor, {"text": note}
    entry = record(
        Action.NOTE_TO_ADMINS, actor=actor, of=agent, subject=about.subject, refinement_id=refinement, data=data
    )
    create_attention_items(entry)
    if refinement is not None:
        announce("refinement.noted", *agent.audited_as, refinement, entry=entry.id)


def create_attention_items(entry: AuditLog) -> None:
    """Put what an entry calls for before the admins, in the transaction that wrote it."""
    for kind in attention_kinds_for(entry):
        db.session.add(AttentionItem(entry_id=entry.id, kind=kind, **facts_called_for(entry)))


def settle_attention(agent_id: int, status: Status, refinement_id: str) -> None:
    """Before an end puts its own before the admins: what earlier refinements of the agent called for and this answers.

    The caller holds the agent's lock.
    """
    if db.session.new:
        db.session.flush()
    _settle_by(status).run(db.session.connection(), [{"agent": agent_id, "by": refinement_id}])


@cache
def _settle_by(status: Status) -> Prepared:
    """Of the kinds that such an end answers."""
    items = cast(Table, AttentionItem.__table__)
    kinds = [kind for kind, ends in SETTLED_BY.items() if status in ends]
    is_open = items.c.agent_id == bindparam("agent"), one_of_these(items.c.kind, kinds), items.c.settled_by.is_(None)
    return Prepared(update(items).where(*is_open).values(settled_by=bindparam("by")))


def facts_called_for(entry: AuditLog) -> dict[str, Any]:
    """What an item says that an entry called for."""
    about, _, number = entry.subject.partition(":")
    return {
        "account_id": entry.account_id,
        "agent_id": entry.agent_id,
        "refinement_id": number if about == "refinement" else None,
        "grant_id": number if about == "exception" else None,
        "settings_request_id": number if about == "settings_request" else None,
        "text": entry.data["text"] if entry.action == Action.NOTE_TO_ADMINS else None,
        "at": entry.at,
        "settled_by": None,
    }


def attention_kinds_for(entry: AuditLog) -> list[AttentionKind]:
    """What an entry of a refinement's end or second reading, or of a note, calls for; nothing for any other."""
    if entry.action == Action.NOTE_TO_ADMINS:
        return [AttentionKind.NOTE]
    if entry.action == Action.SECOND_READING:
        return [AttentionKind.READING] if entry.data["flagged"] and entry.data["action"] == "flag" else []
    if entry.action != Action.REFINEMENT_END:
        return []
    status, stats = entry.data["status"], entry.data["stats"]
    mutations = sum(stats[name] for name in MUTATIONS)
    found = {
        AttentionKind.UNFINISHED: status == "unfinished" and mutations + stats["protected"] > 0,
        AttentionKind.PROTECTIONS: status != "rolled_back" and stats["protected"] >= MAX_PROTECTIONS,
        AttentionKind.REFUSALS: seems_unable(entry.data["calls"], sum(stats["refused"].values()), mutations),
        AttentionKind.FAILED: status in BROKEN_STATES,
        AttentionKind.ROLLED_BACK: status == Status.ROLLED_BACK,
    }
    return [kind for kind, is_so in found.items() if is_so]
