"""An agent's own memories on their way into a prompt: revealed, one JSON object a line, as many as its window holds.

They are read as columns, not rows, because a ledger can be long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import Select

from app.asking.rendering import encode_json, render_prompt
from app.models import Memory, MemoryType
from app.models.memory_rows import SealedRow
from app.models.state import PLATFORM_NOTES
from app.silo import AgentKeys
from app.values.dates import shown_days

DEFAULT_CONTEXT_WINDOW = 32_000
"""Tokens, for a model whose window nobody knows."""

LEDGER_SHARE = Decimal("0.6")
"""Of the window; the rest is for rules, calls and results."""

LEAST_SHARE = 10
"""Memories keep at least a tenth of the window, however much else is shown."""

CHARACTERS_A_TOKEN = 3
"""Careful on purpose: real tokenizers give more tokens than the estimate of mass does."""

NO_IDENTITY = "You are an AI agent with long-term memories of your own."


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

    @classmethod
    def of(cls, row: SealedRow, content: str) -> PromptMemory:
        tags, dates = tuple(row.tags), tuple(row.other_dates)
        return cls(row.id, row.origin_at, row.tokens, content, row.constitutional, tags, dates)

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
    return [PromptMemory.of(row, keys.reveal_memory(row.id, row.content)) for row in SealedRow.load(query)]


def memory_context(
    system_prompt: str | None, core: Sequence[PromptMemory], journal: Sequence[PromptMemory], window: int | None
) -> dict[str, Any]:
    """Who the agent is, and what it remembers."""
    shown, heading = fit_ledger(core, window)
    journal_room = room_of(window) - sum(map(weigh_line, shown))
    system = render_prompt(
        "consent_system.txt",
        identity=system_prompt or NO_IDENTITY,
        ledger=shown,
        ledger_heading=heading,
        journal=newest_that_fit(journal, journal_room),
    )
    return {"role": "system", "content": system}


def fit_ledger(entries: Sequence[PromptMemory], window: int | None) -> tuple[list[str], str]:
    """The oldest entries that fit into the ledger's share of the window, encoded; and the heading that counts them."""
    shown = _lines_that_fit(entries, room_of(window), fewest=1)
    if len(shown) == len(entries):
        return shown, f"Your ledger: {len(entries)} core memories, oldest first."
    return shown, (
        f"Your ledger: {len(shown)} of {len(entries)} core memories, oldest first; "
        "reach the others with search_memories."
    )


def newest_that_fit(journal: Sequence[PromptMemory], room: int) -> list[str]:
    """The newest entries for which there is room, in characters; oldest first, encoded."""
    return _lines_that_fit(reversed(journal), room)[::-1]


def _lines_that_fit(entries: Iterable[PromptMemory], room: int, fewest: int = 0) -> list[str]:
    shown: list[str] = []
    for entry in entries:
        line = encode_json(entry.as_dict())
        room -= weigh_line(line)
        if room < 0 and len(shown) >= fewest:
            break
        shown.append(line)
    return shown


def weigh_line(line: str) -> int:
    """Characters, of which those of other scripts weigh a token each: tokenizers know them worse."""
    return len(line) + (CHARACTERS_A_TOKEN - 1) * (len(line) - len(line.encode("ascii", "ignore"))) + 1


def room_of(window: int | None) -> int:
    """How many characters of memories a model's window has room for."""
    return int((window or DEFAULT_CONTEXT_WINDOW) * LEDGER_SHARE) * CHARACTERS_A_TOKEN


def tokens_left(window: int | None, lines: Sequence[str]) -> int:
    """Tokens of the window that these lines leave to the memories."""
    whole = window or DEFAULT_CONTEXT_WINDOW
    return max(whole - sum(map(weigh_line, lines)) // CHARACTERS_A_TOKEN, whole // LEAST_SHARE)
