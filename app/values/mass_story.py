"""The mass of one refinement as one story: the same figures and sentence for pages, the command line and programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Decimal

from app.values.plural import count_nouns

TENTH = Decimal("0.1")

NOUNS = {
    "consolidated": "consolidation",
    "updated": "update",
    "deleted": "deletion",
    "protected": "protection",
    "deduplicated": "exact duplicate",
}
"""What was done, by the name of its count."""

MUTATIONS = tuple(name for name in NOUNS if name not in ("protected", "deduplicated"))
"""Those that count as changes."""


@dataclass(frozen=True)
class MassStory:
    """Masses in tokens. `start`: before anything was done. `after_dedup`: without its exact duplicates, which is what
    retention is measured from. `after`: None while it is open. `limit`: None where nothing is measured.

    `reversed_words` say what was taken back, by a guard before its end or by a rollback since; empty where the work
    stands.
    """

    start: int
    duplicates: int
    after_dedup: int
    after: int | None
    retention: Decimal | None
    limit: Decimal | None
    reversed_words: str = ""
    by_guard: bool = False

    @property
    def is_reversed(self) -> bool:
        return bool(self.reversed_words)

    @property
    def line(self) -> str:
        """`12,988 → 12,823 after 11 exact duplicates (not counted) → 12,684: 98.9% of 12,823 kept, limit 75%`."""
        masses = f"{self.start:,}"
        if self.duplicates:
            uncounted = " (not counted)" if self.limit is not None else ""
            masses += f" → {self.after_dedup:,} after {count_nouns(self.duplicates, 'exact duplicate')}{uncounted}"
        if self.after is not None and not self._is_told(self.after):
            masses += f" → {self.after:,}"
        taken_back = f"{self.reversed_words} reversed" if self.is_reversed else ""
        told = "; ".join(part for part in (taken_back, self._kept) if part)
        return f"{masses}: {told}" if told else masses

    def _is_told(self, mass: int) -> bool:
        """Whether the sentence ends in that mass already."""
        return mass == self.after_dedup and (self.duplicates > 0 or self.is_reversed)

    @property
    def _kept(self) -> str:
        if self.retention is None or self.limit is None:
            return ""
        verb = "would have been kept" if self.by_guard else "was kept" if self.is_reversed else "kept"
        return (
            f"{percent(self.retention, self.limit)} of {self.after_dedup:,} {verb}, limit {exact_percent(self.limit)}"
        )


def percent(ratio: Decimal | float | str, limit: Decimal | float | str = 1) -> str:
    """`66.7%`: one digit, rounded, but never to the other side of `limit`: 74.96% of at least 75% is 74.9%.

    What is less than all is never shown as 100%.
    """
    share, edge = Decimal(str(ratio)) * 100, Decimal(str(limit)) * 100
    rounded = share.quantize(TENTH, ROUND_HALF_UP)
    if (share < edge <= rounded) or (share < 100 <= rounded):
        rounded = share.quantize(TENTH, ROUND_FLOOR)
    elif rounded < edge <= share:
        rounded = share.quantize(TENTH, ROUND_CEILING)
    return _plain_percent(rounded)


def exact_percent(ratio: Decimal | float | str) -> str:
    """A limit as it was set: `75%`, `72.25%`."""
    return _plain_percent(Decimal(str(ratio)) * 100)


def as_nouns(counts: Mapping[str, int]) -> str:
    """`2 consolidations, 4 deletions`."""
    return ", ".join(count_nouns(count, NOUNS[name]) for name, count in counts.items() if count)


def _plain_percent(share: Decimal) -> str:
    return f"{share:f}".rstrip("0").rstrip(".") + "%" if "." in f"{share:f}" else f"{share:f}%"
