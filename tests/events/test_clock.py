"""One timer for all streams: each gets its beat, and one whose browser takes nothing ends alone."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from app.events.clock import StreamClock
from app.events.hub import Listener
from app.events.topics import StreamUser, Topic

SOON = 0.02
NEVER = 3600.0


def listening() -> Listener:
    return Listener(Topic("overview"), cast(StreamUser, None), 0)


async def ended(clock: StreamClock) -> None:
    """Until its timer has run out."""
    async with asyncio.timeout(10):
        while clock._timer is not None:
            await asyncio.sleep(SOON)


def test_a_stream_that_heard_nothing_is_nudged_again_and_again() -> None:
    async def hear() -> None:
        async with asyncio.timeout(10), StreamClock(SOON, NEVER).watching(listening()) as stream:
            for _ in range(3):
                assert await stream.listener.wait() is None
                await stream.sending(asyncio.sleep(0))

    asyncio.run(hear())


def test_what_is_not_taken_ends_its_own_stream_only() -> None:
    async def serve() -> None:
        clock, stuck = StreamClock(NEVER, SOON), asyncio.Event()

        async def never_taken() -> None:
            async with clock.watching(listening()) as stream:
                await stream.sending(cast("asyncio.Future[None]", stuck.wait()))

        async with asyncio.timeout(10), clock.watching(listening()) as other:
            await other.sending(asyncio.sleep(0))
            with pytest.raises(TimeoutError):
                await asyncio.create_task(never_taken())
            assert len(clock._open) == 1
            await other.sending(asyncio.sleep(0))

    asyncio.run(serve())


def test_what_is_taken_in_time_may_be_sent_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    moment, clock = [0.0], StreamClock(NEVER, 30)
    monkeypatch.setattr("app.events.clock.time", SimpleNamespace(monotonic=lambda: moment[0]))
    taken: list[float] = []

    async def taken_after(seconds: float) -> None:
        moment[0] += seconds
        clock._look()
        await asyncio.sleep(0)
        taken.append(seconds)

    async def serve() -> None:
        async with clock.watching(listening()) as stream:
            for seconds in (29, 29, 29, 30):
                moment[0] += 29  # nothing to send
                await stream.sending(taken_after(seconds))

    with pytest.raises(TimeoutError):
        asyncio.run(serve())
    assert taken == [29, 29, 29]


def test_without_a_stream_no_timer_runs_and_the_next_one_has_one_again() -> None:
    async def serve() -> None:
        clock = StreamClock(SOON, NEVER)
        for _ in range(2):
            async with asyncio.timeout(10), clock.watching(listening()) as stream:
                assert await stream.listener.wait() is None
            await ended(clock)

    asyncio.run(serve())
