"""When an agent is refined by itself: one rule, once for a row in hand and once for the database that looks for rows.

The scheduled tick takes who was never refined, or not for the interval. The hourly sweep takes who is over its budget
and was not looked at for a week or has grown since, and who is to be tried again after a failure.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy.orm import Mapped, mapped_column

from app.models.agent_settings import operator_settings
from app.models.base import Moment, iso, partial_index
from app.values.refinement_states import AUTOMATIC, BROKEN_STATES, REFINED_STATES, UNLOOKED_STATES, Mode, Status

if TYPE_CHECKING:
    from app.models.refinement import Refinement

ATTEMPT_PAUSE = timedelta(hours=24)
"""No automatic start within this time of an attempt; no second question within this time of a NO."""

TICK_SLACK = timedelta(hours=12)
"""A refinement that ended late in the day of its tick is due again at the next tick all the same."""

LOOK_PAUSE = timedelta(days=7)
"""An agent over its budget that was looked at, and that grew little since, is left alone for so long."""

RETRY_AFTER = tuple(timedelta(days=days) for days in (1, 2, 4, 7))
"""Waiting time after the first, second, third and every later failed automatic attempt in a row."""

SCHEDULE_FIELDS = (
    *("core_token_budget", "core_token_usage", "core_count", "active", "paused", "forgotten_at", "last_attempt_at"),
    *("last_refinement_at", "last_look_at", "last_look_mass", "declined_at", "failed_attempts", "retry_at"),
)
"""All of an agent's row that says when it is refined by itself."""

LONG_AGO = datetime.min.replace(tzinfo=UTC)

STARTABLE = "active AND NOT paused"
OVER_BUDGET = "core_token_usage > core_token_budget"
GROWN = "core_token_usage - last_look_mass >= (core_token_budget + 9) / 10"
"""By at least a tenth of the budget, rounded up, in whole tokens; unknown, so not true, without a look."""


SCHEDULE_INDEXES = (
    partial_index("ix_agents_by_last_refinement", "last_refinement_at", "id", where=STARTABLE),
    partial_index("ix_agents_over_budget", "last_look_at", "id", where=f"{STARTABLE} AND {OVER_BUDGET}"),
    partial_index("ix_agents_grown", "last_attempt_at", "id", where=f"{STARTABLE} AND {OVER_BUDGET} AND {GROWN}"),
    partial_index("ix_agents_to_retry", "retry_at", "id", where=f"{STARTABLE} AND retry_at IS NOT NULL"),
)


class ScheduleColumns:
    """What an agent's row keeps of its refinements, so that nobody has to go through them to know what is due.

    A look is a full refinement that ended other than failed or interrupted: when it was asked for, and the mass at its
    end. `failed_attempts` are those by beat since the last look, one after another; `retry_at` is when the next may be.

    All of it follows from the log: `last_attempt_at` is `at` of the newest `memory_refinement_start`, the rest is
    `schedule` of the newest `memory_refinement_end`, word for word as `schedule_as_json` gives it.
    """

    core_token_budget: Mapped[int]
    core_token_usage: Mapped[int] = mapped_column(default=0)
    active: Mapped[bool] = mapped_column(default=True)
    paused: Mapped[bool] = mapped_column(default=False)
    last_attempt_at: Mapped[Moment | None]
    last_refinement_at: Mapped[Moment | None]
    last_look_at: Mapped[Moment | None]
    last_look_mass: Mapped[int | None]
    declined_at: Mapped[Moment | None]
    failed_attempts: Mapped[int] = mapped_column(default=0)
    retry_at: Mapped[Moment | None]

    @property
    def is_over_budget(self) -> bool:
        return self.core_token_usage > self.core_token_budget

    @property
    def has_grown(self) -> bool:
        """By at least a tenth of its budget since the last look's final mass."""
        return self.last_look_mass is not None and (
            (self.core_token_usage - self.last_look_mass) * 10 >= self.core_token_budget
        )

    @property
    def scheduled_from(self) -> datetime:
        """When the tick wants it."""
        return LONG_AGO if self.last_refinement_at is None else self.last_refinement_at + refinement_interval()

    @property
    def too_large_from(self) -> datetime | None:
        """When the hourly sweep wants it for its size; None within its budget."""
        if not self.is_over_budget:
            return None
        return LONG_AGO if self.last_look_at is None or self.has_grown else self.last_look_at + LOOK_PAUSE

    @property
    def rested_from(self) -> datetime:
        """When beat may start it again: a day after the last attempt, and a day after a NO."""
        paused_by = (self.last_attempt_at, self.declined_at)
        return max((moment + ATTEMPT_PAUSE for moment in paused_by if moment is not None), default=LONG_AGO)

    @property
    def retry_from(self) -> datetime:
        """When the hourly sweep may start it again after a failure."""
        return LONG_AGO if self.retry_at is None else self.retry_at

    @property
    def declined_until(self) -> datetime:
        """Until when nobody but the agent itself may ask again."""
        return LONG_AGO if self.declined_at is None else self.declined_at + ATTEMPT_PAUSE

    def is_wanted(self, at: datetime) -> bool:
        """Whether it needs a refinement as far as its row knows: by schedule, or for its size."""
        return self.scheduled_from <= at or self._is_too_large(at)

    def is_wanted_hourly(self, at: datetime) -> bool:
        """Whether the hourly sweep wants it: for its size, unless it waits after a failure; or because it waited."""
        by_schedule = self.retry_at is not None and self.scheduled_from <= at
        return self.retry_from <= at and (self._is_too_large(at) or by_schedule)

    def _is_too_large(self, at: datetime) -> bool:
        return self.too_large_from is not None and self.too_large_from <= at

    def take_end(self, refinement: Refinement) -> None:
        """What the end of one of its refinements means for the next."""
        asked = refinement.requested_at
        if refinement.status in REFINED_STATES:
            self.last_refinement_at = asked
        if refinement.status == Status.DECLINED:
            self.declined_at = refinement.ended_at
        if refinement.mode == Mode.FULL and refinement.status not in UNLOOKED_STATES:
            self.last_look_at, self.last_look_mass = asked, self.core_token_usage
            self.failed_attempts, self.retry_at = 0, None
        elif refinement.mode == Mode.FULL and refinement.trigger in AUTOMATIC and refinement.status in BROKEN_STATES:
            self.failed_attempts += 1
            self.retry_at = asked + RETRY_AFTER[min(self.failed_attempts, len(RETRY_AFTER)) - 1]

    def schedule_as_json(self) -> dict[str, Any]:
        """What `take_end` may have changed, as an end's entry records it."""
        return {
            "last_refinement_at": iso(self.last_refinement_at),
            "last_look_at": iso(self.last_look_at),
            "last_look_mass": self.last_look_mass,
            "declined_at": iso(self.declined_at),
            "failed_attempts": self.failed_attempts,
            "retry_at": iso(self.retry_at),
        }


def refinement_interval() -> timedelta:
    """From one refinement to when the tick wants the next."""
    return timedelta(days=operator_settings().interval_days) - TICK_SLACK
