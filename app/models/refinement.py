"""Refinement: one guarded session over one agent's core memories, and Consent: the agent's own YES or NO."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cache
from typing import Any, ClassVar, cast

from sqlalchemy import (
    BindParameter,
    CheckConstraint,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    bindparam,
    case,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Mapped, mapped_column

from app.errors import Refused
from app.extensions import db, is_sqlite, now
from app.models.agent import Agent
from app.models.asked_loss import digest_of_questions
from app.models.attention import HasNotesToAdmins, create_attention_items, settle_attention
from app.models.audit import Action, AuditLog, record
from app.models.base import (
    ExactRatio,
    Identity,
    Lockable,
    Micros,
    Model,
    Moment,
    database_now,
    iso,
    partial_index,
    read_locked,
)
from app.models.closing import Closing
from app.models.event import announce
from app.models.keyset import Keyset
from app.models.logged import Logged, Said
from app.models.second_reading import GroupVerdict, ReadingOutcome
from app.models.tally import MAX_PROTECTIONS, Tally
from app.prepared import Prepared, one_of_these
from app.silo import Sealed
from app.values.actor import WORKER, Actor
from app.values.mass_story import NOUNS
from app.values.refinement_states import OPEN_STATES, Mode, Status, Trigger

NO_REASON = "No reason was recorded"

_OPEN = f"status IN {tuple(map(str, OPEN_STATES))}"


class Refinement(Tally, Closing, HasNotesToAdmins, Logged, Lockable, Model):
    """What it counted and weighed, and what became of that, is its tally; what follows its last change, its closing.

    `erosion_cut` and `erosion_base` are, as of the snapshot, what other standing refinements of the last 30 days cut
    and what they cut it from. `failure` is why it broke down, as every other that broke down so says it: without the
    times, pauses and advice that `reason` adds.
    """

    __tablename__ = "refinements"
    NOUN = "refinement"
    NOTED_BY = "refinement_id"
    CHECKED_ELSEWHERE = frozenset({"snapshot_entry_id", "undone_by"})
    NOT_AUDITED: ClassVar[Mapping[str, str]] = {
        "worker": "which process holds it; after the end nobody does",
        "heartbeat_at": "when that process was last heard of; after the end nobody listens",
    }
    __table_args__ = (
        CheckConstraint("mutations >= 0 AND mutations <= cap AND cap <= 10", name="ck_refinements_cap"),
        CheckConstraint(f"protected >= 0 AND protected <= {MAX_PROTECTIONS}", name="ck_refinements_protections"),
        CheckConstraint(
            "confirmed_losses >= 0 AND confirmed_losses <= max_confirmed_losses AND max_confirmed_losses <= 10",
            name="ck_refinements_confirmed_losses",
        ),
        partial_index("uq_refinements_one_open", "agent_id", unique=True, where=_OPEN),
        partial_index("ix_refinements_open", "heartbeat_at", where=_OPEN),
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
    failure: Mapped[str | None] = mapped_column(Text)
    summary: Mapped[Sealed | None]
    worker: Mapped[str | None] = mapped_column(String(64))
    heartbeat_at: Mapped[Moment | None]
    stop_requested_at: Mapped[Moment | None]
    stop_requested_by: Mapped[str | None] = mapped_column(String(300))
    requested_at: Mapped[Moment]
    started_at: Mapped[Moment | None]
    ended_at: Mapped[Moment | None]

    @classmethod
    def open_of(cls, agent_id: int) -> Refinement | None:
        """The agent's open refinement, if there is one."""
        return next((found for (found,) in read_locked(_OPEN_OF, {"agent": agent_id}, cls)), None)

    def said(self) -> Said:
        """All of it once it has ended; before, what changes only together with an entry."""
        if not self.is_open:
            return super().said() | {"is_open": False}
        running = _SAID_WHILE_RUNNING if self.status == Status.RUNNING else ()
        return self._logged_values((*_SAID_FROM_THE_START, *running)) | {"is_open": True}

    @property
    def is_open(self) -> bool:
        return self.status in OPEN_STATES

    @property
    def seconds(self) -> float | None:
        """How long it took from a worker's claim to its end."""
        whole = self.ended_at - self.started_at if self.started_at and self.ended_at else None
        return None if whole is None else round(whole.total_seconds(), 3)

    @property
    def model_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    @property
    def failure_words(self) -> str:
        """Why it broke down, as all that broke down so say it."""
        return self.failure or NO_REASON

    @property
    def seconds_taken(self) -> float:
        """How long it has taken so far, or took: from when a worker began, else from when it was asked for."""
        began = self.started_at or self.requested_at
        return max(((self.ended_at or now()) - began).total_seconds(), 0.0)

    def is_held_by(self, worker: str) -> bool:
        """Whether it is open and in the hands of this worker."""
        return self.is_open and self.worker == worker

    @classmethod
    def queue(cls, agent: Agent, *, trigger: Trigger, mode: Mode, cap: int, by: Actor) -> Refinement:
        """The one open refinement that the agent may have, for a worker to claim. The caller has locked the agent.

        Raises Refused where one is open: the database decides that.
        """
        refinement = cls(
            id=str(uuid.uuid4()),
            account_id=agent.account_id,
            agent_id=agent.id,
            trigger=trigger,
            started_by=str(by),
            mode=mode,
            status=Status.QUEUED,
            model_id=agent.model_id,
            threshold=agent.effective_refinement_threshold,
            cap=cap,
            max_confirmed_losses=agent.effective_max_confirmed_losses,
            requested_at=now(),
        )
        db.session.add(refinement)
        try:
            db.session.flush()
        except IntegrityError as error:
            raise Refused("Already running: a refinement of this agent is open.", "Nothing was started.") from error
        agent.last_attempt_at = refinement.requested_at
        asked = {"trigger": str(trigger), "mode": str(mode)}
        weight = {"mass": agent.core_token_usage, "count": agent.core_count, "at": iso(agent.last_attempt_at)}
        refinement.record_action(Action.REFINEMENT_START, agent, by, asked | weight)
        refinement.announce("queued", **asked)
        return refinement

    @classmethod
    def claim(cls, refinement_id: str, worker: str, **limits: int) -> Refinement | None:
        """queued → asking, for exactly one worker: None where another has it, or where it has ended.

        `limits` are told to who watches: seconds of the whole (`deadline`), and of one attempt to ask (`step`).
        """
        held = {"row": refinement_id, "by": worker, "at": now()}
        for (refinement,) in read_locked(_claim_statement(is_sqlite(db.session())), held, cls):
            refinement.announce("begun", **limits)
            return cast(Refinement, refinement)
        return None

    @classmethod
    def book_turn(
        cls,
        refinement_id: str,
        worker: str,
        turn: int,
        *,
        prompt_tokens: int,
        completion_tokens: int,
        cost_usd: Decimal,
    ) -> bool:
        """Put a turn of its loop, and what that took, on its account, if it is open and in the hands of this worker.

        Call it first in a transaction: it takes the row's lock.
        """
        used = {"prompt": prompt_tokens, "completion": completion_tokens, "cost": cost_usd}
        mine = {"row": refinement_id, "by": worker, "turn": turn}
        return _BOOK_TURN.run(db.session.connection(), [mine | used]) == 1

    def begin(self, agent: Agent) -> None:
        """asking → running: the snapshot that the guards compare with.

        It fixes mass and threshold, as `queue` fixed the cap: later changes to settings do not touch this refinement.
        The caller holds the locks of this row and of the agent, and has fixed the limit of erosion.
        """
        self.status = Status.RUNNING
        self.mass_before = self.kept_mass = agent.core_token_usage
        self.threshold = agent.effective_refinement_threshold
        self.max_confirmed_losses = agent.effective_max_confirmed_losses
        mass, threshold = agent.core_token_usage, str(self.threshold)
        data: dict[str, Any] = {"mass": mass, "count": agent.core_count, "threshold": threshold, "cap": self.cap}
        data |= {"model": self.model_id, "erosion": {"cut": self.erosion_cut, "base": self.erosion_base}}
        if self.reader_action is not None:
            data["second_reader"] = {"model": self.reader_model, "action": str(self.reader_action)}
        self.snapshot_entry_id = self.record_action(Action.REFINEMENT_SNAPSHOT, agent, WORKER, data).id
        self.announce("running", mass=mass, threshold=threshold)

    def request_stop(self, agent: Agent, *, by: Actor) -> None:
        """End it where no worker has begun; else it ends before its next change. Nothing happens to an ended one, nor
        to one that has made its last change and is read once more.

        The caller holds the locks of this row and of the agent.
        """
        if not self.is_open or self.stop_requested_at is not None or self.ending is not None:
            return
        self.stop_requested_at, self.stop_requested_by = now(), str(by)
        self.record_action(Action.REFINEMENT_STOP_REQUESTED, agent, by)
        if self.status == Status.QUEUED:
            self.end(agent, Status.STOPPED, reason="Stopped before a worker began.", by=by)
        else:
            self.announce("stop_requested")

    def end(
        self, agent: Agent, status: Status, *, reason: str | None = None, failure: str | None = None, by: Actor = WORKER
    ) -> None:
        """Reach an end, for whoever holds it. Where its changes are to be read once more, or probes to be answered, it
        only takes no call any more, and its worker calls `end_now` once that is done; else it has ended.

        The caller holds the locks of this row and of the agent. Does nothing when it has ended already, or comes to it.
        """
        if not self.is_open or self.ending is not None:
            return
        if self.status == Status.RUNNING and self.is_held_before(status):
            self.ending, self.reason, self.failure = status, reason, failure
            self.announce("closing", status=str(status))
        else:
            self.end_now(agent, status, reason=reason, failure=failure, by=by)

    def end_now(
        self, agent: Agent, status: Status, *, reason: str | None = None, failure: str | None = None, by: Actor = WORKER
    ) -> None:
        """Reach an end state, for good: recorded, announced, and the agent is free for the next run. Changes that were
        to be read once more, and were not, count as not kept.

        An agent counts as refined from when the refinement was asked for, so that the next tick finds it due however
        long this one waited and worked.
        The caller holds the locks of this row and of the agent. Does nothing when it has ended already.
        """
        if not self.is_open:
            return
        if self.awaits_reading and status != Status.ROLLED_BACK:
            self.book_reading(agent, ReadingOutcome.NOT_READ)
        moment = now()
        self.status, self.reason, self.failure, self.ended_at = status, reason, failure, moment
        self.measure(agent)
        agent.take_end(self)
        data: dict[str, Any] = {"status": str(status), "line": self.machine_line, "stats": self.stats}
        data |= {"turns": self.turns, "calls": self.calls, "schedule": agent.schedule_as_json()}
        if self.specifics_missing:
            data["questions"] = digest_of_questions(self.id)
        data |= {"second_reading": self.second_reading} if self.second_reading else {}
        data |= {"probes": self.probes} if self.probes else {}
        entry = self.record_action(Action.REFINEMENT_END, agent, by, data)
        settle_attention(agent.id, status, self.id)
        create_attention_items(entry)
        self.announce("ended", status=str(status))

    def book_reading(self, agent: Agent, outcome: ReadingOutcome, verdicts: Sequence[GroupVerdict] = ()) -> None:
        """Record what the second reader said of each group of changes; without verdicts, that it called none kept.

        The caller holds the locks of this row and of the agent.
        """
        said = self.note_verdicts(outcome, verdicts)
        create_attention_items(self.record_action(Action.SECOND_READING, agent, WORKER, said))
        self.announce("read", groups=said["groups"], kept=said["kept"], outcome=said["outcome"])

    def record_action(
        self, action: Action, agent: Agent, by: Actor, data: Mapping[str, Any] | None = None, **more: Any
    ) -> AuditLog:
        """Record it with this refinement; as its subject, too, unless `more` names another one. See `record`."""
        about = {"subject": self.subject} | more
        return record(action, actor=by, of=agent, refinement_id=self.id, data=data, **about)

    def book_usage(self, prompt_tokens: int, completion_tokens: int, cost_usd: Decimal) -> None:
        """Put the tokens and the cost of one reply, in US dollars, on its account."""
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += completion_tokens
        self.cost_usd = (self.cost_usd or Decimal(0)) + cost_usd

    def measure(self, agent: Agent) -> None:
        """Take down what it leaves: the mass, and how many core memories."""
        self.mass_after, self.memories_after = agent.core_token_usage, agent.core_count

    def announce(self, step: str, /, **data: Any) -> None:
        """A durable, content-free event of this refinement; the last one tells its end."""
        if not self.is_open and step != "ended":
            raise RuntimeError(f"the step {step!r} of a refinement that has ended")
        announce(f"refinement.{step}", self.account_id, self.agent_id, self.id, **data)


