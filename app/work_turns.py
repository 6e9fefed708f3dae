"""Hundreds of refinements in one process: a few of them work at a time, in the order in which they came to it.

Python runs one thread at a time. Where hundreds want to run, it gives each of them a moment in turn: all come to their
question to a model late, and together, and then nothing is left to do until all the answers come at once. In order, the
first question is out long before the last one is composed, and its answer is dealt with while others wait for theirs.
What a person waits for takes no turn, and finds few threads before it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

PATIENCE_SECONDS = 15.0
"""Whoever has waited for so long goes on without a turn: what hangs in one is to hold up nobody else for long."""


class WorkTurns:
    """So many at once; first come, first served."""

    def __init__(self, at_once: int, patience: float = PATIENCE_SECONDS) -> None:
        self._free, self._patience = at_once, patience
        self._lock = threading.Lock()
        self._gates: deque[threading.Lock] = deque()

    @property
    def waiting(self) -> int:
        """How many threads wait for a turn."""
        return len(self._gates)

    @property
    def is_free(self) -> bool:
        """Whether who asks now gets one at once."""
        return self._free > 0

    def take(self) -> bool:
        """Wait for a turn with patience; False if none came."""
        gate = threading.Lock()
        gate.acquire()
        return self._enter(gate) or gate.acquire(timeout=self._patience) or not self._leave(gate)

    def pass_on(self) -> None:
        """To the one who has waited longest."""
        with self._lock:
            if self._gates:
                self._gates.popleft().release()
            else:
                self._free += 1

    def _enter(self, gate: threading.Lock) -> bool:
        """At once if fewer have one, or else into the queue."""
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            self._gates.append(gate)
            return False

    def _leave(self, gate: threading.Lock) -> bool:
        """Wait no longer; False where the turn has come just now."""
        with self._lock:
            is_waiting = gate in self._gates
            if is_waiting:
                self._gates.remove(gate)
            return is_waiting


class _Turn:
    """Of one thread, which may have it or be waiting elsewhere."""

    def __init__(self, turns: WorkTurns) -> None:
        self._turns = turns
        self._is_held = False

    def take(self) -> None:
        self._is_held = self._turns.take()

    def give_back(self) -> None:
        if self._is_held:
            self._is_held = False
            self._turns.pass_on()


_TURN: ContextVar[_Turn | None] = ContextVar("work_turn", default=None)


@contextmanager
def in_turn(turns: WorkTurns) -> Iterator[None]:
    """Do it once it is this thread's turn. No transaction may be open: those in it would wait for one who waits."""
    turn = _Turn(turns)
    before = _TURN.set(turn)
    try:
        turn.take()
        yield
    finally:
        turn.give_back()
        _TURN.reset(before)


@contextmanager
def waiting_elsewhere() -> Iterator[None]:
    """This thread waits for a model, or pauses: its turn, if it has one, is another's meanwhile. No transaction may be
    open behind it either."""
    turn = _TURN.get()
    if turn is None:
        yield
        return
    turn.give_back()
    try:
        yield
    finally:
        turn.take()
