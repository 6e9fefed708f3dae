"""The audit log's entries, never content; uses of the Time Machine, and plans of them; what waits for an admin."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BeforeValidator

from app.history.plan import GuardFinal, Plan
from app.models import AttentionItem, Rollback
from app.shapes.response import Moment, ResponseModel

Hex = Annotated[str, BeforeValidator(bytes.hex)]


class EntryShape(ResponseModel):
    id: int
    at: Moment
    actor: str
    action: str
    agent: str | None
    refinement: str | None
    subject: str
    data: dict[str, Any]
    hash: Hex
    previous_hash: Hex

    @classmethod
    def of(cls, entry: Any, /, **more: Any) -> Self:
        return super().of(entry, refinement=entry.refinement_id, **more)


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
    """What it would do, or has done. With conflicts nothing is applied, so nothing is counted.

    `altered`: those among the conflicts whose history does not hold together.
    """

    kind: str
    undone_by: str | None
    reason: str | None
    restored: int
    removed: int
    conflicts: list[int]
    altered: list[int]
    stays: list[int]
    erased: list[int]
    later: list[str]
    stops: str | None
    mass_before: int
    mass_after: int

    @classmethod
    def of(cls, plan: Plan, /, **more: Any) -> Self:
        nothing = {"restored": 0, "removed": 0, "mass_after": plan.mass_before} if plan.conflicts else {}
        return super().of(plan, reason=GuardFinal.code if plan.final else None, **nothing, **more)


class AttentionShape(ResponseModel):
    id: int
    kind: str
    agent: str
    agent_id: int
    subject: str
    at: Moment
    line: str
    text: str | None
    resolved: bool
    seen_by: str | None
    seen_at: Moment | None

    @classmethod
    def of(cls, item: AttentionItem, /, **more: Any) -> Self:
        return super().of(item, agent=item.agent.name, resolved=item.is_resolved, **more)
