"""What an agent may read of its own memories: in pages, by search, and as the context of its next prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from app.errors import NotFound
from app.extensions import end_reading, now
from app.models import Memory, MemoryType
from app.models.keyset import cut_page
from app.models.memory import OLDEST_MEMORIES
from app.models.memory_rows import SealedRow
from app.models.state import JOURNAL_DAYS
from app.silo import AgentKeys

BATCH = 500


def read_page(
    agent_id: int, *, type_: MemoryType | None, after: int | None, limit: int
) -> tuple[Sequence[SealedRow], int | None]:
    """Active memories, oldest first, from behind the memory `after` on; and the id to go on from. Raises Invalid.

    A memory that was discarded meanwhile still marks its place.
    """
    position = OLDEST_MEMORIES.require("after", after, Memory.agent_id == agent_id)
    found, last = cut_page(SealedRow.load(OLDEST_MEMORIES.page(Memory.active(agent_id, type_), limit, position)), limit)
    return found, last.id if last else None


def find_active_memory(agent_id: int, memory_id: int) -> SealedRow:
    """An active memory of the agent. Another agent's, a discarded one and none at all are alike: NotFound."""
    found = SealedRow.load(Memory.active(agent_id).where(Memory.id == memory_id))
    if not found:
        raise NotFound(f"You have no active memory {memory_id}.")
    return found[0]


def find_matching(
    agent_id: int, keys: AgentKeys, text: str, *, type_: MemoryType | None, limit: int
) -> tuple[list[tuple[SealedRow, str]], int]:
    """Memories whose text holds `text` in any case, the newest first, at most `limit`; and how many there are."""
    wanted = text.casefold()
    hits: list[tuple[SealedRow, str]] = []
    for memory in _read_all_memories(agent_id, type_):
        content = keys.reveal_memory(memory.id, memory.content)
        if wanted in content.casefold():
            hits.append((memory, content))
    return hits[::-1][:limit], len(hits)


def fresh_since() -> datetime:
    """Journal entries from then on are still in prompts."""
    return now() - timedelta(days=JOURNAL_DAYS)


def in_context(agent_id: int) -> tuple[list[SealedRow], list[SealedRow]]:
    """The active core memories and the journal of the last days, each oldest first."""
    recent = Memory.active(agent_id, MemoryType.JOURNAL).where(Memory.origin_at >= fresh_since())
    return SealedRow.load(Memory.active(agent_id, MemoryType.CORE)), SealedRow.load(recent)


def _read_all_memories(agent_id: int, type_: MemoryType | None) -> Iterator[SealedRow]:
    """In batches, with no transaction open in between."""
    after: int | None = None
    while True:
        found, after = read_page(agent_id, type_=type_, after=after, limit=BATCH)
        end_reading()
        yield from found
        if after is None:
            return
