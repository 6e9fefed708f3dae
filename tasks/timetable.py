"""The crontab of WHETSTONE_SCHEDULE for beat, read by the same library that finds a missed tick: both mean the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from celery.schedules import BaseSchedule, schedstate
from cronsim import CronSim


class Crontab(BaseSchedule):  # type: ignore[misc]
    """Due at every occurrence of a five-field crontab, UTC."""

    def __init__(self, expression: str, nowfun: Any = None, app: Any = None) -> None:
        super().__init__(nowfun=nowfun, app=app)
        self.expression = expression

    def is_due(self, last_run_at: datetime) -> schedstate:
        left = self.remaining_estimate(last_run_at)
        if left > timedelta(0):
            return schedstate(is_due=False, next=left.total_seconds())
        following = self.remaining_estimate(self.now())
        return schedstate(is_due=True, next=max(following.total_seconds(), 1.0))

    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        """How long until the occurrence after `last_run_at`; negative when that is past."""
        following: datetime = next(CronSim(self.expression, last_run_at.astimezone(UTC)))
        present: datetime = self.now()
        return following - present

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Crontab) and other.expression == self.expression

    def __hash__(self) -> int:
        return hash(self.expression)

    def __repr__(self) -> str:
        return f"<Crontab {self.expression!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.expression,))
