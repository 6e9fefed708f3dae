"""Refinement: one guarded session over one agent's core memories, and Consent: the agent's own YES or NO."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from decimal import ROUND_DOWN, Decimal
from enum import StrEnum
from typing import Any, ClassVar

from sqlalchemy import CheckConstraint, ForeignKey, Index, String, Text, select, text
from sqlalchemy.orm import Mapped, mapped_column

from app.errors import NotFound
from app.extensions import db, now
from app.models.actor import WORKER, Actor
from app.models.agent import Agent
from app.models.attention import AttentionItem, call_attention, notes_of, seems_unable
from app.models.audit import Action, record
from app.models.base import ExactRatio, Identity, Json, Micros, Model, SealedText, UtcDateTime, iso, lock_row
from app.models.event import announce
from app.models.logged import Logged, Said
from app.models.mass import MassStory, as_nouns
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
BROKEN_STATES = (Status.FAILED, Status.INTERRUPTED)
AUTOMATIC = (Trigger.WEEKLY, Trigger.OVER_BUDGET)
"""Started by beat."""

_OPEN = text("status IN ('queued', 'asking', 'running')")


class Refinement(Logged, Model):
    """Masses and kept mass in tokens. `mutations` counts successful consolidations, updates and deletions.

    `memories_merged` counts the memories that went into consolidations, `memories_before` the core memories before
    anything was done, exact duplicates included, `memories_after` those at the end. `calls` counts the calls that the
    Knife answered while the refinement was running, `refused` those of them that it refused, by the refusal's `code`.
    `erosion_cut` and `erosion_base` are, as of the snapshot, what other standing refinements of the last 30 days cut
    and what they cut it from. `undone_by` is the rollback that took this refinement's work back, while it is so.
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
        CheckConstraint("protected >= 0 AND protected <= 10", name="ck_refinements_protections"),
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
    memories_merged: Mapped[int] = mapped_column(default=0)
    memories_before: Mapped[int | None]
    memories_after: Mapped[int | None]
    turns: Mapped[int] = mapped_column(default=0)
    calls: Mapped[int] = mapped_column(default=0)
    refused: Mapped[dict[str, int]] = mapped_column(Json, default=dict)
    prompt_tokens: Mapped[int] = mapped_column(default=0)
    completion_tokens: Mapped[int] = mapped_column(default=0)
    cost_usd: Mapped[Decimal] = mapped_column(Micros, default=Decimal(0))
    erosion_floor: Mapped[Decimal | None] = mapped_column(ExactRatio)
    erosion_cut: Mapped[int | None]
    erosion_base: Mapped[int | None]
    undone_by: Mapped[str | None] = mapped_column(String(36))
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

    def mass_story(self, now: int | None = None) -> MassStory | None:
        """What became of the mass; None until there is anything to tell. `now`: the agent's, while this is open."""
        after = now if self.mass_after is None else self.mass_after
        start = self.mass_at_start
        if start is None and after is not None and self.deduplicated:
            start = after + self.deduplicated_tokens  # it ended before its snapshot, or waits for consent
        if start is None:
            return None
        is_measured = self.mode == Mode.FULL
        return MassStory(
            start,
            self.deduplicated,
            start - self.deduplicated_tokens,
            after,
            self.retention if is_measured else None,
            self.threshold if is_measured else None,
            as_nouns(self.reversed_counts),
            by_guard=self.status == Status.ROLLED_BACK,
        )

    @property
    def reversed_counts(self) -> dict[str, int]:
        """What was done and taken back: by a rollback since everything, by a guard all but the exact duplicates."""
        if self.undone_by is not None:
            return self.counts
        return self._operations if self.status == Status.ROLLED_BACK else {}

    @property
    def _operations(self) -> dict[str, int]:
        return self.counts | {"deduplicated": 0}

    @property
    def counts(self) -> dict[str, int]:
        """What was done, per operation."""
        return {
            "consolidated": self.consolidated,
            "updated": self.updated,
            "deleted": self.deleted,
            "protected": self.protected,
            "deduplicated": self.deduplicated,
        }

    @property
    def stats(self) -> dict[str, Any]:
        """The same, how many memories that were, and what was refused, by kind."""
        memories = {
            "memories_merged": self.memories_merged,
            "memories_before": self.memories_before,
            "memories_after": self.memories_after,
        }
        return self.counts | memories | {"refused": dict(self.refused)}

    @property
    def has_done_something(self) -> bool:
        return any(self.counts.values())

    @property
    def refused_calls(self) -> int:
        return sum(self.refused.values())

    @property
    def model_seems_unable(self) -> bool:
        """Whether most of at least five calls were refused and none changed a memory."""
        return seems_unable(self.calls, self.refused_calls, self.mutations)

    @property
    def refusal_line(self) -> str:
        """How many calls were refused, in words; empty when none was."""
        if not self.refused_calls:
            return ""
        said = f"{self.refused_calls:,} of {self.calls:,} calls were refused"
        return f"{said}: this model may not be able to refine" if self.model_seems_unable else said

    @property
    def refusal_kinds(self) -> str:
        """What was refused, by kind, the most frequent first; empty when nothing was."""
        kinds = sorted(self.refused.items(), key=lambda kind: (-kind[1], kind[0]))
        return ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in kinds)

    def count_calls(self, calls: int, refused: Mapping[str, int]) -> None:
        """Book calls that were answered, and how many of them were refused, by kind."""
        self.calls += calls
        if refused:
            self.refused = dict(Counter(self.refused) + Counter(refused))

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

    @property
    def machine_line(self) -> str:
        """What happened in the machine's own words: counts and tokens, never content."""
        by_guard = self.status == Status.ROLLED_BACK
        stands = {"deduplicated": self.deduplicated} if by_guard else self.counts
        done = [self._words(name, count) for name, count in stands.items() if count]
        done += [f"{as_nouns(self._operations)} reversed"] if by_guard else []
        line = ", ".join(done) or "no change"
        if None not in (self.memories_before, self.memories_after) and self.memories_before != self.memories_after:
            line += f", {self.memories_before:,} → {self.memories_after:,} memories"
        has_masses = self.mass_before is not None and self.mass_after is not None
        if has_masses and not (by_guard and self.mass_at_start == self.mass_after):
            line += f", {self.mass_at_start:,} → {self.mass_after:,} tokens"
        return line

    def _words(self, name: str, count: int) -> str:
        if name == "consolidated" and self.memories_merged:
            return f"{count} consolidated ({self.memories_merged:,} memories merged into {count})"
        return f"{count} {name}"

    def as_json(self) -> dict[str, Any]:
        """The stable form that programs rely on."""
        story = self.mass_story()
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
            "calls": self.calls,
            "retention": None if self.retention is None else float(self.retention),
            "mass": story.as_json() if story else None,
            "reason": self.reason,
            "note_to_admins": self.note_to_admins,
            "notes": [note.as_note() for note in self.notes],
            "undone_by": self.undone_by,
            "requested_at": iso(self.requested_at),
            "started_at": iso(self.started_at),
            "ended_at": iso(self.ended_at),
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "cost_usd": float(self.cost_usd),
        }


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
