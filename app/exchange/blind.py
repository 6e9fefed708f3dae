"""The blind record of an agent's memories: what there is and what it weighs, never what it says, nor a hash of it."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import select

from app.extensions import end_reading
from app.models.keyset import Position, cut_page
from app.models.memory import OLDEST_MEMORIES, Memory
from app.models.memory_rows import BlindRow
from app.models.state import MemoryType
from app.shapes.memory import BlindMemory

BATCH = 500


def blind_rows(agent_id: int, *, discarded: bool = False, kind: MemoryType | None = None) -> Iterator[BlindMemory]:
    """Oldest first; `discarded`: with the soft-deleted ones. Erased ones are not among them.

    It reads batch by batch: no transaction is open, and nothing kept, between two of them.
    """
    query = select(Memory).where(Memory.agent_id == agent_id, Memory.erased_at.is_(None))
    if not discarded:
        query = query.where(Memory.discarded_at.is_(None))
    if kind is not None:
        query = query.where(Memory.type == kind)
    position: Position | None = None
    while True:
        rows, last = cut_page(BlindRow.load(OLDEST_MEMORIES.page(query, BATCH, position)), BATCH)
        end_reading()
        yield from map(BlindMemory.of, rows)
        if last is None:
            return
        position = last.origin_at, last.id
