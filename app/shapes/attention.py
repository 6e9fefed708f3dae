"""Something that waits for an admin's eyes, or was seen."""

from __future__ import annotations

from typing import Any, Self

from app.models import AttentionItem
from app.shapes.response import Moment, ResponseModel


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
