"""Refinement: one guarded session over one agent's core memories, and Consent: the agent's own YES or NO."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, ClassVar

from sqlalchemy import CheckConstraint, ForeignKey, Index, String, Text, select, text
from sqlalchemy.orm import Mapped, mapped_column

from app.errors import NotFound
from app.extensions import db, now
from app.models.agent import Agent
from app.models.attention import AttentionItem, call_attention, notes_of
from app.models.audit import Action, record
from app.models.base import ExactRatio, Identity, Micros, Model, SealedText, UtcDateTime, lock_row
from app.models.event import announce
from app.models.keyset import Keyset
from app.models.logged import Logged, Said
from app.models.tally import MAX_PROTECTIONS, Tally
from app.silo import Sealed
from app.values.actor import WORKER, Actor
from app.values.refinement_states import AUTOMATIC, BROKEN_STATES, OPEN_STATES, Mode, Status, Trigger

_OPEN = text("status IN ('queued', 'asking', 'running')")


class Refinement(Tally, Logged, Model):
    """What it counted and weighed, and what became of that, is its tally.

    `erosion_cut` and `erosion_base` are, as of the snapshot, what other standing refinements of the last 30 days cut
    and what they cut it from.
    """

    __tablename__ = "refinements"
    LOGGED_AS = "refinement"
    PROVED_ELSEWHERE = frozenset({"snapshot_entry_id", "undone_by"})
    UNPROVED: ClassVar[Mapping[str, str]] = {
        "worker": "which process holds it; after the end nobody does",
        "heartbeat_at": "when that process was last heard of; after the end nobody listens",
    }
    __table_args__ = (
        CheckConstraint("mutations >= 0 AND mutations <= cap AND cap <= 10", name="ck_refinements_cap"),
        CheckConstraint(f"protected >= 0 AND protected <= {MAX_PROTECTIONS}", name="ck_refinements_protections"),
        Index("uq_refinements_one_open", "agent_id", unique=True, sqlite_where=_OPEN, postgresql_where=_OPEN),
        Index("ix_refinements_open", "heartbeat_at", sqlite_where=_OPEN, postgresql_where=_OPEN),
        Index("ix_refinements_agent", "agent_id", "requested_at"),
        Index("ix_refinements_account", "account_id", "requested_at"),
        Index("ix_refinements_status", "account_id", "status", "requested_at"),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"))
    trigger: Mapped[Trigger] = mapped_column(String(16))
    started_by: Mapped[str] = mapped_column(String(300))
    model_id: Mapped[str] = mapped_column(String(200))
    cap: Mapped[int]
    snapshot_entry_id: Mapped[int | None] = mapped_column(Identity)
    turns: Mapped[int] = mapped_column(default=0)
    prompt_tokens: Mapped[int] = mapped_column(default=0)
    completion_tokens: Mapped[int] = mapped_column(default=0)
    cost_usd: Mapped[Decimal] = mapped_column(Micros, default=Decimal(0))
    erosion_floor: Mapped[Decimal | None] = mapped_column(ExactRatio)
    erosion_cut: Mapped[int | None]
    erosion_base: Mapped[int | None]
    reason: Mapped[str | None] = mapped_column(Text)
    summary: Mapped[Sealed | None] = mapped_column(SealedText)
    worker: Mapped[str | None] = mapped_column(String(64))
    heartbeat_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    stop_requested_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    stop_requested_by: Mapped[str | None] = mapped_column(String(300))
    requested_at: Mapped[datetime] = mapped_column(UtcDateTime)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    notes: Mapped[list[AttentionItem]] = notes_of("Refinement.id == AttentionItem.refinement_id")

    @classmethod
    def lock(cls, refinement_id: str) -> Refinement:
        """Load it for change. Raises NotFound."""
        refinement = db.session.scalar(lock_row(select(cls).where(cls.id == refinement_id)))
        if refinement is None:
            raise NotFound("There is no such refinement.")
        return refinement

    @classmethod
    def open_of(cls, agent_id: int) -> Refinement | None:
        """The agent's open refinement, if there is one."""
        return db.session.scalar(select(cls).where(cls.agent_id == agent_id, cls.status.in_(OPEN_STATES)))

    def said(self) -> Said:
        """All of it once it has ended; before, what changes only together with an entry."""
        if not self.is_open:
            return super().said() | {"is_open": False}
        running = _SAID_WHILE_RUNNING if self.status == Status.RUNNING else ()
        return self._said((*_SAID_FROM_THE_START, *running)) | {"is_open": True}

    @property
    def is_open(self) -> bool:
        return self.status in OPEN_STATES

    def is_held_by(self, worker: str) -> bool:
        """Whether it is open and in the hands of this worker."""
        return self.is_open and self.worker == worker

    @property
    def subject(self) -> str:
        return f"refinement:{self.id}"

    @property
    def note_to_admins(self) -> str | None:
        """The latest of its notes."""
        return self.notes[-1].text if self.notes else None

    @property
    def has_refined(self) -> bool:
        """Whether the agent counts as refined by it."""
        return self.status in (Status.COMPLETED, Status.ROLLED_BACK)

    @property
    def was_declined(self) -> bool:
        return self.status == Status.DECLINED

    @property
    def is_look(self) -> bool:
        """Whether the agent, or at least its model, has been at its ledger: a full one that did not break down."""
        return self.mode == Mode.FULL and not self.is_open and self.status not in BROKEN_STATES

    @property
    def is_failed_attempt_of_beat(self) -> bool:
        return self.trigger in AUTOMATIC and self.mode == Mode.FULL and self.status in BROKEN_STATES

    @property
    def changes_left(self) -> int:
        return max(self.cap - self.mutations, 0)

    def end(self, agent: Agent, status: Status, *, reason: str | None = None, by: Actor = WORKER) -> None:
        """Reach an end state, for good: recorded, announced, and the agent is free for the next run.

        An agent counts as refined from when the refinement was asked for, so that the next tick finds it due however
        long this one waited and worked.
        The caller holds the locks of this row and of the agent. Does nothing when it has ended already.
        """
        if not self.is_open:
            return
        moment = now()
        self.status, self.reason, self.ended_at = status, reason, moment
        self.measure(agent)
        agent.take_end(self)
        data: dict[str, Any] = {"status": str(status), "line": self.machine_line, "stats": self.stats}
        data |= {"turns": self.turns, "calls": self.calls, "schedule": agent.schedule_as_json()}
        entry = record(
            Action.REFINEMENT_END, actor=by, of=agent, subject=self.subject, refinement_id=self.id, data=data
        )
        call_attention(entry)
        self.announce("ended", status=str(status))

    def measure(self, agent: Agent) -> None:
        """Take down what it leaves: the mass, and how many core memories."""
        self.mass_after, self.memories_after = agent.core_token_usage, agent.core_count

    def announce(self, step: str, **data: Any) -> None:
        """A durable, content-free event of this refinement; the last one tells its end."""
        if not self.is_open and step != "ended":
            raise RuntimeError(f"the step {step!r} of a refinement that has ended")
        announce(
            f"refinement.{step}",
            account_id=self.account_id,
            agent_id=self.agent_id,
            refinement_id=self.id,
            data=data,
        )


