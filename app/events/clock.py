"""One timer for all open streams: a beat for whoever heard nothing for long, an end for whoever takes nothing.

A timer for each stream and message was a quarter of what an event cost on a thousand open pages.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from app.events.hub import Listener

LOOKS = 8
"""How often the timer looks within the shorter of the two times: so much later than said something may happen."""


@dataclass(eq=False)
class ClockedStream:
    """A stream that is open. `since`: when it began to send what is not taken yet, or else sent something last."""

    listener: Listener
    limit: asyncio.Timeout
    is_sending: bool = False
    since: float = field(default_factory=time.monotonic)

    async def sending(self, sent: Awaitable[None]) -> None:
        """Wait until it is taken; for how long, the clock decides."""
        self.is_sending, self.since = True, time.monotonic()
        await sent
        self.is_sending, self.since = False, time.monotonic()


class StreamClock:
    """`keep_alive` and `patience` in seconds."""

    def __init__(self, keep_alive: float, patience: float) -> None:
        self._keep_alive = keep_alive
        self._patience = patience
        self._open: set[ClockedStream] = set()
        self._timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def watching(self, listener: Listener) -> AsyncIterator[ClockedStream]:
        """For as long as this stream is served. Raises TimeoutError where its client took nothing for `patience`."""
        async with asyncio.timeout(None) as limit:
            stream = ClockedStream(listener, limit)
            self._open.add(stream)
            if self._timer is None:
                self._look_again()
            try:
                yield stream
            finally:
                self._open.discard(stream)

    def _look(self) -> None:
        self._timer = None
        now = time.monotonic()
        for stream in self._open:
            waited = now - stream.since
            if stream.is_sending and waited >= self._patience:
                stream.limit.reschedule(asyncio.get_running_loop().time())
            elif not stream.is_sending and waited >= self._keep_alive:
                stream.listener.nudge()
        if self._open:
            self._look_again()

    def _look_again(self) -> None:
        seconds = min(self._keep_alive, self._patience) / LOOKS
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)
