"""How an agent stands: what its row tells of that, and the rules that need no more; and the agents of a long list."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from sqlalchemy.orm import Mapped

from app.models.agent_settings import operator_settings
from app.models.schedule import SCHEDULE_FIELDS, ScheduleColumns


class AgentStanding(ScheduleColumns):
    """Of an `Agent`, and of one that a list has read plainly."""

    if TYPE_CHECKING:
        id: Mapped[int]
        account_id: Mapped[int]
        name: Mapped[str]
        model_id: Mapped[str]
        refinement_threshold: Mapped[Decimal | None]
        core_count: Mapped[int]
        journal_count: Mapped[int]
        forgotten_at: Mapped[datetime | None]
        stopped_at: Mapped[datetime | None]
        stopped_why: Mapped[str | None]

    @property
    def effective_refinement_threshold(self) -> Decimal:
        own = operator_settings().default_threshold if self.refinement_threshold is None else self.refinement_threshold
        return max(own, operator_settings().min_threshold)

    def may_need_refinement(self, at: datetime) -> bool:
        """Whether a sweep would want to refine it, by schedule or for its size, if there is something to change."""
        return self.forgotten_at is None and self.is_wanted(at)


LISTED = (
    *("id", "account_id", "name", "model_id", "refinement_threshold", "journal_count", "stopped_at", "stopped_why"),
    *SCHEDULE_FIELDS,
)
"""The columns that a `ListedAgent` has. Anything else of it is an AttributeError."""


class ListedAgent(AgentStanding):
    """One of many, as its row was when it was read: without prompts and settings, and nothing of it is ever written."""

    def __init__(self, row: Sequence[Any]) -> None:
        """`row` has the columns of LISTED."""
        self.__dict__.update(zip(LISTED, row, strict=True))