_TABLE = cast(Table, Refinement.__table__)
_IS_OPEN = one_of_these(_TABLE.c.status, OPEN_STATES)
_OPEN_OF = Prepared(select(_TABLE).where(_TABLE.c.agent_id == bindparam("agent"), _IS_OPEN))
_TURN: BindParameter[int] = bindparam("turn", type_=Integer)
_BOOK_TURN = Prepared(
    update(_TABLE)
    .where(_TABLE.c.id == bindparam("row"), _TABLE.c.worker == bindparam("by"), _IS_OPEN)
    .values(
        turns=case((_TABLE.c.turns < _TURN, _TURN), else_=_TABLE.c.turns),
        prompt_tokens=_TABLE.c.prompt_tokens + bindparam("prompt", type_=Integer),
        completion_tokens=_TABLE.c.completion_tokens + bindparam("completion", type_=Integer),
        cost_usd=_TABLE.c.cost_usd + bindparam("cost", type_=Micros),
    )
)


@cache
def _claim_statement(_on_sqlite: bool) -> Prepared:
    """One for each database, whose clocks differ."""
    held = {"status": Status.ASKING, "worker": bindparam("by"), "started_at": bindparam("at")}
    is_free = (_TABLE.c.id == bindparam("row"), _TABLE.c.status == Status.QUEUED)
    return Prepared(update(_TABLE).where(*is_free).values(**held, heartbeat_at=database_now()).returning(_TABLE))


