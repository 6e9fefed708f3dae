"""Connections to models that outlive a refinement: the next one asks the same server without a new TLS handshake.

A client is lent to one at a time: no two refinements ever share a connection, so what goes wrong on one is no other's
concern, and hundreds in flight don't queue for the lock of one pool. Whoever had trouble with it closes it instead of
giving it back. It keeps no header, no key, no cookie and no deadline: those belong to the single request.
Imported with LiteLLM, never before: httpx is heavy.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass

import httpx

from app.llm.wire import own_connections

MOST_KEPT = 64
"""Clients that wait to be lent again, in all. One holds a connection; after five idle seconds it makes a new one."""


@dataclass(frozen=True)
class Reached:
    """What a client has in common with those that may have it next: not even two keys of one server share one."""

    provider: str
    api_base: str | None
    api_key: str | None

    def __repr__(self) -> str:
        return f"Reached({self.provider!r})"


class Lending:
    """The clients of one process that nobody uses now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: defaultdict[Reached, list[httpx.Client]] = defaultdict(list)
        self._count = 0

    def lend(self, reached: Reached) -> httpx.Client:
        with self._lock:
            if kept := self._kept.get(reached):
                self._count -= 1
                client = kept.pop()
                if not kept:
                    del self._kept[reached]
                return client
        return own_connections()

    def take_back(self, reached: Reached, client: httpx.Client) -> None:
        """After a use without trouble. The one kept longest goes where there are too many."""
        with self._lock:
            self._kept[reached].append(client)
            self._count += 1
            surplus = self._drop_one() if self._count > MOST_KEPT else None
        if surplus is not None:
            surplus.close()

    def _drop_one(self) -> httpx.Client:
        longest = next(iter(self._kept))
        client = self._kept[longest].pop(0)
        if not self._kept[longest]:
            del self._kept[longest]
        self._count -= 1
        return client


LENDING = Lending()
"""This process's."""