NEWEST_REFINEMENTS = Keyset((Refinement.requested_at, Refinement.id), newest_first=True)

_SAID_FROM_THE_START = (
    *("id", "account_id", "agent_id", "trigger", "started_by", "mode", "threshold", "cap", "requested_at"),
    *("stop_requested_at", "stop_requested_by"),
)
_SAID_WHILE_RUNNING = (
    *("status", "model_id", "mass_before", "kept_mass", "mutations", "consolidated", "updated", "deleted", "protected"),
    *("deduplicated", "deduplicated_tokens", "erosion_floor", "erosion_cut", "erosion_base", "started_at"),
)


class Consent(Logged, Model):
    """The agent's recorded answer to one refinement (or one exception). Its words are content: sealed."""

    __tablename__ = "consents"
    LOGGED_AS = "consent"
    UNPROVED: ClassVar[Mapping[str, str]] = {"id": "only its own row is found by it"}

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"), index=True)
    refinement_id: Mapped[str | None] = mapped_column(ForeignKey("refinements.id"), index=True)
    grant_id: Mapped[str | None] = mapped_column(ForeignKey("access_grants.id"), index=True)
    granted: Mapped[bool]
    words: Mapped[Sealed | None] = mapped_column(SealedText)
    asked_at: Mapped[datetime] = mapped_column(UtcDateTime)
    answered_at: Mapped[datetime] = mapped_column(UtcDateTime)

    @property
    def log_key(self) -> str:
        """What it is about: each is asked once."""
        return self.refinement_id or self.grant_id or ""
