"""What the sealed ledger shows: everything that stands beside a memory, and nothing of what it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, select

from app.models import Agent, Memory, MemoryType
from app.models.keyset import TimeCursor, cut_page
from app.models.memory import OLDEST_MEMORIES
from app.models.memory_rows import BlindRow

ROWS = 50

CORE, JOURNAL, DISCARDED = "core", "journal", "discarded"
SHOWN = {CORE: "Core", JOURNAL: "Journal", DISCARDED: "Discarded"}
"""What the ledger can list, as its address names it. Discarded are those of both types that were removed, softly."""


@dataclass(frozen=True)
class Ledger:
    """A page of memories, oldest first: of one of SHOWN. `next_after` is the cursor to go on from."""

    show: str
    rows: Sequence[BlindRow]
    after: str
    next_after: str

    choices = SHOWN

    @classmethod
    def load(cls, agent: Agent, *, show: str = "", after: str = "") -> Ledger:
        show = show if show in SHOWN else CORE
        query = select(Memory).where(Memory.agent_id == agent.id, *_is_shown(show))
        cursor = TimeCursor.parse(after)
        rows, last = cut_page(BlindRow.load(OLDEST_MEMORIES.page(query, ROWS, cursor)), ROWS)
        return cls(show, rows, after if cursor else "", str(TimeCursor(last.origin_at, last.id)) if last else "")

    @property
    def is_live(self) -> bool:
        """Whether the stream keeps it fresh: only the first page of core memories."""
        return self.show == CORE and not self.after

    @classmethod
    def load_row(cls, agent: Agent, memory_id: int) -> BlindRow | None:
        mine = (Memory.id == memory_id, Memory.agent_id == agent.id, Memory.discarded_at.is_(None))
        return next(iter(BlindRow.load(select(Memory).where(*mine))), None)


def _is_shown(show: str) -> tuple[ColumnElement[bool], ...]:
    if show == DISCARDED:
        return (Memory.discarded_at.is_not(None),)
    return Memory.type == MemoryType(show), Memory.discarded_at.is_(None)
