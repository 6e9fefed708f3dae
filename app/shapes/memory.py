"""A memory: blind, as those who run an agent see it, and with its text, which only the agent itself is given."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field

from app.shapes.response import Moment, ResponseModel

MemoryKind = Literal["core", "journal"]


class BlindMemory(ResponseModel):
    """What there is and what it weighs, never what it says, nor a hash of it."""

    id: int
    type: str
    tokens: int
    constitutional: bool
    tags: list[str]
    origin_at: Moment
    other_dates: list[Moment]
    source: str
    discarded: bool
    discarded_at: Moment | None
    version: int

    @classmethod
    def of(cls, memory: Any, /, **more: Any) -> Self:
        return super().of(memory, discarded=memory.discarded_at is not None, **more)


class LedgerRowShape(BlindMemory):
    """A row of the sealed ledger."""

    immutable: bool


class OneMemory(ResponseModel):
    id: int
    type: MemoryKind
    content: str
    tokens: int
    constitutional: bool
    tags: list[str]
    origin_at: Annotated[Moment, Field(description="When it speaks from.")]
    other_dates: Annotated[
        list[Moment],
        Field(description="Other times of which it speaks: those of exact duplicates and of what was merged."),
    ]
    source: Annotated[
        str, Field(description="agent, refinement, conversation, promotion, system, or import: with the import's name.")
    ]
    created_at: Moment
    updated_at: Moment
    version: int
