"""A token of an agent: its name, what it may, and when it was used. Never its secret."""

from __future__ import annotations

from typing import Any, Self

from app.models import AgentToken
from app.shapes.response import Moment, ResponseModel


class TokenTold(ResponseModel):
    id: str
    name: str
    scopes: list[str]


class TokenShape(TokenTold):
    """With its dates, for who looks after it."""

    created_at: Moment | None
    last_used_at: Moment | None
    revoked_at: Moment | None

    @classmethod
    def of(cls, token: AgentToken, /, **more: Any) -> Self:
        return super().of(token, id=token.public_id, **more)
