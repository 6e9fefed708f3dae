"""The blind record of an agent's memories: what there is and what it weighs, never what it says, nor a hash of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import select

from app.extensions import db, release
from app.models.base import iso
from app.models.keyset import Place, cut_page
from app.models.memory import OLDEST_MEMORIES, Memory
from app.models.state import MemoryType

BATCH = 500

_COLUMNS = (
    Memory.id,
    Memory.type,
    Memory.token_estimate,
    Memory.constitutional,
    Memory.tags,
    Memory.origin_at,
    Memory.other_dates,
    Memory.source,
    Memory.discarded_at,
    Memory.version,
)


def blind_rows(agent_id: int, *, discarded: bool = False, kind: MemoryType | None = None) -> Iterator[dict[str, Any]]:
    """Oldest first, in the stable form that programs rely on; `discarded`: with the soft-deleted ones.

    It reads batch by batch: no transaction is open, and nothing kept, between two of them.
    """
    query = select(*_COLUMNS).where(Memory.agent_id == agent_id)
    if not discarded:
        query = query.where(Memory.discarded_at.is_(None))
    if kind is not None:
        query = query.where(Memory.type == kind)
    place: Place | None = None
    while True:
        rows, last = cut_page(db.session.execute(OLDEST_MEMORIES.page(query, BATCH, place)), BATCH)
        release()
        yield from map(_as_json, rows)
        if last is None:
            return
        place = last.origin_at, last.id


def _as_json(row: Any) -> dict[str, Any]:
    return {
        "id": row.id,
        "type": str(row.type),
        "tokens": row.token_estimate,
        "constitutional": row.constitutional,
        "tags": row.tags,
        "origin_at": iso(row.origin_at),
        "other_dates": [iso(moment) for moment in row.other_dates],
        "source": row.source,
        "discarded": row.discarded_at is not None,
        "discarded_at": iso(row.discarded_at),
        "version": row.version,
    }
