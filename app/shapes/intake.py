"""What was handed in for a worker to take in: a file of memories, or a conversation. Counts, never content."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field

from app.models import Intake, IntakeStatus
from app.shapes.response import Moment, ResponseModel


class Conversation(ResponseModel):
    id: str
    status: str = Field(description="waiting, taken (its memories are saved) or failed (nothing was created).")
    created_at: Moment | None
    taken_at: Moment | None
    core: int | None = Field(description="Core memories that were saved.")
    journal: int | None = Field(description="Journal entries that were saved.")
    duplicates: int | None = Field(description="Core memories that you had already.")
    error: str | None

    @classmethod
    def of(cls, intake: Intake, /, **more: Any) -> Self:
        is_taken = intake.status == IntakeStatus.TAKEN
        counts = {
            name: _outcome_value(intake, name) if is_taken else None for name in ("core", "journal", "duplicates")
        }
        return super().of(intake, **counts, **more)


class OneImport(ResponseModel):
    id: str
    status: str = Field(description="waiting, taken (all its memories are saved) or failed (none is).")
    format: str
    memories: int | None = Field(description="How many it holds, and once it is taken, how many were saved.")
    duplicates: int | None = Field(description="How many of them you had already; these were not written again.")
    left_out: dict[str, int] = Field(description="What of the file is no memory, counted.")
    settings: list[str] = Field(description="Those of your settings that this call wrote.")
    created_at: Moment | None
    taken_at: Moment | None
    error: str | None

    @classmethod
    def of(cls, intake: Intake, /, **more: Any) -> Self:
        counts = {"memories": intake.imported, "duplicates": _outcome_value(intake, "duplicates"), "settings": []}
        return super().of(intake, **{**counts, "left_out": _outcome_value(intake, "left_out") or {}, **more})


class AdminImport(ResponseModel):
    """As those who run the agent see it."""

    id: str
    status: str
    format: str | None
    imported: int | None
    left_out: dict[str, int]
    error: str | None
    created_at: Moment | None
    taken_at: Moment | None

    @classmethod
    def of(cls, intake: Intake, /, **more: Any) -> Self:
        return super().of(intake, left_out=_outcome_value(intake, "left_out") or {}, **more)


def _outcome_value(intake: Intake, name: str) -> Any:
    return (intake.outcome or {}).get(name)
