"""Which agents are due: the rule of `schedule` as the database reads it, along partial indexes.

Each query has an index of its own, so that the first of a hundred thousand are found without a look at the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, TextClause, and_, bindparam, exists, func, or_, select, text

from app.extensions import db
from app.models.account_use import month_start, spent_since
from app.models.agent import Agent, is_changeable
from app.models.base import UtcDateTime
from app.models.refinement import Refinement
from app.models.schedule import ATTEMPT_PAUSE, GROWN, LOOK_PAUSE, OVER_BUDGET, STARTABLE, refinement_interval
from app.prepared import one_of_these
from app.values.refinement_states import OPEN_STATES

Queries = tuple[Select[tuple[int]], ...]
"""Ids of agents, to be asked for one after another: a part of one index each, so "never" and "long ago" are two."""


class DueMoments(NamedTuple):
    """What has to have come by a moment, `now`: values, or parameters of a statement that is compiled once.

    `rested`: no attempt and no NO since. `refined` and `looked`: neither since. `month`: when its month began.
    """

    now: Any
    rested: Any
    refined: Any
    looked: Any
    month: Any

    @classmethod
    def of(cls, at: datetime) -> DueMoments:
        return cls(at, at - ATTEMPT_PAUSE, at - refinement_interval(), at - LOOK_PAUSE, month_start(at))

    @classmethod
    def parameters(cls, name: str) -> DueMoments:
        return cls(*(bindparam(f"{name}_{each}", type_=UtcDateTime) for each in cls._fields))

    def named(self, name: str) -> dict[str, datetime]:
        """The values for `parameters` of that name."""
        return {f"{name}_{each}": moment for each, moment in zip(self._fields, self, strict=True)}


def due_by_schedule(at: DueMoments) -> Queries:
    """Those that the scheduled tick starts: never refined, then those that waited longest."""
    last = Agent.last_refinement_at
    return tuple(_startable_agents(at, last, wanted) for wanted in (last.is_(None), last <= at.refined))


def due_hourly(at: DueMoments) -> Queries:
    """Those that the hourly sweep starts for their size: not looked at yet, not for a week, grown since."""
    last = Agent.last_look_at
    too_large = and_(text(OVER_BUDGET), or_(Agent.retry_at.is_(None), Agent.retry_at <= at.now))
    unseen = (_startable_agents(at, last, too_large, wanted) for wanted in (last.is_(None), last <= at.looked))
    return *unseen, _startable_agents(at, Agent.last_attempt_at, too_large, text(GROWN))


def due_again(at: DueMoments) -> Queries:
    """Those that it starts because the schedule still wants them, some days after a failure."""
    wanted = (Agent.retry_at.is_not(None), Agent.retry_at <= at.now, _has_waited(at))
    return (_startable_agents(at, Agent.retry_at, *wanted),)


@cache
def ready_queries(rule: Callable[[DueMoments], Queries]) -> Queries:
    """Those of one of the three rules above, put together once, for `ask_due`."""
    others = Agent.id.not_in(bindparam("but", expanding=True))
    return tuple(query.where(others).limit(bindparam("most")) for query in rule(DueMoments.parameters("due")))


def ask_due(query: Select[tuple[int]], at: datetime, *, most: int, but: Sequence[int] = ()) -> Sequence[int]:
    """The first that one of `ready_queries` finds at a moment, without those of some ids."""
    values = DueMoments.of(at).named("due")
    return db.session.scalars(query, {**values, "but": list(but), "most": most}).all()


def count_due(account_id: int, moments: Sequence[datetime]) -> list[int]:
    """How many agents of an account the scheduled tick would start at each of these moments, as their rows are now."""
    wanted = (
        func.count().filter(_has_waited(at), *_has_rested(at), ~_is_spent(at)) for at in map(DueMoments.of, moments)
    )
    counted = select(*wanted).select_from(Agent).where(Agent.account_id == account_id, text(STARTABLE), *_is_free())
    return [int(count) for count in db.session.execute(counted).one()] if moments else []


def _startable_agents(at: DueMoments, order: Any, *wanted: ColumnElement[bool] | TextClause) -> Select[tuple[int]]:
    """Active, not paused, rested, with something to change and no open refinement."""
    found = select(Agent.id).where(text(STARTABLE), *wanted, *_has_rested(at), *_is_free(), ~_is_spent(at))
    return found.order_by(order, Agent.id)


def _has_waited(at: DueMoments) -> ColumnElement[bool]:
    """Never refined, or not for the interval."""
    return or_(Agent.last_refinement_at.is_(None), Agent.last_refinement_at <= at.refined)


def _has_rested(at: DueMoments) -> list[ColumnElement[bool]]:
    """A day since the last attempt, and since a NO."""
    paused_by = (Agent.last_attempt_at, Agent.declined_at)
    return [or_(moment.is_(None), moment <= at.rested) for moment in paused_by]


def _is_spent(at: DueMoments) -> ColumnElement[bool]:
    """Its account's model cost has reached the limit of the month."""
    return Agent.account_id.in_(spent_since(at.month))


def _is_free() -> tuple[ColumnElement[bool], ...]:
    """It has something to change, and no open refinement."""
    is_open = one_of_these(Refinement.status, OPEN_STATES)
    return ~exists().where(Refinement.agent_id == Agent.id, is_open), is_changeable()
