"""The hub of a web process: hears that there is news, looks into the table, renders each part once, and fans it out.

Events are durable, and what is sent is always the present state with the newest event's id: events in quick succession,
or missed ones, become one frame. So a listener holds at most one frame, and nothing is lost.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import TypeVar

import structlog
from flask import Flask
from redis.asyncio import Redis

from app.events.broker import CHANNEL, broker_namespace, broker_url
from app.events.topics import EventSummary, StreamUser, Topic, Viewer, newest_event, notes_after
from app.extensions import db
from app.logs import error_place

LOOK_SECONDS = 2.0
"""How often the hub looks for events by itself, whether the broker sends messages or not."""

RECHECK_SECONDS = 5.0
"""How long a user who was deactivated, or whose roles changed, may still hold a stream."""

GATHER_SECONDS = 0.05
"""From one delivery to the next: a first event goes out at once, and what follows right behind it is one rendering."""

SHARED_SECONDS = 1.0
"""How long a rendered frame is reused for others who ask for the same."""

THREADS = 4

T = TypeVar("T")
log = structlog.get_logger(__name__)


class End(StrEnum):
    """Why a listener gets nothing more. After BYE, and only then, the browser must not connect again."""

    BYE = "bye"
    """Its user was signed out or may not see the page any more."""
    GONE = "gone"
    """The browser closed the connection."""
    CLOSING = "closing"
    """The server stops."""
    BROKEN = "broken"
    """The page could not be rendered."""


@dataclass(frozen=True)
class Frame:
    """The state of a page's parts as of an event, ready to be sent."""

    event_id: int
    wire: bytes


@dataclass(eq=False)
class Listener:
    """One open stream. It keeps only the newest frame, so a slow browser skips some. `seen` was offered last."""

    topic: Topic
    visitor: StreamUser
    seen: int
    end: End | None = None
    _frame: Frame | None = None
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def offer(self, frame: Frame) -> None:
        if frame.event_id > self.seen:
            self.seen, self._frame = frame.event_id, frame
            self._news.set()

    def dismiss(self, end: End) -> None:
        self.end = self.end or end
        self._news.set()

    def nudge(self) -> None:
        """Have its `wait` return, with or without a frame."""
        self._news.set()

    async def wait(self) -> Frame | None:
        """The next frame, or None when it was nudged, or when `end` says why there will be none."""
        await self._news.wait()
        self._news.clear()
        frame, self._frame = self._frame, None
        if self.end is not None:
            self._news.set()
        return frame


