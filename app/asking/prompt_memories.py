"""An agent's own memories, revealed for its own prompt: columns, not rows, because a ledger can be long."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select

from app.models import Memory, MemoryType
from app.models.memory_rows import SealedRow
from app.models.state import PLATFORM_NOTES
from app.silo import AgentKeys
from app.values.dates import shown_days


@dataclass(frozen=True)
class PromptMemory:
    """One revealed memory on its way into a prompt. Never logged, never kept."""

    id: int
    date: datetime
    tokens: int
    content: str
    constitutional: bool = False
    tags: tuple[str, ...] = ()
    other_dates: tuple[datetime, ...] = ()

    def __repr__(self) -> str:
        return f"<Entry {self.id}, {self.tokens} tokens>"

    def as_dict(self) -> dict[str, Any]:
        """Its public form in the ledger and in search results."""
        shown = {"id": self.id, **shown_days(self.date, self.other_dates), "tokens": self.tokens}
        if self.constitutional:
            shown["constitutional"] = True
        if self.tags:
            shown["tags"] = list(self.tags)
        return shown | {"content": self.content}


def read_entries(agent_id: int, keys: AgentKeys) -> list[PromptMemory]:
    """The active core memories, oldest first, revealed."""
    return _reveal_memories(Memory.active(agent_id, MemoryType.CORE), keys)


def read_journal(agent_id: int, keys: AgentKeys, *, since: datetime, own: bool = False) -> list[PromptMemory]:
    """The active journal entries since then, oldest first, revealed; with `own` without Whetstone's notes."""
    query = Memory.active(agent_id, MemoryType.JOURNAL).where(Memory.origin_at >= since)
    return _reveal_memories(query.where(Memory.source.not_in(PLATFORM_NOTES)) if own else query, keys)


def _reveal_memories(query: Select[Any], keys: AgentKeys) -> list[PromptMemory]:
    return [
        PromptMemory(
            memory.id,
            memory.origin_at,
            memory.tokens,
            keys.reveal_memory(memory.id, memory.content),
            memory.constitutional,
            tuple(memory.tags),
            tuple(memory.other_dates),
        )
        for memory in SealedRow.load(query)
    ]
