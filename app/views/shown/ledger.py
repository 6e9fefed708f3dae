"""What the sealed ledger shows: everything that stands beside a memory, and nothing of what it says."""

from __future__ import annotations

from sqlalchemy import select

from app.models import Agent, Memory, MemoryType
from app.models.keyset import TimeCursor, cut_page
from app.models.memory import OLDEST_MEMORIES
from app.models.memory_rows import BlindRow

ROWS = 50

CORE, JOURNAL, DISCARDED = "core", "journal", "discarded"
SHOWN = {CORE: "Core", JOURNAL: "Journal", DISCARDED: "Discarded"}
"""What the ledger can list, as its address names it. Discarded are those of both types that were removed, softly."""


class Ledger:
    """A page of memories, oldest first: of one of SHOWN. `next_after` is the cursor to go on from."""

    choices = SHOWN

    def __init__(self, agent: Agent, *, show: str = "", after: str = "") -> None:
        self.show = show if show in SHOWN else CORE
        cursor = TimeCursor.parse(after)
        is_discarded = Memory.discarded_at.is_not(None)
        is_shown = is_discarded if self.show == DISCARDED else ~is_discarded & (Memory.type == MemoryType(self.show))
        query = select(Memory).where(Memory.agent_id == agent.id, is_shown)
        self.rows, last = cut_page(BlindRow.load(OLDEST_MEMORIES.page(query, ROWS, cursor)), ROWS)
        self.after = after if cursor else ""
        self.next_after = str(TimeCursor(last.origin_at, last.id)) if last else ""

    @property
    def is_live(self) -> bool:
        """Whether the stream keeps it fresh: only the first page of core memories."""
        return self.show == CORE and not self.after


def load_ledger_row(agent: Agent, memory_id: int) -> BlindRow | None:
    """One active memory of this agent's."""
    mine = (Memory.id == memory_id, Memory.agent_id == agent.id, Memory.discarded_at.is_(None))
    return next(iter(BlindRow.load(select(Memory).where(*mine))), None)
