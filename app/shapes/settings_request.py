"""What a human wants to change of an agent's settings, and how that stands. Never the words of the agent's answer."""

from __future__ import annotations

from pydantic import Field

from app.shapes.response import Moment, ResponseModel


class SettingsRequestShape(ResponseModel):
    id: str
    status: str = Field(description="pending waits for you; agreed by you, it is applied within seconds.")
    changes: dict[str, str | None] = Field(description="What would be set; null stands for the default.")
    requested_by: str
    requested_at: Moment | None
    decided_at: Moment | None
    decided_by: str | None
    why: str | None = Field(description="Why it ended, where that was not your answer.")
