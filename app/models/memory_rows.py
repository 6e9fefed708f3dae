"""Memories as columns instead of rows of the session, because a ledger can be long: blind, or with the sealed text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields
from datetime import date, datetime
from typing import Any, Self

from sqlalchemy import Executable, Select, type_coerce

from app.extensions import db
from app.models.base import Texts
from app.models.memory import Memory
from app.models.memory_text import content_columns, join_content, stored_content_columns
from app.models.state import MemoryType
from app.silo import AgentKeys, SealedMemory
from app.values.dates import other_days
from app.values.merge_depth import MergeDepth

_COLUMNS: dict[str, Any] = {"tokens": Memory.token_estimate, "tags": type_coerce(Memory.tags, Texts)}

BATCH = 500
"""Rows that are fetched at once: one by one they take twice as long."""


@dataclass(slots=True)
class BlindRow:
    """One memory without its content, which isn't even read: only what stands beside it.

    Nobody changes one. It isn't frozen because that makes each of a long ledger take several times as long.
    """

    id: int
    type: MemoryType
    tokens: int
    constitutional: bool
    immutable: bool
    tags: Sequence[str]
    origin_at: datetime
    other_dates: Sequence[datetime]
    merged_sources: int
    merges: int
    source: str
    discarded_at: datetime | None
    version: int

    @classmethod
    def load(cls, query: Select[Any]) -> list[Self]:
        """All that a query for memories finds."""
        return [cls(*columns) for columns in db.session.execute(query.with_only_columns(*cls.columns())).tuples()]

    @classmethod
    def columns(cls) -> list[Any]:
        """What is selected for it."""
        return columns_of(each.name for each in fields(cls))

    @property
    def other_days(self) -> list[date]:
        """The further days that it speaks from."""
        return other_days(self.origin_at, self.other_dates)

    @property
    def merge_depth(self) -> MergeDepth:
        return MergeDepth(self.merged_sources, self.merges)


@dataclass(slots=True)
class SealedRow(BlindRow):
    """With the sealed text, for the agent itself."""

    created_at: datetime
    updated_at: datetime
    content: SealedMemory = field(repr=False)

    @classmethod
    def load(cls, query: Select[Any]) -> list[Self]:
        """All that a query for memories finds, with what they say."""
        return list(cls.each(query))

    @classmethod
    def each(cls, query: Select[Any]) -> Iterator[Self]:
        """The same, one at a time, so that of 10,000 one is held. The session may do nothing else meanwhile."""
        return cls.read(cls.complete(query))

    @classmethod
    def complete(cls, query: Select[Any]) -> Select[Any]:
        """A query for memories with all the columns that `read` wants: what is asked often is put together once."""
        wanted = query.with_only_columns(*cls.columns(), *content_columns(Memory.content_digest))
        return join_content(wanted, Memory.id, Memory.content_digest)

    @classmethod
    def read(cls, completed: Executable, parameters: Mapping[str, Any] | None = None) -> Iterator[Self]:
        """What a completed query finds, one at a time."""
        count = len(fields(cls)) - 1
        db.session.flush()
        with closing(db.session.connection().execute(completed, parameters)) as found:
            for batch in found.partitions(BATCH):
                for row in batch:
                    yield cls(*(*row[:count], SealedMemory(*row[count:])))

    @classmethod
    def columns(cls) -> list[Any]:
        """Without the content, which is made of several."""
        return columns_of(each.name for each in fields(cls) if each.name != "content")


def complete_revealed(query: Select[Any], *names: str) -> Select[Any]:
    """A query for memories with all that `read_revealed` wants, and these columns: put together once."""
    wanted = *stored_content_columns(Memory.content_digest), *columns_of(("id", *names))
    return join_content(query.with_only_columns(*wanted), Memory.id, Memory.content_digest)


def read_revealed(completed: Executable, keys: AgentKeys, parameters: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """What each memory of a completed query says, its id, and its further columns; one at a time, like
    `SealedRow.each`."""
    reveal = keys.reveal_columns
    db.session.flush()
    with closing(db.session.connection().execute(completed, parameters)) as found:
        for batch in found.partitions(BATCH):
            for text, content_hash, content_key, digest, number, *rest in batch:
                yield reveal(number, text, content_hash, content_key, digest), number, *rest


def columns_of(names: Iterable[str]) -> list[Any]:
    """The columns of memories that rows call so."""
    return [_COLUMNS[name] if name in _COLUMNS else getattr(Memory, name) for name in names]
