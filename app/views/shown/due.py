"""When an agent's next refinement starts by itself, and why, in words."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cronsim import CronSim

from app.config import Settings
from app.models import Agent, Refinement
from app.models.agent import ATTEMPT_PAUSE, TICK_SLACK


@dataclass(frozen=True)
class Due:
    """`at` is None when nothing starts by itself. `short` fits a table cell, `words` is a sentence."""

    at: datetime | None
    short: str
    words: str


class Timetable:
    """The scheduled ticks of this installation, as seen at one moment."""

    def __init__(self, settings: Settings, at: datetime) -> None:
        self._settings = settings
        self._ticks: dict[datetime, datetime] = {}
        self.at = at

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

    def due(self, agent: Agent, *, running: Refinement | None = None, changeable: bool = True) -> Due:
        """The next automatic start of one agent."""
        obstacle = _obstacle(agent, running, changeable)
        if obstacle:
            return obstacle
        return self._over_budget(agent) if agent.is_over_budget else self._scheduled(agent)

    def _over_budget(self, agent: Agent) -> Due:
        over = agent.core_token_usage - agent.core_token_budget
        rested = _rested(agent)
        if rested is None or rested <= self.at:
            soon = self.at + timedelta(hours=1)
            return Due(soon, "within the hour", f"Due within the hour, because it is {over:,} tokens over its budget.")
        words = f"24 hours after its last attempt, because it is {over:,} tokens over its budget."
        return Due(rested, self.day(rested), f"Due about {self.day(rested)}, {words}")

    def _scheduled(self, agent: Agent) -> Due:
        refined = agent.last_refinement_at
        wanted = refined + timedelta(days=self._settings.interval_days) - TICK_SLACK if refined else self.at
        tick = self.tick_from(max(self.at, wanted, _rested(agent) or self.at))
        if refined is None:
            return Due(tick, self.day(tick), f"Due {self.day(tick)}, because it was never refined.")
        days = max(round((tick - refined) / timedelta(days=1)), 0)
        ago = "1 day" if days == 1 else f"{days} days"
        return Due(tick, self.day(tick), f"Due {self.day(tick)}, because by then its last refinement is {ago} old.")

    def day(self, moment: datetime) -> str:
        """`Monday 04:00 UTC` within the coming week, else with the date."""
        near = moment - self.at < timedelta(days=6, hours=12)
        return f"{moment:%A %H:%M} UTC" if near else f"{moment:%a} {moment.day} {moment:%b %H:%M} UTC"


def _rested(agent: Agent) -> datetime | None:
    return agent.last_attempt_at + ATTEMPT_PAUSE if agent.last_attempt_at else None


def _obstacle(agent: Agent, running: Refinement | None, changeable: bool) -> Due | None:
    if running is not None:
        return Due(None, "now", "A refinement is open now.")
    if agent.forgotten_at is not None:
        return Due(None, "forgotten", f"Forgotten on {agent.forgotten_at:%Y-%m-%d}: nothing starts any more.")
    if not agent.active:
        return Due(None, "not active", "Not active: nothing starts, by itself or by hand.")
    if agent.paused:
        return Due(None, "paused", "Paused: nothing starts by itself until it is resumed. You can still refine it.")
    if agent.core_count == 0:
        return Due(None, "empty ledger", "Nothing to refine yet: it has no core memories.")
    if not changeable:
        return Due(None, "nothing to change", "Nothing to refine: all its memories are constitutional or immutable.")
    return None
