"""An agent's own memories on their way into a prompt: revealed, one JSON object a line, as many as its window holds.

They are read as columns, not rows, because a ledger can be long. A question that asks for a YES names the source of
each, and leaves out what humans imported lately: who wants a YES must not be able to put the words for it there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import groupby
from typing import Any, NamedTuple

from sqlalchemy import Select, and_, bindparam, or_, select

from app.asking.rendering import encode_json, render_prompt
from app.extensions import now, read_rows
from app.models import Action, AuditLog, Memory, MemoryState, MemoryType
from app.models.audit import is_by_human
from app.models.memory_rows import complete_revealed, read_revealed
from app.models.state import PLATFORM_NOTES
from app.prepared import Prepared
from app.silo import AgentKeys
from app.values.dates import shown_days
from app.values.merge_depth import NEVER_MERGED, MergeDepth
from app.values.plural import count_nouns

DEFAULT_CONTEXT_WINDOW = 32_000
"""Tokens, for a model whose window nobody knows."""

LEDGER_SHARE = Decimal("0.6")
"""Of the window; the rest is for rules, calls and results."""

LEAST_SHARE = 10
"""Memories keep at least a tenth of the window, however much else is shown."""

CHARACTERS_A_TOKEN = 3
"""Careful on purpose: real tokenizers give more tokens than the estimate of mass does."""

IMPORTED_LATELY = timedelta(days=30)
"""What humans imported within so many days stays out of questions that ask for a YES."""

NO_IDENTITY = "You are an AI agent with long-term memories of your own."


class PromptMemory(NamedTuple):
    """One revealed memory on its way into a prompt. Never logged, never kept.

    A tuple, because a ledger has thousands: a frozen dataclass takes several times as long to make.
    """

    id: int
    date: datetime
    tokens: int
    content: str
    constitutional: bool = False
    tags: tuple[str, ...] = ()
    other_dates: tuple[datetime, ...] = ()
    source: str = ""
    merge_depth: MergeDepth = NEVER_MERGED

    def __repr__(self) -> str:
        return f"<Entry {self.id}, {self.tokens} tokens>"

    def as_dict(self, *, with_source: bool = False) -> dict[str, Any]:
        """Its public form in the ledger and in search results; in questions of consent with its source."""
        shown: dict[str, Any] = {"id": self.id, **shown_days(self.date, self.other_dates), "tokens": self.tokens}
        if self.merge_depth.merges:
            shown |= {"merged_sources": self.merge_depth.sources, "merges": self.merge_depth.merges}
        if self.constitutional:
            shown["constitutional"] = True
        if self.tags:
            shown["tags"] = list(self.tags)
        if with_source:
            shown["source"] = self.source
        shown["content"] = self.content
        return shown


def read_entries(agent_id: int, keys: AgentKeys) -> list[PromptMemory]:
    """The active core memories, oldest first, revealed."""
    return _reveal_memories(_CORE, keys, {"agent": agent_id})


def read_journal(agent_id: int, keys: AgentKeys, *, since: datetime, own: bool = False) -> list[PromptMemory]:
    """The active journal entries since then, oldest first, revealed; with `own` without Whetstone's notes."""
    return _reveal_memories(_OWN_JOURNAL if own else _JOURNAL, keys, {"agent": agent_id, "since": since})


def _reveal_memories(completed: Select[Any], keys: AgentKeys, parameters: Mapping[str, Any]) -> list[PromptMemory]:
    found = list[PromptMemory]()
    rows = read_revealed(completed, keys, parameters)
    for text, number, at, tokens, fixed, tags, dates, source, sources, merges in rows:
        depth = MergeDepth(sources, merges) if sources or merges else NEVER_MERGED
        found.append(PromptMemory(number, at, tokens, text, fixed, tuple(tags), tuple(dates), source, depth))
    return found


def _shown(query: Select[Any]) -> Select[Any]:
    columns = ("origin_at", "tokens", "constitutional", "tags", "other_dates", "source", "merged_sources", "merges")
    return complete_revealed(query, *columns)


