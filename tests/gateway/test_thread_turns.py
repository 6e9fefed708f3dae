"""Turns of Flask's threads: short requests come in order, and a slow one holds nobody up for long."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from flask import Flask

from app.extensions import db, is_sqlite
from app.gateway.bridge import FlaskThreads
from app.gateway.thread_turns import ThreadTurns
from app.processes import asgi
from tests.gateway.test_bridge import LONG, SCOPE, Peer, Start

LATER = 60.0
"""A turn that nobody loses within a test."""

SOON = 0.02


def run(test: Coroutine[Any, Any, None]) -> None:
    async def within_seconds() -> None:
        async with asyncio.timeout(5):
            await test

    asyncio.run(within_seconds())


class Desk:
    """An application whose requests are told by their paths: those to `/slow…` wait until they are let go."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.most = 0
        self.let_go = threading.Event()
        self._inside = 0
        self._lock = threading.Lock()

    def __call__(self, environ: Any, start: Start) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        with self._lock:
            self.began.append(path)
            self._inside += 1
            self.most = max(self.most, self._inside)
        try:
            if path.startswith("/slow") and not self.let_go.wait(5):
                raise TimeoutError
            if path == "/broken":
                raise ZeroDivisionError
        finally:
            with self._lock:
                self._inside -= 1
        start("200 OK", [("Content-Length", "4")])
        return [b"done"]


def bridge_of(desk: Any, *, at_once: int = 1, most_seconds: float = LATER) -> FlaskThreads:
    bridge = FlaskThreads(desk, 8, at_once)
    bridge._turns = ThreadTurns(at_once, most_seconds)
    return bridge


async def ask(bridge: FlaskThreads, path: str) -> bytes:
    peer = Peer()
    await bridge({**SCOPE, "path": path}, peer.receive, peer.send)
    return peer.said


async def until(desk: Desk, *paths: str) -> None:
    while not {*paths} <= {*desk.began}:
        await asyncio.sleep(0.001)


def test_requests_come_in_the_order_in_which_they_asked_one_at_a_time() -> None:
    async def test() -> None:
        desk = Desk()
        bridge = bridge_of(desk)
        paths = [f"/{number}" for number in range(50)]
        await asyncio.gather(*(ask(bridge, path) for path in paths))
        assert (desk.began, desk.most) == (paths, 1)

    run(test())


def test_two_slow_requests_hold_a_third_up_no_longer_than_their_turns_last() -> None:
    async def test() -> None:
        desk = Desk()
        bridge = bridge_of(desk, most_seconds=SOON)
        slow = [asyncio.create_task(ask(bridge, f"/slow/{number}")) for number in range(2)]
        assert await asyncio.create_task(ask(bridge, "/third")) == b"done"
        assert desk.began == ["/slow/0", "/slow/1", "/third"]
        desk.let_go.set()
        assert await asyncio.gather(*slow) == [b"done", b"done"]

    run(test())


def test_who_lost_a_turn_gives_back_no_second_one() -> None:
    async def test() -> None:
        turns = ThreadTurns(1, SOON)
        slow = await turns.take()
        next_one = await turns.take()
        slow.end()
        another = asyncio.create_task(turns.take())
        await asyncio.sleep(0)
        assert not another.done()
        next_one.end()
        (await another).end()

    run(test())


def test_as_many_work_at_once_as_are_told() -> None:
    async def test() -> None:
        desk = Desk()
        bridge = bridge_of(desk, at_once=3)
        slow = [asyncio.create_task(ask(bridge, f"/slow/{number}")) for number in range(4)]
        await until(desk, "/slow/0", "/slow/1", "/slow/2")
        await asyncio.sleep(SOON)
        assert desk.began == ["/slow/0", "/slow/1", "/slow/2"]
        desk.let_go.set()
        await asyncio.gather(*slow)

    run(test())


def test_a_broken_request_gives_its_turn_back() -> None:
    async def test() -> None:
        bridge = bridge_of(Desk())
        with pytest.raises(ZeroDivisionError):
            await ask(bridge, "/broken")
        assert await ask(bridge, "/next") == b"done"

    run(test())


def test_one_whose_server_stops_meanwhile_gives_its_turn_back() -> None:
    async def test() -> None:
        desk = Desk()
        bridge = bridge_of(desk)
        slow = asyncio.create_task(ask(bridge, "/slow"))
        await until(desk, "/slow")
        slow.cancel()
        assert await ask(bridge, "/next") == b"done"
        desk.let_go.set()
        with suppress(asyncio.CancelledError):
            await slow

    run(test())


def test_one_that_waits_no_longer_is_passed_over() -> None:
    async def test() -> None:
        desk = Desk()
        bridge = bridge_of(desk)
        slow = asyncio.create_task(ask(bridge, "/slow"))
        await until(desk, "/slow")
        gone, stays = asyncio.create_task(ask(bridge, "/gone")), asyncio.create_task(ask(bridge, "/stays"))
        await asyncio.sleep(0)
        gone.cancel()
        desk.let_go.set()
        assert await stays == b"done"
        await slow
        assert desk.began == ["/slow", "/stays"]

    run(test())


def test_one_that_is_given_up_at_the_moment_of_its_turn_passes_it_on() -> None:
    async def test() -> None:
        turns = ThreadTurns(1, LATER)
        held = await turns.take()
        gone = asyncio.create_task(turns.take())
        await asyncio.sleep(0)
        held.end()
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        (await turns.take()).end()

    run(test())


def test_an_answer_in_pieces_holds_no_turn_while_its_peer_reads() -> None:
    def answer(environ: Any, start: Start) -> Iterator[bytes]:
        start("200 OK", [])
        yield LONG
        yield b"end"

    async def test() -> None:
        bridge, slow, quick = bridge_of(answer), Peer(), Peer()
        slow.reads.clear()
        waiting = asyncio.create_task(slow.ask(bridge))
        while not slow.got:
            await asyncio.sleep(0.001)
        await quick.ask(bridge)
        assert quick.said == LONG + b"end"
        slow.reads.set()
        await waiting

    run(test())


def test_agents_requests_take_turns_and_on_sqlite_pages_do_too(web: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[tuple[int, int | None]]()

    class Recorded(FlaskThreads):
        def __init__(self, app: Any, threads: int, at_once: int | None = None) -> None:
            made.append((threads, at_once))
            super().__init__(app, threads, at_once)

    monkeypatch.setattr(asgi, "FlaskThreads", Recorded)
    asgi.assemble_application(web)
    with web.app_context():
        at_once = (1, 1) if is_sqlite(db.session()) else (None, 4)
    assert made == [*zip((asgi.PAGE_THREADS, asgi.API_THREADS), at_once, strict=True)]
