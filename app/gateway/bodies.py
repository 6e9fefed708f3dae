"""Bodies of requests, read whole before a thread is taken: with a size, a deadline, and a bound for all together.

Up to `SMALL_BYTES` anybody may send; more only who Flask knows, which it is asked before the body is read. Who is not
known is handed on without a body: Flask says in its own words why it does not take the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.gateway.answers import Refusals
from app.gateway.protocol import Deadlines

SMALL_BYTES = 64_000
MOST_BYTES_AT_ONCE = 256_000_000
"""Of all bodies that are larger than `SMALL_BYTES`, while they arrive."""

IsKnown = Callable[[Scope], Awaitable[bool]]
MostBytes = Callable[[Scope], int]


@dataclass
class Budget:
    """What bodies that arrive now may take of the memory, over all routes."""

    left: int = MOST_BYTES_AT_ONCE


@dataclass(frozen=True, eq=False)
class Bodies:
    """ASGI middleware. `reads_chunks` for an application that takes bodies without a length."""

    app: ASGIApp
    refusals: Refusals
    budget: Budget
    most_bytes: MostBytes
    is_known: IsKnown
    deadlines: Deadlines
    reads_chunks: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        length = _length_of(headers, self.most_bytes(scope) if self.reads_chunks else 0)
        if length > self.most_bytes(scope):
            await self.refusals.of(scope, 413)(scope, receive, send)
        elif length == 0:
            await self.app(scope, _Replay(b"", receive), send)
        elif length <= SMALL_BYTES:
            await self._hand_on(scope, receive, send, length)
        elif not await self.is_known(scope):
            await self.app(scope, _Replay(b"", receive), send)
        else:
            await self._hand_on_large(scope, receive, send, length)

    async def _hand_on_large(self, scope: Scope, receive: Receive, send: Send, length: int) -> None:
        if length > self.budget.left:
            await self.refusals.of(scope, 503)(scope, receive, send)
            return
        self.budget.left -= length
        try:
            await self._hand_on(scope, receive, send, length)
        finally:
            self.budget.left += length

    async def _hand_on(self, scope: Scope, receive: Receive, send: Send, length: int) -> None:
        try:
            async with asyncio.timeout(self.deadlines.of_body(length)):
                body = await _read_body(receive, length)
        except TimeoutError:
            await self.refusals.of(scope, 408)(scope, receive, send)
            return
        if body is None:
            return  # the peer went away
        if len(body) > length:
            await self.refusals.of(scope, 413)(scope, receive, send)
            return
        await self.app(scope, _Replay(body, receive), send)


def _length_of(headers: Headers, of_chunks: int) -> int:
    """By its Content-Length; in chunks, where those are read, as long as it may be."""
    if "transfer-encoding" in headers:
        return of_chunks
    said = headers.get("content-length", "0")
    return int(said) if said.isascii() and said.isdigit() else 0


async def _read_body(receive: Receive, most: int) -> bytes | None:
    """The body, no more than one piece above `most`; None where the peer went away."""
    pieces: list[bytes] = []
    size = 0
    while size <= most:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if not message.get("more_body", False):
            break
    return b"".join(pieces)


class _Replay:
    """The body in one piece; after it, only whether the peer went away."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        while (message := await self._receive())["type"] != "http.disconnect":
            pass
        return message
