"""Threads for the agents' door: however much one agent asks at once, by however many tokens, others find a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from starlette.types import ASGIApp, Receive, Scope, Send

from app.gateway.answers import Refusals

AT_ONCE = 2
MOST_WAITING = 100
WITHOUT_TOKEN = 0
"""The turns of all who carry no live token together: they are only told so, which is soon done."""

AgentOf = Callable[[Scope], Awaitable[int | None]]


@dataclass
class _Turns:
    free: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    users: int = 0


@dataclass(frozen=True, eq=False)
class FairTurns:
    """What REST and MCP share: `AT_ONCE` requests of one agent are worked on, `MOST_WAITING` wait, the rest get 429."""

    refusals: Refusals
    agent_of: AgentOf
    _held: dict[int, _Turns] = field(default_factory=dict)

    def around(self, app: ASGIApp) -> ASGIApp:
        return partial(self._take_turn, app)

    async def _take_turn(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        key = await self.agent_of(scope) or WITHOUT_TOKEN
        turns = self._held.setdefault(key, _Turns())
        if turns.users >= AT_ONCE + MOST_WAITING:
            await self.refusals.of(scope, 429)(scope, receive, send)
            return
        turns.users += 1
        try:
            async with turns.free:
                await app(scope, receive, send)
        finally:
            turns.users -= 1
            if turns.users == 0:
                self._held.pop(key, None)
