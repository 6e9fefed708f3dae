"""When agents' next refinements start, as an expression of the database: `Timetable.due` of whole accounts at once.

Lists are ordered and filtered by it. Of one agent in hand, the timetable tells it with its reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, case, exists, func, literal, or_

from app.extensions import db, is_sqlite
from app.models.account_use import spent_accounts
from app.models.agent import Agent, is_changeable
from app.models.base import UtcDateTime
from app.models.refinement import Refinement
from app.models.schedule import ATTEMPT_PAUSE, LOOK_PAUSE, refinement_interval
from app.refinement.timetable import HOUR, Timetable
from app.values.refinement_states import OPEN_STATES

NEVER = datetime(2999, 1, 1, tzinfo=UTC)
"""Of an agent that nothing starts by itself."""

LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)

MOST_TICKS = 64
"""Of a schedule that ticks more often until all have had their turn, so many are looked at, evenly spread."""


def next_start(timetable: Timetable) -> ColumnElement[datetime]:
    """The next automatic start of each agent: the timetable's moment while one is open, NEVER where none comes."""
    waits = or_(Agent.forgotten_at.is_not(None), ~Agent.active, Agent.paused, Agent.core_count == 0)
    is_spent = Agent.account_id.in_(spent_accounts(timetable.at))
    starts = (_next_tick(timetable), _next_over_budget(timetable.at), _next_retry(timetable.at))
    return case(
        (has_open_refinement(), _moment(timetable.at)),
        (or_(waits, is_spent), _moment(NEVER)),
        (~is_changeable(), _moment(NEVER)),
        else_=_first(starts),
    )


def has_open_refinement() -> ColumnElement[bool]:
    """Whether the agent of a row is being refined, or about to be."""
    return exists().where(Refinement.agent_id == Agent.id, Refinement.status.in_(OPEN_STATES))


def _next_tick(timetable: Timetable) -> ColumnElement[datetime]:
    """By the schedule: the first tick at which the agent is wanted, and has rested."""
    pauses = ((Agent.last_refinement_at, refinement_interval()), *((each, ATTEMPT_PAUSE) for each in _ATTEMPTS))
    *ticks, last = _ticks(timetable)

    def is_ready(tick: datetime) -> ColumnElement[bool]:
        return and_(*(or_(since.is_(None), since <= tick - pause) for since, pause in pauses))

    return case(*((is_ready(tick), _moment(tick)) for tick in ticks), else_=_moment(last)) if ticks else _moment(last)


def _ticks(timetable: Timetable) -> list[datetime]:
    """The coming ones, up to the first at which every agent is wanted."""
    horizon = timetable.at + max(refinement_interval(), ATTEMPT_PAUSE)
    step = timedelta(minutes=1)
    ticks = [timetable.next_tick]
    while ticks[-1] < horizon:
        if len(ticks) == MOST_TICKS and step < HOUR:
            step, ticks = (horizon - timetable.at) / MOST_TICKS, ticks[:1]
        ticks.append(timetable.tick_from(ticks[-1] + step))
    return ticks


def _next_over_budget(at: datetime) -> ColumnElement[datetime]:
    """For its size, by the hourly sweep."""
    grown = (Agent.core_token_usage - Agent.last_look_mass) * 10 >= Agent.core_token_budget
    looked = case(
        (or_(Agent.last_look_at.is_(None), grown), _moment(LONG_AGO)), else_=_after(Agent.last_look_at, LOOK_PAUSE)
    )
    wait = _last((looked, *_rested(), _after(Agent.retry_at, timedelta())))
    return case((Agent.core_token_usage > Agent.core_token_budget, _at_hourly_sweep(wait, at)), else_=_moment(NEVER))


def _next_retry(at: datetime) -> ColumnElement[datetime]:
    """After a failure, by the hourly sweep."""
    wanted = _after(Agent.last_refinement_at, refinement_interval())
    wait = _last((_after(Agent.retry_at, timedelta()), wanted, *_rested()))
    return case((Agent.retry_at.is_not(None), _at_hourly_sweep(wait, at)), else_=_moment(NEVER))


def _at_hourly_sweep(wait: ColumnElement[datetime], at: datetime) -> ColumnElement[datetime]:
    return case((wait <= _moment(at), _moment(at + HOUR)), else_=wait)


_ATTEMPTS = (Agent.last_attempt_at, Agent.declined_at)


def _rested() -> tuple[ColumnElement[datetime], ...]:
    return tuple(_after(each, ATTEMPT_PAUSE) for each in _ATTEMPTS)


def _moment(at: datetime) -> ColumnElement[datetime]:
    return literal(at, UtcDateTime)


def _after(column: Any, pause: timedelta) -> ColumnElement[datetime]:
    """So long after a moment; long ago where there is none."""
    if is_sqlite(db.session()):
        shifted = func.strftime("%Y-%m-%d %H:%M:%f000", column, f"+{pause.total_seconds():.0f} seconds")
    else:
        shifted = column + literal(pause)
    return func.coalesce(shifted, _moment(LONG_AGO), type_=UtcDateTime)


def _first(moments: Iterable[ColumnElement[datetime]]) -> ColumnElement[datetime]:
    least = func.min if is_sqlite(db.session()) else func.least
    return least(*moments, type_=UtcDateTime)


def _last(moments: Iterable[ColumnElement[datetime]]) -> ColumnElement[datetime]:
    most = func.max if is_sqlite(db.session()) else func.greatest
    return most(*moments, type_=UtcDateTime)