NEWEST_REFINEMENTS = Keyset((Refinement.requested_at, Refinement.id), newest_first=True)

_SAID_FROM_THE_START = (
    *("id", "account_id", "agent_id", "trigger", "started_by", "mode", "threshold", "cap", "requested_at"),
    *("stop_requested_at", "stop_requested_by"),
)
_SAID_WHILE_RUNNING = (
    *("status", "model_id", "mass_before", "kept_mass", "mutations", *NOUNS),
    *("specifics_checked", "specifics_restored", "specifics_confirmed", "confirmed_losses", "max_confirmed_losses"),
    *("deduplicated_tokens", "erosion_floor", "erosion_cut", "erosion_base", "started_at"),
    *("reader_model", "reader_action"),
)


class Consent(Logged, Model):
    """The agent's recorded answer to one refinement, exception or change of its settings. Its words are sealed."""

    __tablename__ = "consents"
    NOUN = "consent"
    NOT_AUDITED: ClassVar[Mapping[str, str]] = {"id": "only its own row is found by it"}

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"), index=True)
    refinement_id: Mapped[str | None] = mapped_column(ForeignKey("refinements.id"), index=True)
    grant_id: Mapped[str | None] = mapped_column(ForeignKey("access_grants.id"), index=True)
    settings_request_id: Mapped[str | None] = mapped_column(ForeignKey("settings_requests.id"), index=True)
    granted: Mapped[bool]
    words: Mapped[Sealed | None]
    asked_at: Mapped[Moment]
    answered_at: Mapped[Moment]

    @property
    def log_key(self) -> str:
        """What it is about: each is asked once."""
        return self.refinement_id or self.grant_id or self.settings_request_id or ""
