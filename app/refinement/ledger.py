"""Revealing an agent's own memories for its own prompt: columns, not rows, because a ledger can be long."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Select, select

from app.extensions import db
from app.models import Memory, MemoryType
from app.models.state import PLATFORM_NOTES
from app.refinement.prompts import PromptMemory
from app.silo import AgentKeys

_COLUMNS = (
    Memory.id,
    Memory.origin_at,
    Memory.token_estimate,
    Memory.content,
    Memory.constitutional,
    Memory.tags,
    Memory.other_dates,
)


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
