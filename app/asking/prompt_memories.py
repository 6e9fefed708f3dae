"""An agent's own memories, revealed for its own prompt: columns, not rows, because a ledger can be long."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, select

from app.extensions import db
from app.models import Memory, MemoryType
from app.models.state import PLATFORM_NOTES
from app.silo import AgentKeys
from app.values.dates import shown_days

_COLUMNS = (
    Memory.id,
    Memory.origin_at,
    Memory.token_estimate,
    Memory.content,
    Memory.constitutional,
    Memory.tags,
    Memory.other_dates,
)


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
    query = select(*_COLUMNS).where(Memory.type == MemoryType.CORE)
    return _reveal(query, agent_id, keys)


def read_journal(agent_id: int, keys: AgentKeys, *, since: datetime, own: bool = False) -> list[PromptMemory]:
    """The active journal entries since then, oldest first, revealed; with `own` without Whetstone's notes."""
    query = select(*_COLUMNS).where(Memory.type == MemoryType.JOURNAL, Memory.origin_at >= since)
    return _reveal(query.where(Memory.source.not_in(PLATFORM_NOTES)) if own else query, agent_id, keys)


def _reveal(query: Select[Any], agent_id: int, keys: AgentKeys) -> list[PromptMemory]:
    rows = db.session.execute(
        query.where(Memory.agent_id == agent_id, Memory.discarded_at.is_(None)).order_by(Memory.origin_at, Memory.id)
    )
    return [
        PromptMemory(
            number, date, tokens, keys.reveal_memory(number, content), constitutional, tuple(tags), tuple(others)
        )
        for number, date, tokens, content, constitutional, tags, others in rows.tuples()
    ]
