"""SQLite has one writer: the threads of a process come to its lock in the order in which they asked for it.

SQLite's own way to wait is to sleep and look again. Hundreds of threads that do so keep one another out by chance, for
many seconds, while the lock lies idle between them. So a process sends one thread at a time, and SQLite's waiting
arbitrates between processes only. What a person waits for comes before hundreds of refinements that do not mind.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

_IS_AWAITED = ContextVar("is_awaited", default=False)


@contextmanager
def awaited() -> Iterator[None]:
    """What this thread writes meanwhile is what a person waits for: its turns come before all others."""
    before = _IS_AWAITED.set(True)
    try:
        yield
    finally:
        _IS_AWAITED.reset(before)


class WriteTurn:
    """What one thread of a process has, until it ends it: the right to ask for the write lock, up to a moment."""

    def __init__(self, turns: WriteTurns, until: float) -> None:
        self._turns = turns
        self._until = until
        self._has_ended = False

    def is_late(self) -> bool:
        """Whether it has waited for as long as it may."""
        return time.monotonic() >= self._until

    def end(self) -> None:
        """The next one's turn. Safe to repeat."""
        if not self._has_ended:
            self._has_ended = True
            self._turns.pass_on()


class _Place(NamedTuple):
    """Where a thread waits: at a gate that is opened when it is its turn."""

    thread: threading.Thread
    gate: threading.Lock
    is_awaited: bool


class WriteTurns:
    """Who of a process may ask a database for its write lock: one at a time; those for whom somebody waits, then the
    others; of each, first come, first served.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[bool, deque[_Place]] = {True: deque(), False: deque()}
        self._holder: threading.Thread | None = None

    @property
    def waiting(self) -> int:
        """How many threads wait for a turn."""
        return sum(map(len, self._queues.values()))

    def take(self, seconds: float) -> WriteTurn | None:
        """Wait for a turn, at most so long; None if none came."""
        turn = WriteTurn(self, time.monotonic() + seconds)
        place = _Place(threading.current_thread(), threading.Lock(), _IS_AWAITED.get())
        place.gate.acquire()
        if self._holder is place.thread:
            raise RuntimeError("this thread has a write transaction already, on another connection")
        return turn if self._enter(place) or self._wait(place, seconds) else None

    def pass_on(self) -> None:
        """To the one who has waited longest."""
        with self._lock:
            queue = self._queues[True] or self._queues[False]
            if not queue:
                self._holder = None
                return
            place = queue.popleft()
            self._holder = place.thread
            place.gate.release()

    def _enter(self, place: _Place) -> bool:
        """At once if nobody has the turn, or else into the queue.

        Nothing is made while the lock is held: that could collect garbage, and what is collected may end a turn.
        """
        with self._lock:
            if self._holder is None:
                self._holder = place.thread
                return True
            self._queues[place.is_awaited].append(place)
            return False

    def _wait(self, place: _Place, seconds: float) -> bool:
        try:
            return place.gate.acquire(timeout=seconds) or not self._leave(place)
        except BaseException:
            if not self._leave(place):
                self.pass_on()
            raise

    def _leave(self, place: _Place) -> bool:
        """Wait no longer; False where the turn has come just now."""
        with self._lock:
            queue = self._queues[place.is_awaited]
            is_waiting = place in queue
            if is_waiting:
                queue.remove(place)
            return is_waiting


class TurnConnection(sqlite3.Connection):
    """Keeps a turn for as long as its transaction lasts, however that ends."""

    _turn: WriteTurn | None = None

    def keep(self, turn: WriteTurn) -> None:
        """It ends with the transaction that was begun in it."""
        self._turn = turn

    def commit(self) -> None:
        try:
            super().commit()
        finally:
            self._end_turn(if_idle=True)

    def rollback(self) -> None:
        try:
            super().rollback()
        finally:
            self._end_turn(if_idle=True)

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._end_turn()

    def _end_turn(self, *, if_idle: bool = False) -> None:
        turn = self._turn
        if turn is None or (if_idle and self.in_transaction):
            return
        self._turn = None
        turn.end()
