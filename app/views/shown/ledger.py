"""What the tab of the sealed ledger shows: a page of memories, and how large, old and whence all are; numbers only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, case, func, select

from app.errors import NotFound
from app.extensions import db, now
from app.models import Agent, Memory, MemoryType
from app.models.keyset import TimeCursor, cut_page
from app.models.memory import OLDEST_MEMORIES
from app.models.memory_rows import BlindRow
from app.shapes.memory import LedgerRowShape
from app.values.text import is_row_id

LEDGER_ROWS = 50

CORE, JOURNAL, DISCARDED = "core", "journal", "discarded"
LEDGERS = {CORE: "Core", JOURNAL: "Journal", DISCARDED: "Discarded"}
"""What the ledger can list, as its address names it. Discarded are those of both types that were removed, softly."""

SIZES = (10, 25, 50, 100, 250, 500)
"""Tokens: the upper ends of the bars; what is larger has a bar of its own."""

AGES = ((7, "7 days"), (30, "30 days"), (90, "90 days"), (365, "a year"))

SOURCES_SHOWN = 7


class Ledger:
    """A page of memories, oldest first: of one of LEDGERS. `next_after` is the cursor to go on from."""

    choices = LEDGERS

    def __init__(self, agent: Agent, *, show: str = "", after: str = "") -> None:
        self.show = show if show in LEDGERS else CORE
        cursor = TimeCursor.parse(after)
        query = select(Memory).where(*self.conditions(agent))
        self.rows, last = cut_page(BlindRow.load(OLDEST_MEMORIES.page(query, LEDGER_ROWS, cursor)), LEDGER_ROWS)
        self.after = after if cursor else ""
        self.next_after = str(TimeCursor(last.origin_at, last.id)) if last else ""

    def conditions(self, agent: Agent) -> tuple[ColumnElement[bool], ...]:
        """What all memories that it lists are."""
        is_discarded = Memory.discarded_at.is_not(None)
        is_shown = is_discarded if self.show == DISCARDED else ~is_discarded & (Memory.type == MemoryType(self.show))
        return Memory.agent_id == agent.id, Memory.erased_at.is_(None), is_shown

    @property
    def is_live(self) -> bool:
        """Whether the stream keeps it fresh: only the first page of core memories."""
        return self.show == CORE and not self.after

    def as_json(self) -> dict[str, Any]:
        rows = [LedgerRowShape.of(row).as_json() for row in self.rows]
        return {"show": self.show, "ledger": rows, "next_after": self.next_after or None}


@dataclass(frozen=True)
class Histogram:
    """How many memories fall under each word, in an order that means something."""

    title: str
    bars: Sequence[tuple[str, int]]

    @property
    def most(self) -> int:
        return max((count for _, count in self.bars), default=0)

    def as_json(self) -> list[dict[str, Any]]:
        return [{"of": words, "memories": count} for words, count in self.bars]


class LedgerFigures:
    """Sizes, ages and sources of all memories that the ledger lists, by one query."""

    def __init__(self, agent: Agent, ledger: Ledger) -> None:
        sizes, ages, sources = Counter[int](), Counter[int](), Counter[str]()
        size = case(*((Memory.token_estimate <= most, place) for place, most in enumerate(SIZES)), else_=len(SIZES))
        since = (now() - timedelta(days=days) for days, _ in AGES)
        age = case(*((Memory.origin_at >= moment, place) for place, moment in enumerate(since)), else_=len(AGES))
        columns = (size.label("size"), age.label("age"), Memory.source)
        grouped = select(*columns, func.count()).where(*ledger.conditions(agent)).group_by(*columns)
        for size_place, age_place, source, count in db.session.execute(grouped).tuples():
            sizes[size_place] += count
            ages[age_place] += count
            sources[source.replace("import:", "import: ")] += count
        self.count = sizes.total()
        self.sizes = Histogram("Sizes, in tokens", _in_order(sizes, _size_words()))
        self.ages = Histogram("Ages, by date", _in_order(ages, [*(f"up to {words}" for _, words in AGES), "older"]))
        self.sources = Histogram("Sources", _largest(sources))

    @property
    def all(self) -> tuple[Histogram, ...]:
        return self.sizes, self.ages, self.sources

    def as_json(self) -> dict[str, Any]:
        return {"sizes": self.sizes.as_json(), "ages": self.ages.as_json(), "sources": self.sources.as_json()}


def find_memory(agent: Agent, typed: str) -> int:
    """The memory of that number. Raises NotFound: a number that is another agent's is like one that nobody has."""
    number = typed.strip()
    mine = select(Memory.id).where(Memory.agent_id == agent.id)
    found = db.session.scalar(mine.where(Memory.id == int(number))) if is_row_id(number) else None
    if found is None:
        raise NotFound(f"{agent.name} has no memory of this number.")
    return found


def _size_words() -> list[str]:
    lower = [1, *(most + 1 for most in SIZES)]
    return [*(f"{least}–{most}" for least, most in zip(lower, SIZES, strict=False)), f"over {SIZES[-1]}"]


def _in_order(counts: Counter[int], words: Iterable[str]) -> list[tuple[str, int]]:
    return [(each, counts[place]) for place, each in enumerate(words)]


def _largest(counts: Counter[str]) -> list[tuple[str, int]]:
    """The rest are one bar: an import's name is anything."""
    first = counts.most_common(SOURCES_SHOWN)
    rest = counts.total() - sum(count for _, count in first)
    return [*first, *([("others", rest)] if rest else [])]
