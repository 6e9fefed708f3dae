"""How many connections may wait for the rest of a request, and which of them is given up when there are too many.

A good client sends its request in one piece; a slow attack leaves hundreds unfinished. So nobody new is refused: above
the bound the oldest unfinished one is closed, of the same address, or of the address that has the most. Requests that
have arrived whole, and event streams, count only among all connections, where idle ones go first.
"""

from __future__ import annotations

import resource
import time
from typing import Protocol

import structlog

from app.networks import network_of

MOST_UNFINISHED = 1_000
MOST_CONNECTIONS = 10_000
RESERVED_DESCRIPTORS = 256
"""For the database, the broker, templates and logs."""

TOLD_EVERY_SECONDS = 60.0

log = structlog.get_logger(__name__)


class Closable(Protocol):
    """A connection, as this module sees it."""

    def give_up(self) -> None:
        """Close it at once."""


class Connections:
    """All connections of this process, of the event loop's thread only. The dictionaries keep the oldest first.

    `most_per_address`, of unfinished ones, is None where all come through a reverse proxy.
    """

    def __init__(
        self, most_per_address: int | None, *, unfinished: int = MOST_UNFINISHED, connections: int = MOST_CONNECTIONS
    ) -> None:
        self._most_per_address, self._most_unfinished, self._most = most_per_address, unfinished, connections
        self._all: dict[Closable, str] = {}
        self._idle: dict[Closable, None] = {}
        self._unfinished: dict[str, dict[Closable, None]] = {}
        self._told_at = float("-inf")
        self._closed = 0

    @property
    def count(self) -> int:
        return len(self._all)

    @property
    def unfinished(self) -> int:
        return sum(map(len, self._unfinished.values()))

    def join(self, connection: Closable, host: str) -> None:
        """A new connection, of which nothing has arrived yet."""
        self._all[connection] = network_of(host)
        self.begin(connection)
        if len(self._all) > self._most:
            self._give_up(next(iter(self._idle), None) or self._oldest_of_the_fullest(), "all")

    def begin(self, connection: Closable) -> None:
        """A request has begun to arrive."""
        self._idle.pop(connection, None)
        address = self._all.get(connection)
        if address is None:
            return
        mine = self._unfinished.setdefault(address, {})
        mine[connection] = None
        most = self._most_per_address
        if address and most is not None and len(mine) > most:
            self._give_up(next(iter(mine)), "address")
        elif self.unfinished > self._most_unfinished:
            self._give_up(self._oldest_of_the_fullest(), "all")

    def whole(self, connection: Closable) -> None:
        """The request has arrived."""
        address = self._all.get(connection, "")
        mine = self._unfinished.get(address, {})
        mine.pop(connection, None)
        if not mine:
            self._unfinished.pop(address, None)

    def rest(self, connection: Closable) -> None:
        """It was answered, and waits for the next request."""
        if connection in self._all:
            self._idle[connection] = None

    def leave(self, connection: Closable) -> None:
        self.whole(connection)
        self._idle.pop(connection, None)
        self._all.pop(connection, None)

    def _oldest_of_the_fullest(self) -> Closable:
        fullest = max(self._unfinished, key=lambda address: len(self._unfinished[address]))
        return next(iter(self._unfinished[fullest]))

    def _give_up(self, connection: Closable, bound: str) -> None:
        address = self._all.get(connection, "")
        self.leave(connection)
        connection.give_up()
        self._log_closed(bound, address)

    def _log_closed(self, bound: str, address: str) -> None:
        """Once a minute, with the count: an attack must not fill the log."""
        self._closed += 1
        if time.monotonic() - self._told_at < TOLD_EVERY_SECONDS:
            return
        hint = "behind a reverse proxy, set WHETSTONE_UNFINISHED_PER_ADDRESS=off" if bound == "address" else ""
        log.warning("unfinished requests closed", closed=self._closed, bound=bound, address=address, hint=hint)
        self._told_at, self._closed = time.monotonic(), 0


def descriptors_for_connections() -> int:
    """Let this process open as many files as it may at all, and answer how many of them connections may take."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CONNECTIONS + RESERVED_DESCRIPTORS
    most = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return max(most - RESERVED_DESCRIPTORS, 64)
