"""The process of one refinement: claim → exact duplicates → consent → snapshot → loop → close (`closing`).

Every step is a transaction of its own; none is open while the model thinks. Whatever goes wrong, the refinement reaches
an end state, and the valid changes made until then are kept.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple, cast

import structlog
from flask import current_app
from sqlalchemy import Table, bindparam, select

from app.asking.calls import Dependencies, ModelCalls
from app.asking.replies import ConsentAnswer, read_answer
from app.config import Settings
from app.errors import DiskFull
from app.extensions import db, end_reading, is_sqlite, now, read_rows, reading, writing
from app.history.reversing import end_unread
from app.llm.client import Message, ModelError, Reply, Usage
from app.llm.retry import FailedAttempt
from app.models import (
    OPEN_STATES,
    Account,
    Action,
    Agent,
    CallPurpose,
    Consent,
    Mode,
    Refinement,
    Status,
    note_to_admins,
    record,
)
from app.models.account_use import MONTH_COLUMNS, is_spent, may_begin, month_start
from app.models.base import insert_row
from app.models.declaring import declare, hash_words
from app.models.event import announce
from app.models.statement import StatementKind
from app.models.statement_errors import AgentStopped
from app.prepared import Prepared
from app.refinement.closing import CloseWork
from app.refinement.dedup import remove_exact_duplicates
from app.refinement.erosion import fix_erosion_limit
from app.refinement.failures import AGENT_STOPPED
from app.refinement.functions import ACTIONS
from app.refinement.guard import Claim
from app.refinement.heartbeat import heartbeat
from app.refinement.loop import Limits, LoopOutcome, run_tool_loop
from app.refinement.prompts import PromptFigures, RefinedAgent
from app.refinement.sweep import DISK_FULL
from app.refinement.tool import RefinementTool
from app.silo import SealBroken
from app.vocabulary.statuses import EARLIER_CHANGES_KEPT
from app.work_turns import WorkTurns, in_turn, waiting_elsewhere

log = structlog.get_logger(__name__)


class _Hold(NamedTuple):
    """What a look at the row, and at what its account has spent, says before a turn."""

    status: str
    worker: str | None
    stop_requested_at: datetime | None
    max_monthly_cost: Decimal | None
    month_cost: Decimal | None


class _Stopped(Exception):
    """An admin pressed Stop, or the row is no longer this worker's."""


def run_refinement(refinement_id: str, dependencies: Dependencies) -> AgentStopped | None:
    """Carry one queued refinement to its end. Does nothing when another worker has it, or it has ended.

    Returns what stopped the agent, where its rows differ from the log of statements: the caller raises the alarm.
    """
    with in_turn(_work_turns()):
        claim = _claim_refinement(refinement_id)
        if claim is None:
            return None
        process = _Process(claim, dependencies)
        with heartbeat().beating(claim):
            process.run()
        return process.stopped


def _work_turns() -> WorkTurns:
    """This app's, made on first use."""
    at_once = AT_ONCE_ON_SQLITE if is_sqlite(db.session()) else AT_ONCE_ON_SERVER
    found: WorkTurns = current_app.extensions.setdefault("work_turns", WorkTurns(at_once))
    return found


def _claim_refinement(refinement_id: str) -> Claim | None:
    """queued → asking, for exactly one worker. None also where it waits for a limit of its account."""
    worker = uuid.uuid4().hex
    with writing():
        if not may_begin(refinement_id):
            return None
        if Refinement.claim(refinement_id, worker, **_limits_in_seconds()) is None:
            return None
    return Claim(refinement_id, worker)


def _limits_in_seconds() -> dict[str, int]:
    """Of the whole refinement, and of one attempt to ask a model: told with the claim, for who watches it."""
    settings: Settings = current_app.extensions["settings"]
    return {"deadline": settings.deadline_seconds, "step": settings.step_timeout_seconds}


