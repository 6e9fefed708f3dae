"""The bridge to Flask: one hand-over a request, and a long answer that holds no thread while its peer reads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from app.gateway.bridge import PIECE_BYTES, FlaskThreads

Start = Callable[..., Any]
SCOPE = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "http_version": "1.1", "headers": []}
LONG = b"x" * PIECE_BYTES


class Peer:
    """Who asks; it does not read on while `reads` is not set."""

    def __init__(self, body: bytes = b"") -> None:
        self.got: list[dict[str, Any]] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self._body = body

    async def receive(self) -> Any:
        return {"type": "http.request", "body": self._body, "more_body": False}

    async def send(self, message: Any) -> None:
        self.got.append(message)
        await self.reads.wait()

    async def ask(self, bridge: FlaskThreads) -> None:
        await bridge(SCOPE, self.receive, self.send)

    @property
    def said(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.got)


def test_an_answer_comes_in_one_piece() -> None:
    def answer(environ: Any, start: Start) -> Iterable[bytes]:
        start("201 CREATED", [("X-Said", "yes "), ("Content-Length", "14")])
        return [b"you said ", environ["wsgi.input"].read()]

    async def ask() -> Peer:
        peer = Peer(b"hello")
        await peer.ask(FlaskThreads(answer, 1))
        return peer

    begin, body = asyncio.run(ask()).got
    assert (begin["status"], begin["headers"]) == (201, [(b"x-said", b"yes"), (b"content-length", b"14")])
    assert body == {"type": "http.response.body", "body": b"you said hello"}


def test_a_long_answer_holds_no_thread_while_its_peer_reads() -> None:
    async def ask() -> tuple[bytes, bytes]:
        bridge, slow, quick = FlaskThreads(_long_answer, 1), Peer(), Peer()
        slow.reads.clear()
        waiting = asyncio.create_task(slow.ask(bridge))
        async with asyncio.timeout(5):
            await quick.ask(bridge)
            slow.reads.set()
            await waiting
        return slow.said, quick.said

    assert asyncio.run(ask()) == (LONG * 3 + b"end", LONG * 3 + b"end")


def test_what_is_still_being_made_is_sent_as_it_comes() -> None:
    go_on = threading.Event()

    def answer(environ: Any, start: Start) -> Iterator[bytes]:
        start("200 OK", [])
        yield b"first"
        if not go_on.wait(5):
            raise TimeoutError
        yield b"second"

    class Reader(Peer):
        async def send(self, message: Any) -> None:
            await super().send(message)
            if message.get("body") == b"first":
                go_on.set()

    async def ask() -> Peer:
        peer = Reader()
        await peer.ask(FlaskThreads(answer, 1))
        return peer

    assert [message.get("body") for message in asyncio.run(ask()).got] == [None, b"first", b"second", b""]


def test_all_of_an_answer_is_made_in_one_context() -> None:
    place = ContextVar("place", default="outside")

    def answer(environ: Any, start: Start) -> Iterator[bytes]:
        token = place.set("inside")
        start("200 OK", [])  # of no known length: sent in pieces
        yield LONG
        yield place.get().encode()
        place.reset(token)

    async def ask() -> bytes:
        peer = Peer()
        await peer.ask(FlaskThreads(answer, 4))
        return peer.said

    assert asyncio.run(ask()) == LONG + b"inside"


def test_an_answer_is_closed_where_the_server_stops() -> None:
    closed = threading.Event()

    def answer(environ: Any, start: Start) -> Iterator[bytes]:
        try:
            yield from _long_answer(environ, start)
        finally:
            closed.set()

    async def stop() -> None:
        peer = Peer()
        peer.reads.clear()
        asking = asyncio.create_task(peer.ask(FlaskThreads(answer, 1)))
        while not peer.got:
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(stop())
    assert closed.wait(5)


def test_what_is_given_up_before_a_thread_came_to_it_is_not_begun() -> None:
    began, go_on = list[str](), threading.Event()

    def answer(environ: Any, start: Start) -> Iterable[bytes]:
        began.append(environ["PATH_INFO"])
        go_on.wait(5)
        start("200 OK", [])
        return [b""]

    async def stop() -> None:
        bridge, peer = FlaskThreads(answer, 1), Peer()
        first = asyncio.create_task(peer.ask(bridge))
        while not began:
            await asyncio.sleep(0.001)
        queued = asyncio.create_task(bridge({**SCOPE, "path": "/queued"}, peer.receive, peer.send))
        await asyncio.sleep(0.001)
        queued.cancel()
        with pytest.raises(asyncio.CancelledError):
            await queued
        go_on.set()
        await first
        await Peer().ask(bridge)

    asyncio.run(stop())
    assert began == ["/", "/"]


def test_what_breaks_is_told_to_the_server() -> None:
    def answer(environ: Any, start: Start) -> Iterable[bytes]:
        raise ZeroDivisionError

    async def ask() -> None:
        peer = Peer()
        with pytest.raises(ZeroDivisionError):
            await peer.ask(FlaskThreads(answer, 1))
        assert peer.got == []

    asyncio.run(ask())


def test_an_application_that_ends_in_a_stop_iteration_is_told_to_the_server_too() -> None:
    """A future takes any other exception: with this one whoever asked would wait for ever."""

    def answer(environ: Any, start: Start) -> Iterable[bytes]:
        return [next(iter(list[bytes]()))]

    async def ask() -> None:
        with pytest.raises(RuntimeError, match="StopIteration"):
            await asyncio.wait_for(Peer().ask(FlaskThreads(answer, 1)), 10)

    asyncio.run(ask())


def _long_answer(environ: Any, start: Start) -> Iterator[bytes]:
    start("200 OK", [("Content-Length", str(3 * len(LONG) + 3))])
    yield from [LONG] * 3
    yield b"end"
