"""What the sealed ledger shows: everything that stands beside a memory, and nothing of what it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import literal, select, tuple_

from app.extensions import db
from app.models import Agent, Memory, MemoryType
from app.models.base import UtcDateTime, iso

ROWS = 50


@dataclass(frozen=True)
class LedgerRow:
    """One memory, without its content: only what stands beside it."""

    id: int
    origin_at: datetime
    tokens: int
    constitutional: bool
    immutable: bool
    tags: tuple[str, ...]
    version: int

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "core",
            "tokens": self.tokens,
            "constitutional": self.constitutional,
            "immutable": self.immutable,
            "tags": list(self.tags),
            "origin_at": iso(self.origin_at),
            "discarded": False,
            "version": self.version,
        }


@dataclass(frozen=True)
class Ledger:
    """A page of the active core memories, oldest first. `next_after` is the cursor to go on from."""

    rows: Sequence[LedgerRow]
    after: str
    next_after: str

    @classmethod
    def load(cls, agent: Agent, *, after: str = "") -> Ledger:
        query = select(*_COLUMNS).where(
            Memory.agent_id == agent.id, Memory.type == MemoryType.CORE, Memory.discarded_at.is_(None)
        )
        cursor = _parse_cursor(after)
        if cursor:
            query = query.where(
                tuple_(Memory.origin_at, Memory.id) > tuple_(literal(cursor[0], UtcDateTime), literal(cursor[1]))
            )
        found = db.session.execute(query.order_by(Memory.origin_at, Memory.id).limit(ROWS + 1)).tuples().all()
        rows = [LedgerRow(*columns[:5], tuple(columns[5]), columns[6]) for columns in found]
        more = _cursor(rows[ROWS - 1]) if len(rows) > ROWS else ""
        return cls(rows[:ROWS], after if cursor else "", more)

    @classmethod
    def load_row(cls, agent: Agent, memory_id: int) -> LedgerRow | None:
        query = select(*_COLUMNS).where(
            Memory.id == memory_id, Memory.agent_id == agent.id, Memory.discarded_at.is_(None)
        )
        found = db.session.execute(query).tuples().first()
        return LedgerRow(*found[:5], tuple(found[5]), found[6]) if found else None


_COLUMNS = (
    Memory.id,
    Memory.origin_at,
    Memory.token_estimate,
    Memory.constitutional,
    Memory.immutable,
    Memory.tags,
    Memory.version,
)


def _cursor(row: LedgerRow) -> str:
    return f"{row.origin_at.isoformat().replace('+00:00', 'Z')}~{row.id}"


def _parse_cursor(text: str) -> tuple[datetime, int] | None:
    """None for no cursor, and for one that is none of ours: the first page is an answer too."""
    moment, _, number = text.partition("~")
    try:
        at = datetime.fromisoformat(moment)
        return (at, int(number)) if at.tzinfo is not None and len(number) < 19 else None
    except ValueError:
        return None
