"""What memories say: sealed texts, and the key of each memory's own. Unlike the states, these rows can be removed.

A memory and each of its states name a text by its digest. So the log proves which text it was, and holds none.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, ForeignKey, Index, LargeBinary, Select, and_, select, type_coerce
from sqlalchemy.orm import InstrumentedAttribute, Mapped, mapped_column
from sqlalchemy.types import NullType

from app.extensions import db
from app.models.base import Model, insert_values
from app.plain_rows import make_row
from app.silo import Sealed, SealedMemory

Digest = InstrumentedAttribute[bytes]


class MemoryText(Model):
    """One sealed text of a memory. Each text is sealed once, so its digest (SHA-256 of `sealed`) names it.

    `content_hash` (`AgentKeys.content_hash`) finds exact duplicates; the seal covers it.
    """

    __tablename__ = "memory_texts"
    __table_args__ = (Index("ix_memory_texts_duplicates", "agent_id", "content_hash"),)

    memory_id: Mapped[int] = mapped_column(ForeignKey("memories.id"), primary_key=True, autoincrement=False)
    content_digest: Mapped[bytes] = mapped_column(LargeBinary(32), primary_key=True)
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"))
    sealed: Mapped[Sealed]
    content_hash: Mapped[bytes] = mapped_column(LargeBinary(32))


class ContentKey(Model):
    """The key of a memory's own, which seals all of its texts, itself sealed by the agent's data key."""

    __tablename__ = "content_keys"

    memory_id: Mapped[int] = mapped_column(ForeignKey("memories.id"), primary_key=True, autoincrement=False)
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"), index=True)
    sealed: Mapped[bytes] = mapped_column(LargeBinary)


def add_first_text(agent_id: int, memory_id: int, sealed: SealedMemory) -> None:
    """Add the rows of a new memory's text and key to the session: they follow the memory's own."""
    key = {"memory_id": memory_id, "agent_id": agent_id, "sealed": sealed.content_key}
    db.session.add(make_row(MemoryText, _text_columns(agent_id, memory_id, sealed)))
    db.session.add(make_row(ContentKey, key))


def insert_further_text(agent_id: int, memory_id: int, sealed: SealedMemory) -> None:
    """Write the row of another text of a memory that has a row and a key."""
    insert_values(MemoryText, [_text_columns(agent_id, memory_id, sealed)])


def _text_columns(agent_id: int, memory_id: int, sealed: SealedMemory) -> dict[str, Any]:
    return {
        "memory_id": memory_id,
        "content_digest": sealed.digest,
        "agent_id": agent_id,
        "sealed": sealed.text,
        "content_hash": sealed.content_hash,
    }


def content_keys_of(memory_ids: Collection[int]) -> dict[int, bytes]:
    """By memory, its own key as it is stored; without those that were erased."""
    found = db.session.execute(
        select(ContentKey.memory_id, ContentKey.sealed).where(ContentKey.memory_id.in_(memory_ids))
    )
    return dict(found.tuples().all())


def content_columns(digest: Digest) -> tuple[Any, ...]:
    """What `SealedMemory` is made of, in its order, where the query is joined by `join_content`."""
    return MemoryText.sealed, MemoryText.content_hash, ContentKey.sealed, digest


def stored_content_columns(digest: Digest) -> tuple[Any, ...]:
    """The same as `AgentKeys.reveal_columns` wants it: bytes, just as the database's driver gives them."""
    return tuple(type_coerce(column, NullType()) for column in content_columns(digest))


def join_content(query: Select[Any], memory_id: InstrumentedAttribute[int], digest: Digest) -> Select[Any]:
    """The same rows, with what each says at hand. What is missing is null, and does not open."""
    return query.outerjoin(MemoryText, is_text_of(memory_id, digest)).outerjoin(
        ContentKey, ContentKey.memory_id == memory_id
    )


def is_text_of(memory_id: Any, digest: Any) -> ColumnElement[bool]:
    """The condition that a text is the one that a memory or a state names."""
    return and_(MemoryText.memory_id == memory_id, MemoryText.content_digest == digest)


def texts_of(*memories: ColumnElement[bool]) -> dict[tuple[int, bytes], SealedMemory]:
    """By memory and digest: every text of the memories for which conditions on `MemoryText` hold."""
    columns = (MemoryText.memory_id, *content_columns(MemoryText.content_digest))
    query = select(*columns).outerjoin(ContentKey, ContentKey.memory_id == MemoryText.memory_id).where(*memories)
    return {(row[0], row[-1]): SealedMemory(*row[1:]) for row in db.session.execute(query)}
