"""Refinement: one guarded session over one agent's core memories, and Consent: the agent's own YES or NO."""

from __future__ import annotations

from datetime import datetime
from decimal import ROUND_DOWN, Decimal
from enum import StrEnum
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, String, Text, select, text
from sqlalchemy.orm import Mapped, mapped_column

from app.errors import NotFound
from app.extensions import db, now
from app.models.actor import WORKER, Actor
from app.models.agent import Agent
from app.models.audit import Action, record
from app.models.base import ExactRatio, Identity, Micros, Model, SealedText, UtcDateTime, iso, lock_row
from app.models.event import announce
from app.silo import Sealed


class Trigger(StrEnum):
    """Who wanted it."""

    WEEKLY = "weekly"
    OVER_BUDGET = "over_budget"
    ADMIN = "admin"
    AGENT = "agent"


class Mode(StrEnum):
    FULL = "full"
    DEDUP_ONLY = "dedup_only"


class Status(StrEnum):
    """`queued`, `asking` (for consent) and `running` are open; all others are ends, and an end is never left."""

    QUEUED = "queued"
    ASKING = "asking"
    RUNNING = "running"
    COMPLETED = "completed"
    DECLINED = "declined"
    ROLLED_BACK = "rolled_back"
    STOPPED = "stopped"
    UNFINISHED = "unfinished"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


OPEN_STATES = (Status.QUEUED, Status.ASKING, Status.RUNNING)
_OPEN = text("status IN ('queued', 'asking', 'running')")


