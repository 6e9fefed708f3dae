"""Leaves of the log of statements that this process has checked, and not yet written to its copy outside the database.

They are committed: whoever appends next goes on behind them without waiting for the disk, and whoever writes takes
along all that wait.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

from app.silo.logcopy import LeafRecord


class KnownLeaf(NamedTuple):
    """One that was checked: its place, what the copy says of it, and its note where that is kept whole."""

    position: int
    record: LeafRecord
    kept: bytes | None


class LeavesAhead:
    """In the order of their positions, without a gap. Every thread uses the same one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leaves: list[KnownLeaf] = []

    def __len__(self) -> int:
        return len(self._leaves)

    def end(self, size: int) -> int:
        """The position behind all that is known, of a log whose copy has `size` leaves."""
        with self._lock:
            return max(size, self._leaves[-1].position + 1 if self._leaves else 0)

    def add(self, leaves: Sequence[KnownLeaf]) -> None:
        """Those that are not among them yet: a thread that appended behind others may have been first to say so."""
        with self._lock:
            end = self._leaves[-1].position + 1 if self._leaves else 0
            self._leaves += [leaf for leaf in leaves if leaf.position >= end]

    def all(self) -> list[KnownLeaf]:
        """What waits now."""
        with self._lock:
            return list(self._leaves)

    def has_any_of(self, agent: str) -> bool:
        """Whether one is about this agent, or chain."""
        return any(leaf.record.agent == agent for leaf in self.all())

    def drop(self, last: int) -> None:
        """Those up to that position: they are in the copy."""
        with self._lock:
            self._leaves = [leaf for leaf in self._leaves if leaf.position > last]

    def forget(self) -> None:
        """All of them."""
        with self._lock:
            self._leaves = []