class _Process:
    def __init__(self, claim: Claim, dependencies: Dependencies) -> None:
        self._claim = claim
        self._dependencies = dependencies
        self._settings: Settings = current_app.extensions["settings"]
        self._deadline = dependencies.monotonic() + self._settings.deadline_seconds
        self._calls: ModelCalls | None = None
        self._close: CloseWork | None = None
        self._hold: _Hold | None = None
        self.stopped: AgentStopped | None = None

    def run(self) -> None:
        try:
            self._run_to_an_end()
        finally:
            if self._calls is not None:
                self._calls.close()

    def _run_to_an_end(self) -> None:
        try:
            self._run_until_the_last_change()
            if self._close is not None:
                self._close.finish()
        except SealBroken as error:
            end_reading()
            self.stopped = error if isinstance(error, AgentStopped) else None
            kept = EARLIER_CHANGES_KEPT.capitalize()
            reason = f"{error.sentence} {kept}; `./whetstone verify` finds what it was."
            self._interrupt(reason, AGENT_STOPPED if self.stopped else SEAL_BROKEN)
        except DiskFull:
            end_reading()
            self._interrupt(f"{DISK_FULL}; {EARLIER_CHANGES_KEPT}.", DISK_FULL)
        except Exception as error:
            end_reading()
            failure = f"Something unexpected happened in the worker ({type(error).__name__})"
            self._interrupt(f"{failure}; {EARLIER_CHANGES_KEPT}.", failure)
            raise

    def _run_until_the_last_change(self) -> None:
        try:
            self._run_steps()
        except _Stopped:
            self._end_refinement(Status.STOPPED, f"An admin pressed Stop; {EARLIER_CHANGES_KEPT}.")
        except ModelError as error:
            self._end_refinement(Status.FAILED, error.sentence, error.summary)

    def _run_steps(self) -> None:
        refined = self._remove_duplicates()
        if refined is None:
            return
        calls = self._calls = ModelCalls(
            refined.agent,
            self._dependencies,
            subject_id=self._claim.refinement_id,
            deadline=self._deadline,
            on_retry=self._tell_retry,
        )
        calls.open(CallPurpose.CONSENT if refined.is_asked else CallPurpose.REFINEMENT)
        figures = self._ask_consent(calls, refined)
        if figures is not None:
            self._close = CloseWork(self._claim, self._dependencies, refined, calls, self._deadline)
            self._close.write_probes(self._unless_stopped)
            self._run_loop(calls, refined, figures)

    def _remove_duplicates(self) -> RefinedAgent | None:
        """Returns the agent to go on with, or None when that was all there was to do."""
        with writing():
            refinement, agent = self._lock_rows()
            mass, count = agent.core_token_usage, agent.core_count
            remove_exact_duplicates(refinement, agent)
            refinement.memories_before = count
            if refinement.mode == Mode.DEDUP_ONLY:
                refinement.mass_before = refinement.kept_mass = mass
                refinement.end(agent, Status.COMPLETED)
                return None
            refinement.model_id = agent.model_id
            refined = RefinedAgent.of(agent, refinement)
            if refined.is_asked:
                refinement.announce("asked")
            return refined

    def _ask_consent(self, calls: ModelCalls, refined: RefinedAgent) -> PromptFigures | None:
        """Ask, record the answer, and after a YES take the snapshot. None after a NO."""
        answer, usage, asked = ConsentAnswer(True, ""), Usage(), list[Message]()

        def question(window: int | None) -> Sequence[Message]:
            asked[:] = self._unless_stopped(refined.question(window))
            return asked

        if refined.is_asked:
            reply = calls.ask(CallPurpose.CONSENT, question)
            answer, usage = read_answer(reply), reply.usage
        with writing():
            refinement, agent = self._lock_rows()
            calls.book()
            refinement.book_usage(**vars(usage))
            self._record_answer(refinement, agent, answer, refined, asked)
            return self._take_ledger_snapshot(refinement, agent, refined) if answer.granted else None

    def _record_answer(
        self,
        refinement: Refinement,
        agent: Agent,
        answer: ConsentAnswer,
        refined: RefinedAgent,
        question: Sequence[Message],
    ) -> None:
        keys = refined.agent.keys
        words = keys.seal(answer.words, purpose="consent", subject=refinement.id) if answer.words else None
        consent = Consent(
            account_id=agent.account_id,
            agent_id=agent.id,
            refinement_id=refinement.id,
            granted=answer.granted,
            words=words,
            asked_at=refinement.started_at or now(),
            answered_at=now(),
        )
        insert_row(consent)
        record(
            Action.REFINEMENT_CONSENT,
            actor=agent.as_actor,
            of=agent,
            subject=refinement.subject,
            refinement_id=refinement.id,
            data={"answer": "YES" if answer.granted else "NO", "asked": refined.is_asked},
            rows=(consent,),
        )
        if refined.is_asked:
            said = {"granted": answer.granted, "by_token": None, "mode": str(refinement.mode)}
            said |= hash_words(keys, refinement.subject, json.dumps(list(question)), answer.words)
            declare(StatementKind.CONSENT, agent, refinement.subject, said)
        refinement.announce("answered", granted=answer.granted, asked=refined.is_asked)
        note_to_admins(agent, answer.note_to_admins, about=refinement)
        if not answer.granted:
            refinement.end(agent, Status.DECLINED, reason="The agent said NO.", by=agent.as_actor)

    def _take_ledger_snapshot(self, refinement: Refinement, agent: Agent, refined: RefinedAgent) -> PromptFigures:
        fix_erosion_limit(refinement, agent)
        if refined.reader is not None:
            refinement.reader_model, refinement.reader_action = refined.reader.endpoint.model_id, refined.reader.action
        refinement.begin(agent)
        return PromptFigures.of(agent, refinement)

    def _run_loop(self, calls: ModelCalls, refined: RefinedAgent, figures: PromptFigures) -> None:
        opening = refined.opening(figures, calls.open(CallPurpose.REFINEMENT).context_window())
        limits = Limits(
            self._settings.max_turns,
            calls.time_left,
            self._settings.max_model_tokens,
            self._settings.max_cost_usd,
            self._is_month_spent,
        )
        tool = RefinementTool(self._claim, refined.agent.keys)

        def ask(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Reply:
            return calls.ask(CallPurpose.REFINEMENT, lambda _: self._unless_stopped(messages), tools)

        try:
            outcome = run_tool_loop(ask, opening, tool, limits, partial(self._book_reply, calls))
        except ModelError:
            if calls.time_left() > 0:
                raise
            outcome = LoopOutcome.TIME
        if outcome is LoopOutcome.CLOSED and self._read_hold().stop_requested_at is not None:
            raise _Stopped
        if outcome is not LoopOutcome.CLOSED:
            self._end_refinement(Status.UNFINISHED, UNFINISHED_REASONS[outcome])

    def _unless_stopped(self, messages: Sequence[Message]) -> Sequence[Message]:
        """To be sent now. Raises _Stopped; only a rollback is told to the model after the end."""
        hold, self._hold = self._hold or self._read_hold(), None
        status, worker, stop = hold.status, hold.worker, hold.stop_requested_at
        is_over = status != Status.ROLLED_BACK if status not in OPEN_STATES else stop is not None
        if worker != self._claim.worker or is_over:
            raise _Stopped
        return messages

    def _book_reply(self, calls: ModelCalls, turn: int, reply: Reply) -> None:
        """Book a reply's tokens and cost, and let the pages know that the model spoke.

        After the end only the call itself is booked: the reply to a rollback, and one that comes back to a worker that
        was given up, are on no account of the refinement's.
        """
        refinement_id, asked = self._claim.refinement_id, calls.asked
        searches = sum(ACTIONS.get(call.name) == "search" for call in reply.tool_calls)
        told = {"calls": len(reply.tool_calls), "searches": searches, "tokens": reply.usage.total_tokens}
        with writing():
            is_held = Refinement.book_turn(refinement_id, self._claim.worker, turn, **vars(reply.usage))
            calls.book()
            if is_held:
                announce("refinement.turn", asked.account_id, asked.agent_id, refinement_id, turn=turn, **told)

    def _tell_retry(self, failed: FailedAttempt) -> None:
        """Let the pages know that an attempt got no answer, and when the next one is made."""
        kind, told = str(failed.error.kind), {"attempt": failed.number, "attempts": failed.attempts}
        with writing():
            refinement = Refinement.lock(self._claim.refinement_id)
            if refinement.is_held_by(self._claim.worker):
                pause = round(failed.pause, 1)
                refinement.announce("retried", **told, why=kind, http=failed.error.status, pause=pause)

    def _interrupt(self, reason: str, failure: str) -> None:
        """End it where this process can do no more: what was not read once more until then is not called kept."""
        keys = None if self._close is None else self._close.keys

        def end(refinement: Refinement, agent: Agent) -> None:
            end_unread(refinement, agent, Status.INTERRUPTED, reason, failure=failure, keys=keys)

        self._write_the_end(end)

    def _end_refinement(self, status: Status, reason: str, failure: str | None = None) -> None:
        """End it, or let it come to its end, where `CloseWork` has something to do before."""
        self._write_the_end(lambda refinement, agent: refinement.end(agent, status, reason=reason, failure=failure))

    def _write_the_end(self, end: Callable[[Refinement, Agent], None]) -> None:
        """Where the disk is full, wait for room: else nobody would know why it ended."""
        while not self._try_to_end(end):
            with waiting_elsewhere():
                self._dependencies.pause(ROOM_SECONDS)

    def _try_to_end(self, end: Callable[[Refinement, Agent], None]) -> bool:
        """End it, unless somebody did. False where the disk has no room for that."""
        try:
            with writing():
                refinement = Refinement.lock(self._claim.refinement_id)
                if self._calls is not None:
                    self._calls.book()
                if refinement.is_held_by(self._claim.worker):
                    end(refinement, Agent.lock(refinement.agent_id))
        except DiskFull:
            log.error("no room on the disk to end a refinement", refinement=self._claim.refinement_id)  # noqa: TRY400
            return False
        return True

    def _lock_rows(self) -> tuple[Refinement, Agent]:
        """Both rows, locked in order. Raises _Stopped when this worker may not go on."""
        refinement = Refinement.lock(self._claim.refinement_id)
        if not refinement.is_open or refinement.worker != self._claim.worker or refinement.stop_requested_at:
            raise _Stopped
        return refinement, Agent.lock(refinement.agent_id)

    def _is_month_spent(self) -> bool:
        """Of its account, before a turn. The same look tells whether that turn may be asked (`_unless_stopped`)."""
        with reading():
            self._hold = self._read_hold()
        return is_spent(self._hold.max_monthly_cost, self._hold.month_cost)

    def _read_hold(self) -> _Hold:
        asked = {"id": self._claim.refinement_id, "month": month_start(now())}
        (row,) = read_rows(_HOLD, asked)
        return _Hold(*row)


AT_ONCE_ON_SQLITE, AT_ONCE_ON_SERVER = 2, 4
"""Refinements of one process that work while all others wait for their models, or for a turn. A server's database lets
them wait for its answers too, an SQLite one only for its writer. More of them take Python's lock from one another: with
16 the same work took a fifth more processor time. Four keep a core busy where an answer takes up to 0.8 ms."""

SEAL_BROKEN = "Sealed text does not open"
ROOM_SECONDS = 5.0
"""Between two looks whether a full disk has room again."""

UNFINISHED_REASONS = {
    LoopOutcome.TURNS: f"The model used all its turns without calling complete_refinement; {EARLIER_CHANGES_KEPT}.",
    LoopOutcome.TIME: f"The time limit was reached; {EARLIER_CHANGES_KEPT}.",
    LoopOutcome.TOKENS: f"The limit of model tokens was reached; {EARLIER_CHANGES_KEPT}.",
    LoopOutcome.COST: f"The cost limit was reached; {EARLIER_CHANGES_KEPT}.",
    LoopOutcome.MONTH: f"This month's model cost has reached the account's limit; {EARLIER_CHANGES_KEPT}.",
    LoopOutcome.SILENT: f"The model stopped calling functions without completing; {EARLIER_CHANGES_KEPT}.",
    LoopOutcome.REFUSED: f"Ended early: the model repeated a refused call; {EARLIER_CHANGES_KEPT}.",
}


_LIMIT, _COST = MONTH_COLUMNS
_ROW, _OWNER = cast(Table, Refinement.__table__).c, cast(Table, Account.__table__)
_HOLD = Prepared(
    select(_ROW.status, _ROW.worker, _ROW.stop_requested_at, _LIMIT, _COST.label("month_cost"))
    .join(_OWNER, _OWNER.c.id == _ROW.account_id)
    .where(_ROW.id == bindparam("id"))
)