class Refinement(Model):
    """Masses and kept mass in tokens. `mutations` counts successful consolidations, updates and deletions.

    `erosion_cut` and `erosion_base` are, as of the snapshot, what other standing refinements of the last 30 days cut
    and what they cut it from. `undone_by` is the rollback that took this refinement's work back, while it is so.
    """

    __tablename__ = "refinements"
    __table_args__ = (
        CheckConstraint("mutations >= 0 AND mutations <= cap AND cap <= 10", name="ck_refinements_cap"),
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
    mode: Mapped[Mode] = mapped_column(String(16))
    status: Mapped[Status] = mapped_column(String(16))
    model_id: Mapped[str] = mapped_column(String(200))
    threshold: Mapped[Decimal] = mapped_column(ExactRatio)
    cap: Mapped[int]
    mass_before: Mapped[int | None]
    kept_mass: Mapped[int | None]
    mass_after: Mapped[int | None]
    snapshot_entry_id: Mapped[int | None] = mapped_column(Identity)
    mutations: Mapped[int] = mapped_column(default=0)
    consolidated: Mapped[int] = mapped_column(default=0)
    updated: Mapped[int] = mapped_column(default=0)
    deleted: Mapped[int] = mapped_column(default=0)
    protected: Mapped[int] = mapped_column(default=0)
    deduplicated: Mapped[int] = mapped_column(default=0)
    deduplicated_tokens: Mapped[int] = mapped_column(default=0)
    turns: Mapped[int] = mapped_column(default=0)
    prompt_tokens: Mapped[int] = mapped_column(default=0)
    completion_tokens: Mapped[int] = mapped_column(default=0)
    cost_usd: Mapped[Decimal] = mapped_column(Micros, default=Decimal(0))
    erosion_floor: Mapped[Decimal | None] = mapped_column(ExactRatio)
    erosion_cut: Mapped[int | None]
    erosion_base: Mapped[int | None]
    undone_by: Mapped[str | None] = mapped_column(String(36))
    reason: Mapped[str | None] = mapped_column(Text)
    note_to_admins: Mapped[str | None] = mapped_column(String(280))
    summary: Mapped[Sealed | None] = mapped_column(SealedText)
    worker: Mapped[str | None] = mapped_column(String(64))
    heartbeat_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    stop_requested_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    stop_requested_by: Mapped[str | None] = mapped_column(String(300))
    requested_at: Mapped[datetime] = mapped_column(UtcDateTime)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)

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

    @property
    def is_open(self) -> bool:
        return self.status in OPEN_STATES

    @property
    def subject(self) -> str:
        return f"refinement:{self.id}"

    @property
    def changes_left(self) -> int:
        return max(self.cap - self.mutations, 0)

    @property
    def retention(self) -> Decimal | None:
        """Kept mass ÷ mass at the start, four digits, rounded down so that just under never shows as the threshold."""
        if self.mass_before is None or self.kept_mass is None:
            return None
        if self.mass_before == 0:
            return Decimal("1.0000")
        return (Decimal(self.kept_mass) / self.mass_before).quantize(Decimal("0.0001"), ROUND_DOWN)

    @property
    def has_tripped(self) -> bool:
        """Whether less is kept than the threshold allows. Whole numbers only; mass 0 never trips."""
        if not self.mass_before or self.kept_mass is None:
            return False
        return self.kept_mass * 10_000 < int(self.threshold * 10_000) * self.mass_before

    @property
    def mass_at_start(self) -> int | None:
        """Mass before anything was done: exact duplicates go before the snapshot, but for a run that does only that."""
        if self.mass_before is None:
            return None
        return self.mass_before + (self.deduplicated_tokens if self.mode == Mode.FULL else 0)

    @property
    def stats(self) -> dict[str, int]:
        return {
            "consolidated": self.consolidated,
            "updated": self.updated,
            "deleted": self.deleted,
            "protected": self.protected,
            "deduplicated": self.deduplicated,
        }

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
        self.mass_after = agent.core_token_usage
        if status in (Status.COMPLETED, Status.ROLLED_BACK):
            agent.last_refinement_at = self.requested_at
        data = {"status": str(status), "line": self.machine_line, "stats": self.stats, "turns": self.turns}
        record(Action.REFINEMENT_END, actor=by, of=agent, subject=self.subject, refinement_id=self.id, data=data)
        self.announce("ended", status=str(status))

    def announce(self, step: str, **data: Any) -> None:
        """A durable, content-free event of this refinement."""
        announce(
            f"refinement.{step}",
            account_id=self.account_id,
            agent_id=self.agent_id,
            refinement_id=self.id,
            data=data,
        )

    @property
    def machine_line(self) -> str:
        """What happened in the machine's own words: counts and tokens, never content."""
        done = [f"{count} {name}" for name, count in self.stats.items() if count]
        line = ", ".join(done) or "no change"
        if self.mass_before is not None and self.mass_after is not None:
            line += f", {self.mass_at_start:,} → {self.mass_after:,} tokens"
        return line

    def as_json(self) -> dict[str, Any]:
        """The stable form that programs rely on."""
        return {
            "id": self.id,
            "status": str(self.status),
            "mode": str(self.mode),
            "trigger": str(self.trigger),
            "mass_before": self.mass_before,
            "mass_after": self.mass_after,
            "threshold": float(self.threshold),
            "mutations": self.mutations,
            "stats": self.stats,
            "turns": self.turns,
            "retention": None if self.retention is None else float(self.retention),
            "reason": self.reason,
            "note_to_admins": self.note_to_admins,
            "undone_by": self.undone_by,
            "requested_at": iso(self.requested_at),
            "started_at": iso(self.started_at),
            "ended_at": iso(self.ended_at),
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "cost_usd": float(self.cost_usd),
        }


class Consent(Model):
    """The agent's recorded answer to one refinement (or one exception). Its words are content: sealed."""

    __tablename__ = "consents"

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"), index=True)
    refinement_id: Mapped[str | None] = mapped_column(ForeignKey("refinements.id"), index=True)
    grant_id: Mapped[str | None] = mapped_column(ForeignKey("access_grants.id"), index=True)
    granted: Mapped[bool]
    words: Mapped[Sealed | None] = mapped_column(SealedText)
    note_to_admins: Mapped[str | None] = mapped_column(String(280))
    asked_at: Mapped[datetime] = mapped_column(UtcDateTime)
    answered_at: Mapped[datetime] = mapped_column(UtcDateTime)
