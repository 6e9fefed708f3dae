"""A use of the Time Machine, and the plan of one: counts, ids and tokens."""

from __future__ import annotations

from typing import Any, Self

from app.history.plan import GuardFinal, Plan
from app.models import Rollback
from app.shapes.response import Moment, ResponseModel


class RollbackShape(ResponseModel):
    id: str
    kind: str
    refinement: str | None
    entry: int | None
    rollback: str | None
    requested_by: str
    reversed: int
    mass_before: int
    mass_after: int
    undone_by: str | None
    at: Moment

    @classmethod
    def of(cls, done: Rollback, /, **more: Any) -> Self:
        about = {"refinement": done.refinement_id, "entry": done.target_entry_id, "rollback": done.rollback_id}
        return super().of(done, **about, **more)


class PlanShape(ResponseModel):
    """What it would do, or has done. With conflicts nothing is applied, so nothing is counted."""

    kind: str
    undone_by: str | None
    reason: str | None
    restored: int
    removed: int
    conflicts: list[int]
    stays: list[int]
    later: list[str]
    stops: str | None
    mass_before: int
    mass_after: int

    @classmethod
    def of(cls, plan: Plan, /, **more: Any) -> Self:
        nothing = {"restored": 0, "removed": 0, "mass_after": plan.mass_before} if plan.conflicts else {}
        return super().of(plan, reason=GuardFinal.code if plan.final else None, **nothing, **more)
