"""When an agent's next refinement starts by itself, and why, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import NamedTuple

from cronsim import CronSim
from sqlalchemy import and_, select

from app.config import Settings
from app.extensions import now, read_rows
from app.models import OPEN_STATES, Agent, Refinement
from app.models.account_use import find_spent, spent_words
from app.models.agent import is_changeable
from app.models.agent_settings import operator_settings
from app.models.agent_standing import AgentStanding
from app.prepared import Prepared, one_of, one_of_these, spread
from app.values.plural import count_nouns
from app.values.refinement_states import Status

HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Due:
    """`at` is None when nothing starts by itself. `short` fits a table cell, `words` is a sentence."""

    at: datetime | None
    short: str
    words: str


class OpenRefinement(NamedTuple):
    """The one refinement of an agent that waits or runs."""

    id: str
    status: Status


class Outlook(NamedTuple):
    """When an agent's next refinement starts, and what that follows from."""

    running: OpenRefinement | None
    due: Due
    is_changeable: bool


class Timetable:
    """The scheduled ticks of this installation, as seen at one moment: now, unless another one is given."""

    def __init__(self, settings: Settings | None = None, at: datetime | None = None) -> None:
        self._settings = settings or operator_settings()
        self._ticks: dict[datetime, datetime] = {}
        self._days: dict[datetime, str] = {}
        self._spent: dict[int, Due | None] = {}
        self.at = at or now()

    @property
    def next_tick(self) -> datetime:
        return self.tick_from(self.at)

    def tick_from(self, moment: datetime) -> datetime:
        """The first tick at or after a moment."""
        start = moment.astimezone(UTC).replace(second=0, microsecond=0) - timedelta(seconds=1)
        if moment > start + timedelta(seconds=1):
            start += timedelta(minutes=1)
        if start not in self._ticks:
            self._ticks[start] = next(CronSim(self._settings.schedule, start))
        return self._ticks[start]

    def last_tick_until(self, moment: datetime) -> datetime | None:
        """The last tick from now until a moment; None where there is none."""
        if self.next_tick > moment:
            return None
        after = moment.astimezone(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
        tick: datetime = next(CronSim(self._settings.schedule, after, reverse=True))
        return tick

    def outlooks(self, agents: Sequence[AgentStanding]) -> dict[int, Outlook]:
        """The outlook of each agent, by its id, in one query."""
        found = {}
        by_id = {agent.id: agent for agent in agents}
        if not by_id:
            return {}
        count, asked = spread(list(by_id))
        for agent_id, changeable, *opened in read_rows(_outlook_query(count), asked):
            running = OpenRefinement(*opened) if opened[0] is not None else None
            due = self.due(by_id[agent_id], running=running, changeable=changeable)
            found[agent_id] = Outlook(running, due, changeable)
        return found

    def due(self, agent: AgentStanding, *, running: OpenRefinement | None = None, changeable: bool = True) -> Due:
        """The next automatic start of one agent, by whichever rule comes first."""
        obstacle = _find_obstacle(agent, running, changeable) or self._find_spent(agent.account_id)
        if obstacle:
            return obstacle
        tick = self.tick_from(max(self.at, agent.scheduled_from, agent.rested_from))
        day = self.day(tick)
        starts = [
            Due(tick, day, f"Next run {day} (weekly)."),
            self._next_over_budget_start(agent),
            self._next_retry(agent),
        ]
        known = [due for due in starts if due is not None]
        return known[0] if len(known) == 1 else min(known, key=lambda due: due.at or self.at)

    def _find_spent(self, account_id: int) -> Due | None:
        if account_id not in self._spent:
            spent = find_spent(account_id, self.at)
            self._spent[account_id] = spent and Due(None, "cost limit reached", spent_words(*spent, self.at))
        return self._spent[account_id]

    def _next_over_budget_start(self, agent: AgentStanding) -> Due | None:
        if agent.too_large_from is None:
            return None
        over = f"{agent.core_token_usage - agent.core_token_budget:,} tokens over budget"
        wait = max(
            (agent.too_large_from, "a week after it was last looked at"),
            (agent.rested_from, "24 hours after its last attempt"),
            (agent.retry_from, _after_failures(agent)),
            key=lambda reason: reason[0],
        )
        return self._at_hourly_sweep(wait[0], over if wait[0] <= self.at else f"{over}, {wait[1]}")

    def _next_retry(self, agent: AgentStanding) -> Due | None:
        if agent.retry_at is None:
            return None
        return self._at_hourly_sweep(
            max(agent.retry_at, agent.scheduled_from, agent.rested_from), _after_failures(agent)
        )

    def _at_hourly_sweep(self, moment: datetime, why: str) -> Due:
        """By the sweep of the hour that follows."""
        if moment <= self.at:
            return Due(self.at + HOUR, "Within 1 hour", f"Next run within 1 hour ({why}).")
        day = self.day(moment)
        return Due(moment, day, f"Next run about {day} ({why}).")

    def day(self, moment: datetime) -> str:
        """`Monday 04:00 UTC` within the coming week, else with the date."""
        if moment not in self._days:
            near = moment - self.at < timedelta(days=6, hours=12)
            form = "%A %H:%M" if near else f"%a {moment.day} %b %H:%M"
            self._days[moment] = f"{moment:{form}} UTC"
        return self._days[moment]


def _after_failures(agent: AgentStanding) -> str:
    count = agent.failed_attempts
    return "again after a failed attempt" if count == 1 else f"again after {count_nouns(count, 'failed attempt')}"


@cache
def _outlook_query(count: int) -> Prepared:
    """What it answers of an agent without an open refinement ends in nothing."""
    is_open = and_(Refinement.agent_id == Agent.id, one_of_these(Refinement.status, OPEN_STATES))
    query = select(Agent.id, is_changeable(), Refinement.id, Refinement.status).outerjoin(Refinement, is_open)
    return Prepared(query.where(one_of(Agent.id, count)))


def _find_obstacle(agent: AgentStanding, running: OpenRefinement | None, changeable: bool) -> Due | None:
    if running is not None:
        return Due(None, "now", "A refinement is open now.")
    if agent.forgotten_at is not None:
        return Due(None, "forgotten", f"Forgotten on {agent.forgotten_at:%Y-%m-%d}: nothing starts any more.")
    if not agent.active:
        return Due(None, "not active", "Not active: nothing starts, by itself or by hand.")
    if agent.paused:
        return Due(None, "paused", "Paused: nothing starts by itself until it is resumed. You can still refine it.")
    if agent.core_count == 0:
        return Due(None, "no memories", "Nothing to refine yet: it has no core memories.")
    if not changeable:
        return Due(None, "nothing to change", "Nothing to refine: all its memories are constitutional or immutable.")
    return None