class Hub:
    def __init__(self, flask: Flask, *, look: float = LOOK_SECONDS, recheck: float = RECHECK_SECONDS) -> None:
        self.flask = flask
        self._look, self._recheck = look, recheck
        self._listeners: set[Listener] = set()
        self._cursors: dict[int, int] = {}
        self._woken = asyncio.Event()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="stream")
        self._frames: dict[tuple[Topic, Viewer, int], asyncio.Task[Frame]] = {}
        self._is_closing = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def open_streams(self) -> int:
        return len(self._listeners)

    async def run(self) -> None:
        """Serve until cancelled."""
        self._loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:
            for work in (self._listen_to_broker, self._deliver_news, self._check_visitors):
                tasks.create_task(work())

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run blocking work in an application context of its own."""

        def within() -> T:
            with self.flask.app_context():
                return work()

        return await asyncio.get_running_loop().run_in_executor(self._threads, within)

    async def join(self, listener: Listener) -> None:
        """Have the listener told of everything that happens from now on."""
        account_id = listener.visitor.viewer.account_id
        self._listeners.add(listener)
        if self._is_closing:
            listener.dismiss(End.CLOSING)
        if account_id not in self._cursors:
            newest = await self.in_thread(lambda: newest_event(account_id))
            self._cursors.setdefault(account_id, newest)

    def leave(self, listener: Listener) -> None:
        self._listeners.discard(listener)
        account_id = listener.visitor.viewer.account_id
        if all(other.visitor.viewer.account_id != account_id for other in self._listeners):
            self._cursors.pop(account_id, None)

    def close_soon(self) -> None:
        """From any thread: end all streams, so that the server can stop; their pages come back by themselves."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._close_listeners)

    def _close_listeners(self) -> None:
        self._is_closing = True
        for listener in self._listeners:
            listener.dismiss(End.CLOSING)

    async def frame(self, topic: Topic, viewer: Viewer, event_id: int) -> Frame:
        """The topic's parts as they are now. `event_id` was read before, so that the state includes it.

        Whoever asks for the same at the same time, such as all pages after a restart, shares one rendering.
        """
        key = (topic, viewer, event_id)
        if key not in self._frames:
            work = self.in_thread(
                lambda: Frame(event_id, encode_message(event_id, render_part(self.flask, topic, viewer)))
            )
            self._frames[key] = task = asyncio.create_task(work)
            asyncio.get_running_loop().call_later(SHARED_SECONDS, self._forget_frame, key, task)
        task = self._frames[key]
        try:
            return await asyncio.shield(task)
        except Exception:
            self._forget_frame(key, task)
            raise

    def _forget_frame(self, key: tuple[Topic, Viewer, int], task: asyncio.Task[Frame]) -> None:
        if self._frames.get(key) is task:
            del self._frames[key]

    async def _deliver_news(self) -> None:
        delivered = -GATHER_SECONDS
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), self._look)
            await asyncio.sleep(delivered + GATHER_SECONDS - time.monotonic())
            self._woken.clear()
            began = time.monotonic()
            try:
                if await self._deliver_new_notes():
                    delivered = began
            except Exception as error:  # noqa: BLE001 - the database may be away for a while; the cursors stay
                log.warning("streams not fed", error=type(error).__name__, at=error_place(error))

    async def _deliver_new_notes(self) -> bool:
        """Whether there were any."""
        cursors = dict(self._cursors)
        if not cursors:
            return False
        news = await self.in_thread(lambda: _read_new_notes(cursors))
        for account_id, notes in news.items():
            if account_id in self._cursors:
                self._cursors[account_id] = notes[-1].id
        groups: dict[tuple[Topic, Viewer], list[Listener]] = defaultdict(list)
        for listener in self._listeners:
            groups[listener.topic, listener.visitor.viewer].append(listener)
        await asyncio.gather(*(self._offer_frame(*group, listeners, news) for group, listeners in groups.items()))
        return bool(news)

    async def _offer_frame(
        self, topic: Topic, viewer: Viewer, listeners: list[Listener], news: dict[int, list[EventSummary]]
    ) -> None:
        ids = [note.id for note in news.get(viewer.account_id, ()) if topic.concerns(note)]
        if not ids or all(listener.seen >= ids[-1] for listener in listeners):
            return
        try:
            frame = await self.frame(topic, viewer, ids[-1])
        except Exception as error:  # noqa: BLE001 - their pages come back and ask again; nothing is lost
            log.error("part not rendered", topic=topic.name, error=type(error).__name__, at=error_place(error))  # noqa: TRY400
            for listener in listeners:
                listener.dismiss(End.BROKEN)
            return
        for listener in listeners:
            listener.offer(frame)

    async def _check_visitors(self) -> None:
        while True:
            await asyncio.sleep(self._recheck)
            known = {listener.visitor for listener in self._listeners}
            if not known:
                continue
            try:
                still_so = await self.in_thread(partial(StreamUser.still_so, known))
            except Exception as error:  # noqa: BLE001 - asked again soon
                log.warning("visitors not checked", error=type(error).__name__, at=error_place(error))
                continue
            for listener in tuple(self._listeners):
                if listener.visitor in known - still_so:
                    listener.dismiss(End.BYE)

    async def _listen_to_broker(self) -> None:
        """Listen to the broker, and connect again whenever it goes away."""
        warned_at = 0.0
        while True:
            try:
                await self._read_broker_messages()
            except Exception as error:  # noqa: BLE001 - without a broker the hub looks by itself
                if time.monotonic() - warned_at > 60:
                    log.warning("the broker is silent", error=type(error).__name__)
                    warned_at = time.monotonic()
            await asyncio.sleep(1)

    async def _read_broker_messages(self) -> None:
        """Returns at once where there is no broker. Raises RedisError when it goes away."""
        url, channel = await self.in_thread(lambda: (broker_url(), f"{broker_namespace()}{CHANNEL}"))
        if not url:
            return
        broker = Redis.from_url(url, socket_connect_timeout=2, health_check_interval=20)
        async with broker, broker.pubsub(ignore_subscribe_messages=True) as subscription:
            await subscription.subscribe(channel)
            self._woken.set()
            while True:
                message = await subscription.get_message(timeout=20)
                if message is not None:
                    self._on_message(bytes(message["data"]).decode("ascii", "replace"))

    def _on_message(self, message: str) -> None:
        what, _, number = message.partition(":")
        if what == "bye" and number.isdigit():
            self._sign_out(int(number))
        elif what.isdigit() and int(what) in self._cursors:
            self._woken.set()

    def wake_soon(self, account_id: int, _event_id: int) -> None:
        """`wake_streams` for the only process with pages, from any of its threads: behind the event's commit.

        Who finds the hub woken already needs no more: it looks into the table only after that was taken back.
        """
        if account_id in self._cursors and self._loop is not None and not self._woken.is_set():
            with suppress(RuntimeError):  # the server has just stopped; what was written is written
                self._loop.call_soon_threadsafe(self._woken.set)

    def sign_out_soon(self, user_id: int) -> None:
        """From any thread: close a user's streams, in all tabs; those that are signed in elsewhere come back."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._sign_out, user_id)

    def _sign_out(self, user_id: int) -> None:
        for listener in tuple(self._listeners):
            if listener.visitor.user_id == user_id:
                listener.dismiss(End.BYE)


def render_part(flask: Flask, topic: Topic, viewer: Viewer) -> str:
    """Render what the views registered as `stream_partials`, within a short request: `url_for` needs one."""
    settings = flask.extensions["settings"]
    base = settings.base_url or f"http://{settings.host}:{settings.port}"
    with flask.test_request_context("/events", base_url=base):
        try:
            return str(flask.extensions["stream_partials"](topic.name, viewer))
        finally:
            db.session.remove()


def encode_message(event_id: int, markup: str) -> bytes:
    """An unnamed server-sent event. Carriage returns would end a line of it."""
    lines = markup.replace("\r", "").split("\n")
    data = "".join(f"data: {line}\n" for line in lines)
    return f"id: {event_id}\n{data}\n".encode()


def _read_new_notes(cursors: dict[int, int]) -> dict[int, list[EventSummary]]:
    found = {account_id: notes_after(account_id, cursor) for account_id, cursor in cursors.items()}
    return {account_id: notes for account_id, notes in found.items() if notes}
