"""A setting that an agent writes itself: as it stands, what it has been, and what waits."""

from __future__ import annotations

from pydantic import Field

from app.models import ProposalStatus
from app.shapes.response import Moment, ResponseModel

Value = str | float | int | None


class Waiting(ResponseModel):
    id: str
    value: str | None
    status: str = Field(description="reading: a safety model reads it. held: an admin has to let it through.")
    why: str | None
    proposed_at: Moment | None


class Setting(ResponseModel):
    field: str
    value: Value = Field(description="What was set; null where the default holds.")
    default: Value
    effective: Value = Field(description="What is used.")
    is_default: bool
    version: int = Field(description="How many times it was set.")
    changed_at: Moment | None
    changed_by: str | None = Field(description="agent:YOU, or user:SOMEBODY.")
    pending: Waiting | None = Field(description="A change of yours that does not apply yet.")

    @property
    def unread(self) -> str | None:
        """The id of the change that a worker is to let the safety model read, once it is committed."""
        return self.pending.id if self.pending and self.pending.status == ProposalStatus.READING else None


class Version(ResponseModel):
    entry: int
    at: Moment | None
    by: str
    by_agent: bool
    value: Value = Field(repr=False)
