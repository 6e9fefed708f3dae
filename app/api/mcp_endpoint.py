"""MCP over streamable HTTP at `/mcp`: who calls is known before anything is read; then `app/api/mcp` has the tools."""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING, Any

import structlog
from anyio.to_thread import run_sync
from flask import Flask
from sqlalchemy.exc import OperationalError
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.caller import Caller, admit_caller
from app.api.refusal import headers_of, sentence_of
from app.errors import Unavailable, WhetstoneError
from app.events.stream import CLOSED
from app.loading import nothing_collected
from app.problems import problem_document

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

PATH = "/mcp"
MOST_BYTES = 64_000_000

log = structlog.get_logger(__name__)


class McpEndpoint:
    """The ASGI side: one request a call, no state in between, and a token before anything is read.

    The SDK takes long to load, so it does in a thread beside the first pages; a call that comes meanwhile waits.
    """

    def __init__(self, flask: Flask) -> None:
        self._flask = flask
        self._app: ASGIApp | None = None
        self._loaded = asyncio.Event()

    async def run(self) -> None:
        """Carry calls, until it is cancelled."""
        try:
            server, carrier = await run_sync(_load_tools, self._flask)
            async with server.session_manager.run():
                self._app = carrier
                self._loaded.set()
                await asyncio.Event().wait()
        except Exception as error:
            log.error("the agents' tools are not there", error=type(error).__name__)  # noqa: TRY400 - quotes values
            raise
        finally:
            self._loaded.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A page elsewhere can't use it through somebody's browser: it has no token, and no cookie counts here."""
        send = _add_closed_headers(send)
        try:
            caller = await run_sync(self._admit_caller, ", ".join(Headers(scope=scope).getlist("authorization")))
        except WhetstoneError as error:
            said = problem_document(error.http_status, error.code, sentence_of(error, reads_only=True))
            refusal = JSONResponse(said, error.http_status, headers_of(error), "application/problem+json")
            await refusal(scope, receive, send)
            return
        await self._loaded.wait()
        if self._app is None:
            raise RuntimeError("the tools could not be loaded")
        await self._app({**scope, "whetstone.caller": caller}, receive, send)

    def _admit_caller(self, authorization: str) -> Caller:
        """Raises Unauthorized, TooManyRequests or Unavailable."""
        with self._flask.app_context():
            try:
                return admit_caller(authorization)
            except OperationalError as error:
                log.error("database unavailable", error=type(error.orig).__name__, path=PATH)  # noqa: TRY400
                raise Unavailable("The database does not answer. Nothing was done; try again in a moment.") from None


def _add_closed_headers(send: Send) -> Send:
    """Every answer, whoever makes it, says that it is for nobody's cache and no other page."""
    ours = {name for name, _ in CLOSED}

    async def closed(message: Message) -> None:
        if message["type"] == "http.response.start":
            others = [(name, value) for name, value in message.get("headers", ()) if name.lower() not in ours]
            message = {**message, "headers": [*others, *CLOSED]}
        await send(message)

    return closed


def _load_tools(flask: Flask) -> tuple[MCPServer[Any], ASGIApp]:
    with nothing_collected():
        mcp = importlib.import_module("app.api.mcp")
        server: MCPServer[Any] = mcp.make_server(flask, lambda request: request.scope["whetstone.caller"])
        return server, mcp.over_http(server, path=PATH, most_bytes=MOST_BYTES)
