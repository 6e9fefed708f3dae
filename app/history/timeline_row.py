"""One row of a refinement's timeline: what pages, their twins and the command line print of a step; no content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from app.values.kept_specifics import kept_specifics
from app.values.plural import count_nouns, noun_for


@dataclass(frozen=True)
class TimelineRow:
    """One line of the timeline. `tokens` is a pair (before, after); `ids` are memories.

    `quote` is what the agent wrote to the admins, `name` a function that a model made up. `rollback` is the id of the
    one that the row tells of, `entry` the audit entry of an operation. `parts` are the turns that one row stands for.
    """

    kind: str
    icon: str
    title: str
    at: datetime
    tone: str = "neutral"
    detail: str = ""
    ids: tuple[int, ...] = ()
    result: int | None = None
    tokens: tuple[int, int] | None = None
    retention: Decimal | None = None
    count: int = 1
    reversed: bool = False
    turns: tuple[int, int] | None = None
    calls: int = 0
    model_tokens: int = 0
    quote: str = ""
    rollback: str = ""
    entry: int | None = None
    specifics: Mapping[str, int] | None = None
    searches: int = 0
    name: str = ""
    parts: tuple[TimelineRow, ...] = ()

    @property
    def ids_words(self) -> str:
        """`memory 3`, `memories 3, 4 → 12`; empty where it names none."""
        if not self.ids:
            return ""
        result = "" if self.result is None else f" → {self.result}"
        return f"{noun_for(len(self.ids), 'memory')} {', '.join(map(str, self.ids))}{result}"

    @property
    def specifics_words(self) -> str:
        """Of an operation: how many specifics it kept; empty where none was looked for."""
        return kept_specifics(self.specifics["checked"], self.specifics["confirmed"]) if self.specifics else ""

    @property
    def can_be_undone(self) -> bool:
        """Whether it is an operation that stands."""
        return self.entry is not None and not self.reversed

    def with_turn_words(self) -> TimelineRow:
        """Of turns: the same row, titled and told by its counts."""
        first, last = self.turns or (0, 0)
        title = f"Turn {last}" if first == last else f"Turns {first} to {last}"
        searches = [count_nouns(self.searches, "search", "searches")] if self.searches else []
        words = [count_nouns(self.calls, "call"), *searches, f"{self.model_tokens:,} model tokens"]
        return replace(self, title=title, detail=", ".join(words))

    def as_json(self) -> dict[str, Any]:
        said = {"kind": self.kind, "title": self.title, "at": self.at.isoformat(), "detail": self.detail or None}
        counted = {"ids": list(self.ids) or None, "result": self.result, "tokens": self.tokens and list(self.tokens)}
        rest = {
            "retention": None if self.retention is None else float(self.retention),
            "count": self.count,
            "reversed": self.reversed or None,
            "quote": self.quote or None,
            "specifics": self.specifics and dict(self.specifics),
            "function": self.name or None,
            "entry": self.entry,
            "parts": [part.as_json() for part in self.parts] or None,
        }
        return {key: value for key, value in (said | counted | rest).items() if value is not None}
