"""The schedule: the operator's crontab in words, its next runs, and how many agents of an account each would start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import func, select

from app.config import Settings, variable_name
from app.crontabs import crontab_words, next_runs
from app.extensions import db, now
from app.models import Agent
from app.models.account_use import find_spent, spent_words
from app.models.base import iso
from app.models.schedule import refinement_interval
from app.refinement.due import count_due

RUNS = 5


@dataclass(frozen=True)
class ScheduledRun:
    """`due` is how many agents it would start if all runs before it end well."""

    at: datetime
    due: int

    def as_json(self) -> dict[str, Any]:
        return {"at": iso(self.at), "due": self.due}


class CrontabPlan:
    """What a crontab means for the agents of an account. `crontab` is one that `check_crontab` let through."""

    def __init__(self, crontab: str, account_id: int) -> None:
        self.crontab = crontab
        self.words = crontab_words(crontab)
        moments = next_runs(crontab, now(), RUNS)
        due = _due_at_each(moments, count_due(account_id, moments))
        self.runs = [ScheduledRun(at, count) for at, count in zip(moments, due, strict=True)]

    def as_json(self) -> dict[str, Any]:
        return {"crontab": self.crontab, "words": self.words, "next_runs": [run.as_json() for run in self.runs]}


class Schedule:
    """The schedule of this installation, as an account sees it. `hold` is why nothing starts this month; empty else."""

    variable = variable_name("schedule")

    def __init__(self, settings: Settings, account_id: int) -> None:
        self.plan = CrontabPlan(settings.schedule, account_id)
        self.is_set = "schedule" in settings.model_fields_set
        self.interval_days = settings.interval_days
        kept = Agent.forgotten_at.is_(None)
        paused = func.count().filter(Agent.active, Agent.paused, kept), func.count().filter(~Agent.active, kept)
        spent = find_spent(account_id, now())
        self.hold = spent_words(*spent, now()) if spent else ""
        query = select(func.count().filter(kept), *paused).where(Agent.account_id == account_id)
        self.agents, self.paused, self.inactive = map(int, db.session.execute(query).one())

    @property
    def source(self) -> str:
        return "environment" if self.is_set else "default"

    def as_json(self) -> dict[str, Any]:
        said = self.plan.as_json() | {"source": self.source, "interval_days": self.interval_days}
        said |= {"agents": self.agents, "paused": self.paused, "inactive": self.inactive}
        return said | {"hold": self.hold or None}


def _due_at_each(moments: Sequence[datetime], waiting: Sequence[int]) -> list[int]:
    """Of how many wait at each moment: those that no run before took, and those whose interval has passed since."""
    due: list[int] = []
    returning = [0] * len(moments)
    for place, at in enumerate(moments):
        new = waiting[place] - (waiting[place - 1] if place else 0)
        due.append(new + returning[place])
        again = next((later for later, run in enumerate(moments) if run >= at + refinement_interval()), None)
        if again is not None:
            returning[again] += due[place]
    return due
