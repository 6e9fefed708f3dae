"""The account in figures, for the overview: counted anew when something happened, not for each who looks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Generic, TypeVar

from flask import current_app
from sqlalchemy import bindparam, func, select

from app.extensions import now, read_rows
from app.models import OPEN_STATES, Agent, Refinement
from app.models.agent_settings import operator_settings
from app.prepared import Prepared, one_of_these
from app.refinement.fleet import IS_KEPT, OVER_BUDGET
from app.refinement.fleet_figures import (
    COUNTED,
    Trend,
    count_at_tick,
    count_next_attempts,
    eroding_agents,
    over_budget_twice,
    trend_of,
)
from app.refinement.timetable import Timetable
from app.values.plural import count_nouns

TWICE_LIMIT = 100
STARTS_KEPT = timedelta(seconds=10)
TREND_KEPT = timedelta(minutes=1)
TREND_KEPT_AT_LEAST = timedelta(seconds=2)
MOST_ACCOUNTS = 1000

T = TypeVar("T")


class KeptByAccount(Generic[T]):
    """What was counted for each account: kept for `lasts` while nothing happens there, else for `at_least`."""

    def __init__(self, count: Callable[[int], T], lasts: timedelta, at_least: timedelta) -> None:
        self._count, self._lasts, self._at_least = count, lasts, at_least
        self._kept: dict[int, tuple[datetime, int, T]] = {}

    def get(self, account_id: int, last_event: int) -> T:
        """`last_event` was read before, so that what is counted now includes it."""
        kept, moment = self._kept.get(account_id), now()
        if kept is not None:
            counted_at, event, counted = kept
            lasts = self._lasts if event == last_event else self._at_least
            if timedelta() <= moment - counted_at < lasts:
                return counted
        counted = self._count(account_id)
        if len(self._kept) >= MOST_ACCOUNTS:
            self._kept.clear()
        self._kept[account_id] = (moment, last_event, counted)
        return counted


@dataclass(frozen=True)
class NextStarts:
    """How many agents the next scheduled tick takes, and how soon all are tried. What is above `COUNTED` is many."""

    next_tick: datetime
    due: int
    attempts: Sequence[tuple[str, int]]

    @classmethod
    def count(cls, account_id: int) -> NextStarts:
        timetable = Timetable()
        due = count_at_tick(account_id, timetable.next_tick)
        return cls(timetable.next_tick, due, count_next_attempts(account_id, timetable))


class AccountFigures:
    """Of the whole account, as of an event that was read before."""

    def __init__(self, account_id: int, last_event: int) -> None:
        (counted,) = read_rows(_counts_query(), {"account_id": account_id})
        self.agents, self.over_budget, self.paused, self.core_tokens, self.stopped, self.memories, self.running = map(
            int, counted
        )
        starts = _kept("next_starts", NextStarts.count, STARTS_KEPT, timedelta()).get(account_id, last_event)
        self.next_tick, self.due = starts.next_tick, starts.due
        self.next_attempts = [*starts.attempts, *([("paused", self.paused)] if self.paused else [])]

    @property
    def due_words(self) -> str:
        if self.due > COUNTED:
            return f"over {COUNTED:,} agents due"
        return f"{count_nouns(self.due, 'agent')} due" if self.due else "no agents due"

    @property
    def attempts_words(self) -> str:
        """`12 within the hour, 4 tomorrow, 1 paused`."""
        counts = (
            f"{'over ' if count > COUNTED else ''}{min(count, COUNTED):,} {when}" for when, count in self.next_attempts
        )
        return ", ".join(counts) or "none"


@cache
def _counts_query() -> Prepared:
    over_budget, paused = func.count().filter(OVER_BUDGET), func.count().filter(Agent.paused, IS_KEPT)
    tokens, stopped = func.coalesce(func.sum(Agent.core_token_usage), 0), func.count(Agent.stopped_at)
    memories = func.coalesce(func.sum(Agent.core_count), 0)
    are_open = (Refinement.account_id == bindparam("account_id"), one_of_these(Refinement.status, OPEN_STATES))
    running = select(func.count()).where(*are_open).scalar_subquery()
    columns = (func.count(), over_budget, paused, tokens, stopped, memories, running)
    return Prepared(select(*columns).where(Agent.account_id == bindparam("account_id")))


@dataclass(frozen=True)
class ErodingAgent:
    agent_id: int
    name: str
    kept: Decimal


class FleetTrend:
    """This week against last, and who stays over budget or erodes. It costs more, and changes slowly."""

    def __init__(self, account_id: int) -> None:
        moment = now()
        self.weeks: Trend = trend_of(account_id, moment)
        self.over_budget_twice: Sequence[str] = [name for _, name in over_budget_twice(account_id, TWICE_LIMIT)]
        self.eroding = [ErodingAgent(a.id, a.name, erosion.kept) for a, erosion in eroding_agents(account_id, moment)]
        self.erosion_floor: Decimal | None = operator_settings().erosion_floor

    @classmethod
    def of(cls, account_id: int, last_event: int) -> FleetTrend:
        return _kept("fleet_trends", cls, TREND_KEPT, TREND_KEPT_AT_LEAST).get(account_id, last_event)


def _kept(name: str, count: Callable[[int], T], lasts: timedelta, at_least: timedelta) -> KeptByAccount[T]:
    kept: KeptByAccount[T] = current_app.extensions.setdefault(name, KeptByAccount(count, lasts, at_least))
    return kept
