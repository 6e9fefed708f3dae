"""HTTP/1.1 over one connection, by uvicorn, with deadlines: for each part of a request and of its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.gateway.connections import Connections

MOST_HEAD_BYTES = 64_000
MOST_HEADERS = 100
MOST_PIPELINED = 16

BYTES_PER_SECOND = 16_000
"""What a body must bring on average, beyond the seconds that each has."""

TAKEN_BYTES = 16_000
"""What a peer must take of its answer within `Deadlines.reading`, where something waits for it."""


@dataclass(frozen=True)
class Deadlines:
    """In seconds. `lingering`: the rest of a request that was answered already is thrown away for so long."""

    head: float = 10.0
    body: float = 10.0
    lingering: float = 5.0
    reading: float = 30.0

    def of_body(self, size: int) -> float:
        return self.body + size / BYTES_PER_SECOND


class RequestState(Enum):
    """What of the next request is here."""

    NOTHING = auto()
    HEAD = auto()
    BODY = auto()
    ALL = auto()


class HeadTooLarge(Exception):
    """A request's head, or what was sent ahead, is larger than what is read."""


class GuardedProtocol(HttpToolsProtocol):
    """A connection that holds nobody up, and that is closed where its peer takes too long."""

    def __init__(self, connections: Connections, deadlines: Deadlines, **given: Any) -> None:
        super().__init__(**given)
        self._connections = connections
        self._deadlines = deadlines
        self._arriving = RequestState.HEAD
        self._heads = 0
        self._head_bytes = 0
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._unread = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._connections.join(self, self.client[0] if self.client else "")
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.leave(self)
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        super().connection_lost(exc)

    def give_up(self) -> None:
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._arriving in (RequestState.NOTHING, RequestState.ALL):
            self._await_head()
        head = self._heads
        super().data_received(data)
        if self._arriving is RequestState.HEAD and self._heads == head:
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES:
                self._refuse_request(b"431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        if self._arriving is not RequestState.HEAD:
            self._await_head()
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if len(self.headers) > MOST_HEADERS:
            raise HeadTooLarge

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= MOST_PIPELINED:
            raise HeadTooLarge
        self._cancel_timer("head")
        self._arriving = RequestState.BODY
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._arriving = RequestState.ALL
        self._cancel_timer("linger")
        self._connections.whole(self)
        super().on_message_complete()
        if self.cycle.response_complete:
            self._await_next()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._arriving is RequestState.BODY and self.cycle.response_complete:
            self._start_timer("linger", self._deadlines.lingering, self.give_up)
        elif self._arriving is RequestState.ALL and self.cycle.response_complete:
            self._await_next()
        if self.transport.get_write_buffer_size():
            self._watch_reading()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._cancel_timer("reading")

    def send_400_response(self, msg: str) -> None:
        """Also what `HeadTooLarge` becomes."""
        self._refuse_request(b"400 Bad Request")

    def _await_next(self) -> None:
        self._arriving = RequestState.NOTHING
        self._connections.rest(self)

    def _await_head(self) -> None:
        self._arriving, self._head_bytes = RequestState.HEAD, 0
        self._heads += 1
        self._connections.begin(self)
        self._start_timer("head", self._deadlines.head, self._head_is_overdue)

    def _head_is_overdue(self) -> None:
        """One that was sent ahead waits for the answers before it; who sent nothing is told nothing."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._start_timer("head", self._deadlines.head, self._head_is_overdue)
        elif self._head_bytes or self.cycle is not None:
            self._refuse_request(b"408 Request Timeout")
        else:
            self.transport.close()

    def _refuse_request(self, status: bytes) -> None:
        """Without a request there is no page to answer with. In the middle of an answer, nothing can be said."""
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self.give_up()
            return
        head = b"HTTP/1.1 " + status + b"\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
        said = status + b"\n"
        self.transport.write(head + b"content-length: %d\r\n\r\n" % len(said) + said)
        self.transport.close()
        self._watch_reading()

    def _watch_reading(self) -> None:
        self._unread = self.transport.get_write_buffer_size()
        self._start_timer("reading", self._deadlines.reading, self._drop_who_does_not_read)

    def _drop_who_does_not_read(self) -> None:
        left = self.transport.get_write_buffer_size()
        if left and self._unread - left < TAKEN_BYTES:
            self.give_up()
        elif left:
            self._watch_reading()

    def _start_timer(self, name: str, seconds: float, act: Callable[[], None]) -> None:
        self._cancel_timer(name)
        self._timers[name] = self.loop.call_later(seconds, act)

    def _cancel_timer(self, name: str) -> None:
        if timer := self._timers.pop(name, None):
            timer.cancel()