_ACTIVE_JOURNAL = Memory.active(bindparam("agent"), MemoryType.JOURNAL).where(Memory.origin_at >= bindparam("since"))
_CORE = _shown(Memory.active(bindparam("agent"), MemoryType.CORE))
_JOURNAL = _shown(_ACTIVE_JOURNAL)
_OWN_JOURNAL = _shown(_ACTIVE_JOURNAL.where(Memory.source.not_in(PLATFORM_NOTES)))


def imported_lately(agent_id: int) -> set[int]:
    """Ids of memories that a human imported within the last days, and of what was consolidated from such ones since."""
    entries = read_rows(_IMPORTS, {"agent": agent_id, "since": now() - IMPORTED_LATELY})
    found: set[int] = set()
    for (_, action), rows in groupby(entries, key=lambda row: row[:2]):
        ids = {memory_id for *_, memory_id in rows}
        if action == Action.IMPORT or ids & found:
            found |= ids
    return found


_IMPORTS = Prepared(
    select(AuditLog.id, AuditLog.action, MemoryState.memory_id)
    .join(MemoryState, MemoryState.entry_id == AuditLog.id)
    .where(AuditLog.agent_id == bindparam("agent"), AuditLog.at >= bindparam("since"))
    .where(or_(and_(AuditLog.action == Action.IMPORT, is_by_human()), AuditLog.action == Action.REFINEMENT_CONSOLIDATE))
    .order_by(AuditLog.id)
)


def consent_context(
    system_prompt: str | None,
    core: Sequence[PromptMemory],
    journal: Sequence[PromptMemory],
    window: int | None,
    imported: Collection[int],
) -> dict[str, Any]:
    """Who the agent is and what it remembers, with sources, for a question that asks for a YES.

    Without the memories of the ids `imported`; it says how many are left out.
    """
    shown_core, shown_journal = ([each for each in part if each.id not in imported] for part in (core, journal))
    left_out = len(core) + len(journal) - len(shown_core) - len(shown_journal)
    return memory_context(system_prompt, shown_core, shown_journal, window, left_out=left_out)


def memory_context(
    system_prompt: str | None,
    core: Sequence[PromptMemory],
    journal: Sequence[PromptMemory],
    window: int | None,
    *,
    left_out: int | None = None,
) -> dict[str, Any]:
    """Who the agent is, and what it remembers. `left_out`: see `consent_context`; with it, sources are named."""
    with_source = left_out is not None
    shown, heading = fit_ledger(core, window, with_source=with_source)
    journal_room = room_of(window) - sum(map(weigh_line, shown))
    system = render_prompt(
        "consent_system.txt",
        identity=system_prompt or NO_IDENTITY,
        ledger=shown,
        ledger_heading=heading,
        journal=newest_that_fit(journal, journal_room, with_source=with_source),
        with_source=with_source,
        left_out=count_nouns(left_out, "memory") if left_out else "",
        days=IMPORTED_LATELY.days,
    )
    return {"role": "system", "content": system}


def fit_ledger(
    entries: Sequence[PromptMemory], window: int | None, *, with_source: bool = False
) -> tuple[list[str], str]:
    """The oldest entries that fit into the ledger's share of the window, encoded; and the heading that counts them."""
    shown = _lines_that_fit(entries, room_of(window), fewest=1, with_source=with_source)
    if len(shown) == len(entries):
        return shown, f"Your ledger: {len(entries)} core memories, oldest first."
    return shown, (
        f"Your ledger: {len(shown)} of {len(entries)} core memories, oldest first; "
        "reach the others with search_memories."
    )


def newest_that_fit(journal: Sequence[PromptMemory], room: int, *, with_source: bool = False) -> list[str]:
    """The newest entries for which there is room, in characters; oldest first, encoded."""
    return _lines_that_fit(reversed(journal), room, with_source=with_source)[::-1]


def _lines_that_fit(entries: Iterable[PromptMemory], room: int, fewest: int = 0, *, with_source: bool) -> list[str]:
    shown: list[str] = []
    for entry in entries:
        line = encode_json(entry.as_dict(with_source=with_source))
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
