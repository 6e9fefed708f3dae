"""The fleet of an account in a few figures: when agents are tried next, this week and last, and who needs care."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Integer, Select, bindparam, case, cast, func, select, union

from app.extensions import db
from app.models import Agent, Mode, Refinement, Status
from app.models.agent_settings import operator_settings
from app.prepared import Prepared
from app.refinement.due import DueMoments, Queries, due_again, due_by_schedule, due_hourly
from app.refinement.erosion import WINDOW, Erosion, erosion_of
from app.refinement.fleet import OVER_BUDGET
from app.refinement.timetable import HOUR, Timetable
from app.values.refinement_states import UNLOOKED_STATES

COUNTED = 1000
"""Of more agents than these it is not counted how many are due: nobody needs the number."""

MOMENT = timedelta(microseconds=1)
DAY = timedelta(days=1)
WEEK = timedelta(days=7)
LATER = timedelta(days=15)
"""Two weeks and a day: whoever was refined just now is taken by the tick after the next."""

WEIGHED = 10
"""Agents whose erosion is looked at closely: those that lost the largest share."""


@dataclass(frozen=True)
class WeekFigures:
    """Of the refinements of seven days that have ended: how many, how many as completed, mass before and after."""

    refinements: int
    completed: int
    mass_change: int
    cost_usd: Decimal

    @property
    def completed_share(self) -> Decimal | None:
        return Decimal(self.completed) / self.refinements if self.refinements else None

    def as_json(self) -> dict[str, Any]:
        figures = {"refinements": self.refinements, "completed": self.completed, "mass_change": self.mass_change}
        return figures | {"cost_usd": float(self.cost_usd)}


@dataclass(frozen=True)
class Trend:
    """The last seven days, and the seven before."""

    this_week: WeekFigures
    last_week: WeekFigures

    def as_json(self) -> dict[str, Any]:
        return {"this_week": self.this_week.as_json(), "last_week": self.last_week.as_json()}


def trend_of(account_id: int, at: datetime) -> Trend:
    is_new = Refinement.requested_at >= at - WEEK
    columns = [column for week in (is_new, ~is_new) for column in _week_columns(week)]
    ended = (Refinement.requested_at >= at - 2 * WEEK, Refinement.ended_at.is_not(None))
    row = db.session.execute(select(*columns).where(Refinement.account_id == account_id, *ended)).one()
    return Trend(_read_week(row[:4]), _read_week(row[4:]))


def count_next_attempts(account_id: int, timetable: Timetable) -> list[tuple[str, int]]:
    """How many agents are refined by themselves how soon, the soonest first: none twice, none that is not at all.

    A number above `COUNTED` stands for many; what comes after it is not counted.
    """
    now, midnight = timetable.at, timetable.at.replace(hour=0, minute=0, second=0, microsecond=0)
    hour, today, tomorrow = now + HOUR, midnight + DAY - MOMENT, midnight + 2 * DAY - MOMENT
    ends = {"within the hour": hour, "today": max(today, hour), "tomorrow": tomorrow, "later": now + LATER}
    before = 0
    found = []
    for words, end in ends.items():
        count = _count_due(account_id, end, timetable.last_tick_until(end))
        if count > before:
            found.append((words, count - before))
        before = max(before, count)
        if before > COUNTED:
            break
    return found


def count_at_tick(account_id: int, at: datetime) -> int:
    """How many agents the scheduled tick starts at a moment, as their rows are now. Above `COUNTED`: many."""
    values = {"account": account_id} | DueMoments.of(at).named("tick")
    ((count,),) = _at_tick().fetch(db.session.connection(), values)
    return int(count)


def over_budget_twice(account_id: int, limit: int) -> Sequence[tuple[int, str]]:
    """Ids and names of agents over their budget that were looked at twice and were over it each time after."""
    previous = (
        select(Refinement.mass_after)
        .where(Refinement.agent_id == Agent.id, Refinement.mode == Mode.FULL, Refinement.ended_at.is_not(None))
        .where(Refinement.status.not_in(UNLOOKED_STATES))
        .order_by(Refinement.requested_at.desc())
        .offset(1)
        .limit(1)
        .scalar_subquery()
    )
    both = (Agent.last_look_mass > Agent.core_token_budget, previous > Agent.core_token_budget)
    query = select(Agent.id, Agent.name).where(Agent.account_id == account_id, OVER_BUDGET, *both)
    return db.session.execute(query.order_by(Agent.id).limit(limit)).tuples().all()


def eroding_agents(account_id: int, at: datetime) -> list[tuple[Agent, Erosion]]:
    """Agents that lost at least half of what the guard against erosion lets them lose, in its 30 days, the most first.

    Where the guard is off, half of what it allows unless set otherwise.
    """
    floor = operator_settings().erosion_floor
    limit = (1 + (Decimal("0.5") if floor is None else floor)) / 2
    candidates = db.session.scalars(select(Agent).where(Agent.id.in_(_shrunk_agents(account_id, at, 1 - limit))))
    weighed = [(agent, erosion_of(agent, at=at)) for agent in candidates]
    return sorted((each for each in weighed if each[1].kept <= limit), key=lambda each: (each[1].kept, each[0].id))


def _shrunk_agents(account_id: int, at: datetime, share: Decimal) -> Sequence[int]:
    """Those that standing refinements cut most, as a share of the smallest mass that one of them began with.

    The guard's own base is never smaller, so nobody is missed whose erosion reaches the share.
    """
    cut = func.sum(Refinement.mass_before - Refinement.kept_mass)
    least = func.min(Refinement.mass_before)
    standing = (
        Refinement.mode == Mode.FULL,
        Refinement.status != Status.ROLLED_BACK,
        Refinement.undone_by.is_(None),
        Refinement.snapshot_entry_id.is_not(None),
        Refinement.started_at >= at - WINDOW,
        Refinement.requested_at >= at - WINDOW - timedelta(days=1),
        Refinement.mass_before > 0,
    )
    query = select(Refinement.agent_id).where(Refinement.account_id == account_id, *standing)
    enough = cut * 10_000 >= least * int(share * 10_000)
    ranked = query.group_by(Refinement.agent_id).having(enough).order_by((cut * 10_000 / least).desc())
    return db.session.scalars(ranked.limit(WEIGHED)).all()


def _week_columns(week: ColumnElement[bool]) -> Iterable[ColumnElement[Any]]:
    full_dedup = case((Refinement.mode == Mode.FULL, Refinement.deduplicated_tokens), else_=0)
    removed = func.coalesce(Refinement.mass_before - Refinement.mass_after, 0) + full_dedup
    stands = Refinement.undone_by.is_(None)
    yield func.count().filter(week)
    yield func.count().filter(week, Refinement.status == Status.COMPLETED)
    yield cast(func.coalesce(func.sum(removed).filter(week, stands), 0), Integer)
    yield func.sum(Refinement.cost_usd).filter(week)


def _read_week(row: Sequence[Any]) -> WeekFigures:
    refinements, completed, removed, cost = row
    return WeekFigures(refinements, completed, -removed, cost or Decimal(0))


def _count_due(account_id: int, at: datetime, tick: datetime | None) -> int:
    """How many agents are due until a moment, with the last tick until then."""
    values = {"account": account_id} | DueMoments.of(at).named("end")
    if tick is not None:
        values |= DueMoments.of(tick).named("tick")
    ((count,),) = _until(has_tick=tick is not None).fetch(db.session.connection(), values)
    return int(count)


def _counting(*queries: Select[tuple[int]]) -> Prepared:
    """Of the account, each agent once; of each query a little more than are counted."""
    mine = (
        query.where(Agent.account_id == bindparam("account")).order_by(None).limit(COUNTED + 1).subquery()
        for query in queries
    )
    once = union(*(select(found.c.id) for found in mine)).subquery()
    return Prepared(select(func.count()).select_from(once))


@cache
def _until(*, has_tick: bool) -> Prepared:
    end = DueMoments.parameters("end")
    return _counting(*due_hourly(end), *due_again(end), *(_of_tick() if has_tick else ()))


@cache
def _at_tick() -> Prepared:
    return _counting(*_of_tick())


def _of_tick() -> Queries:
    return due_by_schedule(DueMoments.parameters("tick"))
