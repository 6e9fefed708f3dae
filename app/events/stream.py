"""The event stream of a page: `GET /events?topic=…&after=ID`, one an open page, resumed by `Last-Event-ID`.

Each message is the topic's live parts as they are now, as `<hx-partial>` blocks that htmx morphs into the page, with
the id of the newest event that they show. The views render them: `app.extensions["stream_partials"](topic, viewer)`.
Who is signed out, or asks for what is another's, gets `event: bye` with status 200: htmx would repeat a refused
request for ever. Who holds too many already is refused; that page asks for its news itself meanwhile.

`GET /events/poll?topic=…&after=ID` answers at once, with the newest event's id in the header `Last-Event-ID`.
"""

from __future__ import annotations

import asyncio
import io
from collections import Counter
from contextlib import suppress

import structlog
from a2wsgi.wsgi import build_environ
from flask import Blueprint, Response, abort, current_app, request
from flask_security import current_user
from starlette.types import Message, Receive, Scope, Send

from app.errors import NotFound
from app.events.clock import ClockedStream, StreamClock
from app.events.hub import End, Hub, Listener
from app.events.topics import StreamUser, Topic, catch_up, last_seen
from app.logs import error_place
from app.models.user import AUDITOR

KEEP_ALIVE_SECONDS = 15.0
SEND_SECONDS = 30.0
"""A client that takes nothing for so long is dropped; it comes back and resumes."""

MOST_STREAMS = 2_000
"""In one process, with those that have asked and wait for an answer."""

MOST_STREAMS_OF_USER = 50
AGAIN_SECONDS = 30
"""A page that got no stream asks for its news itself, and for a stream again."""

log = structlog.get_logger(__name__)
blueprint = Blueprint("events", __name__)

BYE = b"event: bye\ndata: bye\n\n"
KEEP_ALIVE = b"event: beat\ndata: beat\n\n"
"""A named event, because a page's script takes 45 silent seconds for a dead connection and does not see comments."""

CLOSED = [
    (b"cache-control", b"no-store, no-transform"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
"""On every answer, refusals too."""

HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no"), *CLOSED]


AGAIN = (b"retry-after", b"%d" % AGAIN_SECONDS)


@blueprint.get("/events/poll")
def poll() -> Response:
    """The stream's twin for whoever can't hold one open: 204 when nothing is new, else the same partials."""
    visitor = StreamUser.of(current_user._get_current_object())
    if visitor is None:
        abort(401)
    if not visitor.viewer.may(AUDITOR):
        abort(403)
    account_id = visitor.viewer.account_id
    topic = Topic.parse(request.args.get("topic", ""))
    if topic is None or not topic.belongs_to(account_id):
        raise NotFound("There is no such topic in this account.")
    newest = catch_up(topic, account_id, last_seen(request.args.get("after"), account_id))
    if newest is None:
        return Response(status=204)
    markup = str(current_app.extensions["stream_partials"](topic.name, visitor.viewer))
    return Response(markup, headers={"Last-Event-ID": str(newest)}, mimetype="text/html")


class EventStream:
    """The ASGI endpoint."""

    def __init__(self, hub: Hub, *, keep_alive: float = KEEP_ALIVE_SECONDS, patience: float = SEND_SECONDS) -> None:
        self._hub = hub
        self._clock = StreamClock(keep_alive, patience)
        self._patience = patience
        self._held = 0
        self._held_by: Counter[int] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "GET":
            await _send_empty_answer(send, 405, (b"allow", b"GET"))
        elif self._held >= MOST_STREAMS:
            await _send_empty_answer(send, 503, AGAIN)
        else:
            self._held += 1
            try:
                await self._answer_stream(scope, receive, send)
            finally:
                self._held -= 1

    async def _answer_stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            listener = await self._hub.in_thread(lambda: self._admit_listener(scope))
        except Exception as error:  # noqa: BLE001 - such as a database that is away
            _log_error("stream refused", error)
            await _send_empty_answer(send, 503, (b"retry-after", b"5"))
            return
        if listener is None:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            await send({"type": "http.response.body", "body": BYE})
        elif self._held_by[listener.visitor.user_id] >= MOST_STREAMS_OF_USER:
            await _send_empty_answer(send, 429, AGAIN)
        else:
            await self._serve_to_the_end(listener, receive, send)

    def _admit_listener(self, scope: Scope) -> Listener | None:
        """Ask Flask, by a request context of its own, who this is; nothing of it lives on."""
        environ = build_environ(scope, io.BytesIO())
        with self._hub.flask.request_context(environ):
            visitor = StreamUser.of(current_user._get_current_object())
            topic = Topic.parse(request.args.get("topic", ""))
            if visitor is None or topic is None or not visitor.viewer.may(AUDITOR):
                return None
            if not topic.belongs_to(visitor.viewer.account_id):
                return None
            said = request.headers.get("Last-Event-ID") or request.args.get("after")
            return Listener(topic, visitor, last_seen(said, visitor.viewer.account_id))

    async def _serve_to_the_end(self, listener: Listener, receive: Receive, send: Send) -> None:
        user_id = listener.visitor.user_id
        self._held_by[user_id] += 1
        try:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            async with self._clock.watching(listener) as stream:
                await self._serve_stream(stream, receive, send)
        except TimeoutError:
            return  # without a last part: the server closes the connection
        except Exception as error:  # noqa: BLE001 - the page comes back and asks again
            _log_error("stream broke", error)
            with suppress(TimeoutError):
                await self._send_last(send, b"")
        finally:
            self._held_by[user_id] -= 1
            self._held_by += Counter()  # forget who holds none

    async def _serve_stream(self, stream: ClockedStream, receive: Receive, send: Send) -> None:
        listener = stream.listener
        seen = listener.seen
        watching = asyncio.create_task(_watch_disconnect(receive, listener))
        try:
            await stream.sending(send(_part(KEEP_ALIVE)))
            await self._hub.join(listener)
            await self._replay_missed(listener, seen)
            while listener.end is None:
                frame = await listener.wait()
                if frame is not None or listener.end is None:
                    await stream.sending(send(_part(frame.wire if frame else KEEP_ALIVE)))
            if listener.end is not End.GONE:
                await self._send_last(send, BYE if listener.end is End.BYE else b"")
        finally:
            watching.cancel()
            self._hub.leave(listener)

    async def _replay_missed(self, listener: Listener, seen: int) -> None:
        """Everything that the page missed, as one frame; it may also come a second time, which shows the same."""
        topic, viewer = listener.topic, listener.visitor.viewer
        newest = await self._hub.in_thread(lambda: catch_up(topic, viewer.account_id, seen))
        if newest is not None:
            listener.offer(await self._hub.frame(topic, viewer, newest))

    async def _send_last(self, send: Send, body: bytes) -> None:
        """Raises TimeoutError for a client that does not read."""
        async with asyncio.timeout(self._patience):
            await send(_part(body, more=False))


def _part(body: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}


async def _watch_disconnect(receive: Receive, listener: Listener) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    listener.dismiss(End.GONE)


async def _send_empty_answer(send: Send, status: int, header: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [header, *CLOSED]})
    await send({"type": "http.response.body", "body": b""})


def _log_error(what: str, error: Exception) -> None:
    log.error(what, error=type(error).__name__, at=error_place(error))
