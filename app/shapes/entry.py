"""An entry of the audit log: who did what to what, with its open data and its place in the chain. Never content."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BeforeValidator

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
