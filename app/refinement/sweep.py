"""The sweeps: start what is due, make up a tick that was missed, and close what a dead worker left open.

Beat only says "look now"; it may say so twice, late or not at all. Each start and each end is a transaction of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import structlog
from cronsim import CronSim
from flask import Flask, current_app
from sqlalchemy import ColumnElement, Select, and_, or_, select
from sqlalchemy.exc import SQLAlchemyError

from app.errors import DiskFull, NotFound, Refused, WhetstoneError
from app.extensions import db, end_reading, now, reading, writing
from app.history.reversing import end_unread
from app.models import BEAT, Agent, InstallationMark, Mode, Refinement, Status, Trigger
from app.models.account_use import full_accounts, spent_accounts
from app.models.agent_settings import operator_settings
from app.refinement.due import DueMoments, Queries, ask_due, due_again, due_by_schedule, due_hourly, ready_queries
from app.refinement.heartbeat import stale_before
from app.refinement.start import start_refinement
from app.vocabulary.statuses import EARLIER_CHANGES_KEPT

BATCH = 100
CLOSE_SECONDS = 15.0
"""A heartbeat comes every 10 seconds and counts as stopped after 45: closed within 60 of the last one."""

LOST_AFTER = timedelta(seconds=60)
LAST_TICK = "last_tick"
"""The mark that remembers the last occurrence of the schedule that was handled."""

STALLED = "Its worker stopped answering"
DISK_FULL = "The disk of the database was full, so this refinement could not go on"
CLOSED = "The worker was shut down before it was done"

Started = Callable[[str], object]
"""What is told of each started refinement, at once after its commit: usually to put its id on the queue."""

log = structlog.get_logger(__name__)


def sweep_weekly(at: datetime, *, started: Started = lambda _: None) -> list[str]:
    """The scheduled tick: start every agent that it has waited for. Returns the ids of the refinements."""
    tick = _latest_tick(at)
    ids = _start_all(due_by_schedule, at, Trigger.WEEKLY, started)
    _mark_handled(tick)
    return ids


def sweep_over_budget(at: datetime, *, started: Started = lambda _: None) -> list[str]:
    """The hourly sweep: start those over their budget, and try again what failed. Returns ids of refinements."""
    too_large = _start_all(due_hourly, at, Trigger.OVER_BUDGET, started)
    return too_large + _start_all(due_again, at, Trigger.WEEKLY, started)


def make_up_missed_tick(at: datetime, *, started: Started = lambda _: None) -> list[str]:
    """Sweep when the schedule's latest occurrence passed unhandled. A new installation waits for its first one."""
    tick = _latest_tick(at)
    with reading():
        known = InstallationMark.read(LAST_TICK)
    if known is None:
        _mark_handled(tick)
        return []
    return sweep_weekly(at, started=started) if datetime.fromisoformat(known) < tick else []


def close_stalled() -> list[str]:
    """End, as interrupted, the refinements whose heartbeat has stopped by the database's clock. Returns their ids."""
    with reading() as session:
        stalled = session.scalars(select(Refinement.id).where(_is_stalled())).all()
    return [refinement_id for refinement_id in stalled if _close_stalled(refinement_id)]


def _close_stalled(refinement_id: str) -> bool:
    """One that could not be ended before, because the disk was full, has lost its worker to that."""
    without_room: set[str] = current_app.extensions.setdefault("ends_without_room", set())
    try:
        closed = _close_refinement(
            refinement_id, _is_stalled(), DISK_FULL if refinement_id in without_room else STALLED
        )
    except DiskFull:
        without_room.add(refinement_id)
        log.error("no room on the disk to end a refinement", refinement=refinement_id)  # noqa: TRY400
        return False
    without_room.discard(refinement_id)
    return closed


def keep_closing(app: Flask, *, interval: float = CLOSE_SECONDS) -> threading.Event:
    """Look for stalled refinements now and every so often, in a thread of its own, until the event is set.

    In the web process and in each worker, from its first second: where a worker is killed again and again, neither
    beat's minute nor any worker's queue gets a turn.
    """
    stop = threading.Event()
    threading.Thread(target=_close_again_and_again, args=(app, stop, interval), name="closing", daemon=True).start()
    return stop


