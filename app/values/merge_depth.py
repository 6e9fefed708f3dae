"""Merge depth: how many memories stand behind one, over how many merges.

Each merge puts new words in the place of older ones. Whoever reads the result, the agent first of all, should see how
far it is from what was first said.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from app.values.plural import count_nouns


@dataclass(frozen=True, slots=True, order=True)
class MergeDepth:
    """Both are 0 of a memory that no merge made. The order is by sources, then by merges."""

    sources: int = 0
    merges: int = 0

    @classmethod
    def merged(cls, depths: Sequence[MergeDepth]) -> Self:
        """Of what is merged from these: a plain memory is one source, and this merge is one more."""
        return cls(sum(max(each.sources, 1) for each in depths), sum(each.merges for each in depths) + 1)

    @classmethod
    def deepest(cls, depths: Iterable[MergeDepth]) -> MergeDepth:
        """Of exact copies: their words are the same, so they came as far as the deepest; nothing is added."""
        return max(depths, default=cls())

    @property
    def words(self) -> str:
        """`merged from 5 over 2 merges`; empty of a plain memory."""
        return f"merged from {self.sources:,} over {count_nouns(self.merges, 'merge')}" if self.merges else ""


NEVER_MERGED = MergeDepth()
