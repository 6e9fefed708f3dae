"""When an agent's next refinement starts by itself, and why, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from cronsim import CronSim
from sqlalchemy import select

from app.config import Settings
from app.extensions import db, now
from app.models import OPEN_STATES, Agent, Refinement
from app.models.account_use import find_spent, spent_words
from app.models.agent_settings import operator_settings
from app.values.plural import count_nouns

HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Due:
    """`at` is None when nothing starts by itself. `short` fits a table cell, `words` is a sentence."""

    at: datetime | None
    short: str
    words: str


class Outlook(NamedTuple):
    """When an agent's next refinement starts, and what that follows from."""

    running: Refinement | None
    due: Due
    is_changeable: bool


class Timetable:
    """The scheduled ticks of this installation, as seen at one moment: now, unless another one is given."""

    def __init__(self, settings: Settings | None = None, at: datetime | None = None) -> None:
        self._settings = settings or operator_settings()
        self._ticks: dict[datetime, datetime] = {}
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

    def outlooks(self, agents: Sequence[Agent]) -> dict[int, Outlook]:
        """The outlook of each agent, by its id, in two queries."""
        ids = [agent.id for agent in agents]
        open_conditions = (Refinement.agent_id.in_(ids), Refinement.status.in_(OPEN_STATES))
        running = {each.agent_id: each for each in db.session.scalars(select(Refinement).where(*open_conditions))}
        changeable = Agent.changeable_among(ids)
        found = {}
        for agent in agents:
            open_refinement, is_changeable = running.get(agent.id), agent.id in changeable
            due = self.due(agent, running=open_refinement, changeable=is_changeable)
            found[agent.id] = Outlook(open_refinement, due, is_changeable)
        return found

    def due(self, agent: Agent, *, running: Refinement | None = None, changeable: bool = True) -> Due:
        """The next automatic start of one agent, by whichever rule comes first."""
        obstacle = _find_obstacle(agent, running, changeable) or self._find_spent(agent.account_id)
        if obstacle:
            return obstacle
        tick = self.tick_from(max(self.at, agent.scheduled_from, agent.rested_from))
        weekly = Due(tick, self.day(tick), f"Next run {self.day(tick)} (weekly).")
        starts = (weekly, self._next_over_budget_start(agent), self._next_retry(agent))
        return min((due for due in starts if due is not None), key=lambda due: due.at or self.at)

    def _find_spent(self, account_id: int) -> Due | None:
        if account_id not in self._spent:
            spent = find_spent(account_id, self.at)
            self._spent[account_id] = spent and Due(None, "cost limit reached", spent_words(*spent, self.at))
        return self._spent[account_id]

    def _next_over_budget_start(self, agent: Agent) -> Due | None:
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

    def _next_retry(self, agent: Agent) -> Due | None:
        if agent.retry_at is None:
            return None
        return self._at_hourly_sweep(
            max(agent.retry_at, agent.scheduled_from, agent.rested_from), _after_failures(agent)
        )

    def _at_hourly_sweep(self, moment: datetime, why: str) -> Due:
        """By the sweep of the hour that follows."""
        if moment <= self.at:
            return Due(self.at + HOUR, "Within 1 hour", f"Next run within 1 hour ({why}).")
        return Due(moment, self.day(moment), f"Next run about {self.day(moment)} ({why}).")

    def day(self, moment: datetime) -> str:
        """`Monday 04:00 UTC` within the coming week, else with the date."""
        near = moment - self.at < timedelta(days=6, hours=12)
        return f"{moment:%A %H:%M} UTC" if near else f"{moment:%a} {moment.day} {moment:%b %H:%M} UTC"


def _after_failures(agent: Agent) -> str:
    count = agent.failed_attempts
    return "again after a failed attempt" if count == 1 else f"again after {count_nouns(count, 'failed attempt')}"


def _find_obstacle(agent: Agent, running: Refinement | None, changeable: bool) -> Due | None:
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
