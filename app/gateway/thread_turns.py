"""Threads of Flask's in order: so many of them work at a time, and a slow one soon holds nobody up.

Python runs one thread at a time. Where several want to run, each gets a moment and wakes the next, which costs more
than the work that is short. So the event loop hands a request to a thread once it is its turn, and no thread waits.
Whoever has a turn for `MOST_SECONDS`, such as one that waits for a worker or for another's transaction, works on
without it, beside the next.
"""

from __future__ import annotations

import asyncio
from collections import deque

MOST_SECONDS = 0.02
"""Several times what a short request takes."""


class ThreadTurns:
    """So many at once; first come, first served. Of the event loop's thread only."""

    def __init__(self, at_once: int, most_seconds: float = MOST_SECONDS) -> None:
        self._free, self._most_seconds = at_once, most_seconds
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> ThreadTurn:
        """Wait for a turn."""
        if self._free:
            self._free -= 1
        else:
            await self._wait()
        return ThreadTurn(self, self._most_seconds)

    def pass_on(self) -> None:
        """To the one who has waited longest."""
        while self._waiting:
            gate = self._waiting.popleft()
            if not gate.done():
                gate.set_result(None)
                return
        self._free += 1

    async def _wait(self) -> None:
        gate = asyncio.get_running_loop().create_future()
        self._waiting.append(gate)
        try:
            await gate
        except asyncio.CancelledError:
            if not gate.cancelled():  # the turn has come just now
                self.pass_on()
            raise


class ThreadTurn:
    """One request's, until it ends or has lasted too long."""

    def __init__(self, turns: ThreadTurns, most_seconds: float) -> None:
        self._turns = turns
        self._is_held = True
        self._timer = asyncio.get_running_loop().call_later(most_seconds, self.end)

    def end(self) -> None:
        """Once, however often it is said."""
        if self._is_held:
            self._is_held = False
            self._timer.cancel()
            self._turns.pass_on()
