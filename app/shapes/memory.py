"""A memory, and what was handed in to become some: a file of memories, or a conversation.

A memory is blind, as those who run an agent see it, or has its text, which only the agent itself is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from app.models import Intake, IntakeStatus
from app.models.base import iso
from app.models.memory_rows import SealedRow
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
    merged_sources: int
    merges: int
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
    merged_sources: Annotated[
        int, Field(description="How many memories it was merged from, those behind them counted; 0 of a plain one.")
    ]
    merges: Annotated[int, Field(description="Over how many merges; 0 of a plain one.")]
    source: Annotated[
        str, Field(description="agent, refinement, conversation, promotion, system, or import: with the import's name.")
    ]
    created_at: Moment
    updated_at: Moment
    version: int

    @classmethod
    def reveal(cls, row: SealedRow, content: str) -> Self:
        """Of columns, which have these types already: pydantic checks none of them."""
        return cls.of_columns(
            *(row.id, row.type, content, row.tokens, row.constitutional, row.tags, row.origin_at, row.other_dates),
            *(row.merged_sources, row.merges, row.source, row.created_at, row.updated_at, row.version),
        )

    @classmethod
    def of_columns(
        cls,
        number: int,
        kind: str,
        content: str,
        tokens: int,
        constitutional: bool,
        tags: Sequence[str],
        origin_at: datetime,
        other_dates: Sequence[datetime],
        merged_sources: int,
        merges: int,
        source: str,
        created_at: datetime,
        updated_at: datetime,
        version: int,
    ) -> Self:
        """The same without a row: a context tells of hundreds."""
        at = iso(origin_at)
        return cls.of_checked(
            {
                "id": number,
                "type": kind,
                "content": content,
                "tokens": tokens,
                "constitutional": constitutional,
                "tags": tags,
                "origin_at": at,
                "other_dates": [iso(moment) for moment in other_dates] if other_dates else [],
                "merged_sources": merged_sources,
                "merges": merges,
                "source": source,
                "created_at": at if created_at == origin_at else iso(created_at),
                "updated_at": at if updated_at == origin_at else iso(updated_at),
                "version": version,
            }
        )


class ErasedMemory(ResponseModel):
    """The receipt of what is gone for good, as the audit log says it."""

    id: int
    erased_at: Moment
    by: str
    reason: str | None
    states: int = Field(description="How many states of it there were; none of them can be read any more.")
    made: list[int] = Field(description="Memories that refinements made from it. They are still there.")
    copies: list[int] = Field(description="Memories that hold or held the very same words. They are still there.")
    entry: int = Field(description="The entry of the audit log.")
    entry_hash: str


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
        outcome: dict[str, Any] = intake.outcome or {} if intake.status == IntakeStatus.TAKEN else {}
        counts = {name: outcome.get(name) for name in ("core", "journal", "duplicates")}
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
        outcome = intake.outcome or {}
        counts: dict[str, Any] = {"memories": intake.imported, "duplicates": outcome.get("duplicates"), "settings": []}
        return super().of(intake, **{**counts, "left_out": outcome.get("left_out") or {}, **more})


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
        return super().of(intake, left_out=(intake.outcome or {}).get("left_out") or {}, **more)
