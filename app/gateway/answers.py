"""What the gateway answers by itself, without a thread: errors in the form that the asker reads, made once at start."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import cast

from flask import Flask, Response, g
from flask.typing import ResponseReturnValue
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from app.problems import status_phrase
from app.views.errors import SENTENCES, answer_error

TOO_BUSY = "As many large requests are under way as this server holds at once. Nothing was written; try again soon."
METHODS = {"GET", "HEAD"}
"""Methods of the health checks that are answered here."""

FORMS: Mapping[str, tuple[str, dict[str, str]]] = {
    "page": ("/", {"Accept": "text/html"}),
    "part": ("/", {"HX-Request": "true"}),
    "problem": ("/api/v1/me", {"Accept": "application/json"}),
}


@dataclass(frozen=True)
class ShortAnswer:
    """A whole response, ready to be sent to anybody."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    @classmethod
    def of(cls, response: Response, *more: tuple[bytes, bytes]) -> ShortAnswer:
        kept = [(name.lower(), value) for name, value in response.headers.items() if name.lower() != "set-cookie"]
        encoded = tuple((name.encode("latin1"), value.encode("latin1")) for name, value in kept)
        return cls(response.status_code, (*encoded, *more), response.get_data())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status, "headers": list(self.headers)})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else self.body})


class Refusals:
    """Error pages, toasts and problem documents, each made when it is needed first."""

    def __init__(self, flask: Flask) -> None:
        self._make = cache(partial(_make_answer, flask))

    def of(self, scope: Scope, status: int) -> ShortAnswer:
        return self._make(form_for(scope), status)


def form_for(scope: Scope) -> str:
    """As `views.answers.wants_json` decides it."""
    path, headers = str(scope["path"]), Headers(scope=scope)
    accepted = headers.get("accept", "")
    if path.startswith(("/api/", "/mcp")) or path.endswith(".json"):
        return "problem"
    if "json" in accepted and "text/html" not in accepted:
        return "problem"
    return "part" if "hx-request" in headers else "page"


def _make_answer(flask: Flask, form: str, status: int) -> ShortAnswer:
    path, headers = FORMS[form]
    sentence = TOO_BUSY if status == 503 else SENTENCES[status]
    with flask.test_request_context(path, headers=headers):
        g.bare = True
        response = flask.process_response(
            answer_error(status, status_phrase(status).lower().replace(" ", "_"), sentence)
        )
    more = [(b"connection", b"close")] if status == 408 else []
    if status in (429, 503):
        more.append((b"retry-after", b"5"))
    return ShortAnswer.of(response, *more)


def made_by(flask: Flask, endpoint: str) -> ShortAnswer:
    """What a view of Flask's answers that reads nothing of the request."""
    with flask.test_request_context():
        made = cast(ResponseReturnValue, flask.view_functions[endpoint]())
        return ShortAnswer.of(flask.process_response(flask.make_response(made)))


class OneLook:
    """ASGI: whoever asks while a look is made gets its answer, which a thread that nobody else uses makes.

    `others` answers other methods.
    """

    def __init__(self, flask: Flask, endpoint: str, others: ASGIApp) -> None:
        self._look = partial(made_by, flask, endpoint)
        self._others = others
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ready")
        self._looking: asyncio.Future[ShortAnswer] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in METHODS:
            await self._others(scope, receive, send)
            return
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().run_in_executor(self._thread, self._look)
        answer = await asyncio.shield(self._looking)
        await answer(scope, receive, send)


class AlwaysThere:
    """ASGI: an answer that was made at the start, and needs no thread."""

    def __init__(self, flask: Flask, endpoint: str, others: ASGIApp) -> None:
        self._answer = made_by(flask, endpoint)
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._answer if scope["method"] in METHODS else self._others)(scope, receive, send)