def _close_again_and_again(app: Flask, stop: threading.Event, interval: float) -> None:
    while not stop.is_set():
        with app.app_context():
            try:
                if closed := close_stalled():
                    log.info("stalled refinements closed", refinements=closed)
            except (SQLAlchemyError, WhetstoneError) as error:
                log.warning("stalled refinements not looked for", error=type(error).__name__)
        stop.wait(interval)


def interrupt_refinement(refinement_id: str, worker: str) -> bool:
    """End a refinement that this worker still holds, because it has to leave. Returns whether it was still open."""
    return _close_refinement(refinement_id, Refinement.worker == worker, CLOSED)


def find_lost_starts() -> list[str]:
    """Ids of refinements that have waited for a worker for more than a minute, the oldest first."""
    with reading() as session:
        return list(session.scalars(lost_starts().order_by(Refinement.requested_at).limit(1000)))


def lost_starts() -> Select[tuple[str]]:
    """Ids of those that have waited for more than a minute: for a worker, and for no limit of their account."""
    at = now()
    waits = (Refinement.status == Status.QUEUED, Refinement.requested_at < at - LOST_AFTER)
    is_held = (
        Refinement.account_id.in_(full_accounts()),
        and_(Refinement.mode == Mode.FULL, Refinement.account_id.in_(spent_accounts(at))),
    )
    return select(Refinement.id).where(*waits, ~or_(*is_held))


def _latest_tick(at: datetime) -> datetime:
    """The last occurrence of the schedule up to and including the minute of `at`."""
    minute = at.astimezone(UTC).replace(second=0, microsecond=0)
    tick: datetime = next(CronSim(operator_settings().schedule, minute + timedelta(minutes=1), reverse=True))
    return tick


def _mark_handled(tick: datetime) -> None:
    with writing():
        InstallationMark.write(LAST_TICK, tick.isoformat())


def _start_all(rule: Callable[[DueMoments], Queries], at: datetime, trigger: Trigger, started: Started) -> list[str]:
    found = (_start_each(query, at, trigger, started) for query in ready_queries(rule))
    return [refinement_id for each in found for refinement_id in each]


def _start_each(due: Select[tuple[int]], at: datetime, trigger: Trigger, started: Started) -> list[str]:
    """In batches: what was started is no longer due, what was refused is not asked twice."""
    ids: list[str] = []
    refused: list[int] = []
    while batch := ask_due(due, at, most=BATCH, but=refused):
        end_reading()
        for agent_id in batch:
            refinement_id = _try_start(agent_id, trigger)
            if refinement_id is None:
                refused.append(agent_id)
            else:
                ids.append(refinement_id)
                started(refinement_id)
    end_reading()
    return ids


def _try_start(agent_id: int, trigger: Trigger) -> str | None:
    try:
        return start_refinement(agent_id, trigger=trigger, by=BEAT).id
    except (Refused, NotFound) as error:
        log.info("not started", agent_id=agent_id, trigger=str(trigger), reason=error.code)
        return None


def _is_stalled() -> ColumnElement[bool]:
    held = Refinement.status.in_((Status.ASKING, Status.RUNNING))
    return held & or_(Refinement.heartbeat_at.is_(None), Refinement.heartbeat_at < stale_before())


def _close_refinement(refinement_id: str, still: ColumnElement[bool], failure: str) -> bool:
    """End it if, under its lock, it is open and `still` holds: its worker may have come back meanwhile."""
    with writing():
        refinement = Refinement.lock(refinement_id)
        holds = db.session.scalar(select(Refinement.id).where(Refinement.id == refinement_id, still))
        if holds is None or not refinement.is_open:
            return False
        reason = f"{failure}; {EARLIER_CHANGES_KEPT}."
        end_unread(refinement, Agent.lock(refinement.agent_id), Status.INTERRUPTED, reason, failure=failure)
        return True
