"""The web process: one ASGI server for pages and REST (Flask, in threads), the event stream, and MCP.

Whatever a peer sends slowly waits in `app/gateway`, not in a thread; `/healthz` needs none.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from flask import Flask
from flask_login import user_logged_out
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from app import Part, logs
from app.api.mcp_endpoint import PATH, McpEndpoint
from app.config import Settings, load_settings
from app.errors import Unavailable
from app.events.broker import StreamWaker, end_streams
from app.events.hub import Hub
from app.events.stream import EventStream
from app.extensions import db, is_sqlite
from app.gateway.answers import AlwaysThere, OneLook, Refusals
from app.gateway.bodies import Bodies, Budget
from app.gateway.bridge import FlaskThreads
from app.gateway.connections import Connections, descriptors_for_connections
from app.gateway.known import SenderLookup, most_bytes_of_operation, most_bytes_of_page, most_bytes_of_tool
from app.gateway.protocol import Deadlines, GuardedProtocol
from app.gateway.turns import FairTurns
from app.health import ECHO_SECONDS
from app.loading import collect_rarely
from app.notices.timer import NoticeTimer
from app.refinement.sweep import keep_closing
from app.setup import ready_app
from tasks.echo import worker_answers

PAGE_THREADS = 24
"""Some pages wait for a worker."""

API_THREADS = 8
"""Four agents at once, each at most twice (`gateway/turns`)."""

AT_ONCE_ON_SQLITE, API_AT_ONCE_ON_SERVER = 1, 4
"""Threads of each kind that work at a time while none is slow. Those that wait for a server leave the interpreter to
others, so there pages take no turns: two at a time took 2 % less processor time, and answered 5 % fewer in a second."""

CLOSING_SECONDS = 5
BACKLOG = 1024
DEADLINES = Deadlines()


def create() -> Starlette:
    """The application, for an ASGI server that takes a factory. Raises Misconfigured.

    Only `serve` ends open streams when the server is told to stop; another server needs a limit to its patience.
    """
    return assemble_application(ready_app(Part.WEB, load_settings()))


def serve(settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM. Raises Misconfigured."""
    logs.init(settings.log_level)
    flask = ready_app(Part.WEB, settings)
    application = assemble_application(flask)
    collect_rarely()
    keep_closing(flask)
    wake_pages_of(flask, application.state.hub, settings)
    NoticeTimer.for_web(flask, lambda: worker_answers(ECHO_SECONDS)).start()
    server_of(application, settings).run(None if settings.web_processes == 1 else [shared_socket(settings)])


def wake_pages_of(flask: Flask, hub: Hub, settings: Settings) -> None:
    """Have what this process writes reach the open pages: its own at once where no other process has any (which is
    told as for the counting of requests), else everybody's by the broker.
    """
    if settings.counting_url:
        StreamWaker(flask).start()
    else:
        flask.extensions["wake_streams"] = hub.wake_soon


def assemble_application(
    flask: Flask, hub: Hub | None = None, stream: EventStream | None = None, deadlines: Deadlines = DEADLINES
) -> Starlette:
    """Pages, stream and the agents' tools over one Flask application."""
    hub = hub or Hub(flask)
    flask.extensions["stream_hub"] = hub
    agents = McpEndpoint(flask)
    user_logged_out.connect(_on_sign_out, flask)
    refusals, budget, known = Refusals(flask), Budget(), SenderLookup(flask)
    bodies = partial(Bodies, refusals=refusals, budget=budget, deadlines=deadlines)
    turns = FairTurns(refusals, known.agent_of)
    desks = FlaskThreads(flask, PAGE_THREADS, _at_once(flask, None))
    pages = bodies(desks, most_bytes=most_bytes_of_page, is_known=known.may_act)
    rest = turns.around(FlaskThreads(flask, API_THREADS, _at_once(flask, API_AT_ONCE_ON_SERVER)))
    tools = bodies(turns.around(agents), most_bytes=most_bytes_of_tool, is_known=known.has_token, reads_chunks=True)
    application = Starlette(
        routes=[
            Route("/healthz", AlwaysThere(flask, "health.healthz", pages)),
            Route("/readyz", OneLook(flask, "health.readyz", pages)),
            Route("/events", stream or EventStream(hub)),
            Route(PATH, tools),
            Route("/api/{rest:path}", bodies(rest, most_bytes=most_bytes_of_operation, is_known=known.has_token)),
            Mount("/", pages),
        ],
        middleware=[Middleware(RequestNormalizer)],
        lifespan=_server_lifespan,
    )
    application.router.default = pages  # a path with a line break matches no route, and is answered like any other
    application.state.hub = hub
    application.state.deadlines = deadlines
    application.state.agents = agents
    return application


def _at_once(flask: Flask, on_server: int | None) -> int | None:
    with flask.app_context():
        return AT_ONCE_ON_SQLITE if is_sqlite(db.session()) else on_server


def server_of(application: Starlette, settings: Settings) -> uvicorn.Server:
    """A server that bounds its connections, and ends the open streams when it is told to stop."""
    connections = Connections(settings.address_bound, connections=descriptors_for_connections())
    return _Server(_server_configuration(application, settings, connections), application.state.hub)


def shared_socket(settings: Settings) -> socket.socket:
    """A socket of our own on a port that other web processes listen on, too: the kernel deals out the connections.

    Raises Unavailable.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG, reuse_port=True)
    except OSError as error:
        raise Unavailable(f"Port {settings.port} of {settings.host} can't be listened on ({error.strerror}).") from None


_NOT_PLAIN = re.compile(rb"[\x7f-\xff]")


class RequestNormalizer:
    """Brings requests into the form that the bridge to WSGI understands: one Cookie header, and an ASCII query."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            cookies = [value for name, value in scope["headers"] if name == b"cookie"]
            if len(cookies) > 1:
                headers = [header for header in scope["headers"] if header[0] != b"cookie"]
                scope = {**scope, "headers": [*headers, (b"cookie", b"; ".join(cookies))]}
            if _NOT_PLAIN.search(scope["query_string"]):
                query = b"".join(b"%%%02X" % byte if byte > 126 else bytes([byte]) for byte in scope["query_string"])
                scope = {**scope, "query_string": query}
        await self._app(scope, receive, send)


class _Server(uvicorn.Server):
    """Ends the open streams as soon as it is told to stop: it would wait for them."""

    def __init__(self, config: uvicorn.Config, hub: Hub) -> None:
        super().__init__(config)
        self._hub = hub

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._hub.close_soon()
        super().handle_exit(sig, frame)


_PLAIN_PART = re.compile(r"[A-Za-z0-9._~-]{0,40}")


class WithoutQuery(logging.Filter):
    """Access logs name the path only: what somebody searched for is nobody's business. Health checks are not logged.

    Nor is a part of the path that is neither a word nor an id: a program may have put there what it was to send.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple) and len(record.args) == 5:
            client, method, path, version, status = record.args
            parts = str(path).partition("?")[0].split("/")
            path = "/".join(part if _PLAIN_PART.fullmatch(part) else "…" for part in parts)
            record.args = (client, method, path, version, status)
            return path not in {"/healthz", "/readyz"}
        return True


@asynccontextmanager
async def _server_lifespan(application: Starlette) -> AsyncIterator[None]:
    """The hub and the agents' tools live with the server."""
    running = [asyncio.create_task(each.run()) for each in (application.state.hub, application.state.agents)]
    try:
        yield
    finally:
        for task in running:
            task.cancel()
        for task in running:
            with suppress(asyncio.CancelledError):
                await task


def _on_sign_out(flask: Flask, user: Any, **_: Any) -> None:
    """Here at once, in other web processes by the broker."""
    hub: Hub = flask.extensions["stream_hub"]
    hub.sign_out_soon(user.id)
    end_streams(user.id)


def _server_configuration(application: Starlette, settings: Settings, connections: Connections) -> uvicorn.Config:
    return uvicorn.Config(
        application,
        http=partial(GuardedProtocol, connections, application.state.deadlines),  # type: ignore[arg-type]
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        lifespan="on",
        ws="none",
        server_header=False,
        proxy_headers=bool(settings.base_url),
        forwarded_allow_ips=list(settings.trusted_proxies),
        timeout_graceful_shutdown=CLOSING_SECONDS,
        timeout_keep_alive=30,
        backlog=BACKLOG,
        log_config=_log_configuration(settings.log_level),
    )


def _log_configuration(level: str) -> dict[str, Any]:
    line = "timestamp=%(asctime)s level=%(levelname)s event=%(message)s"
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": logs.WithoutWords, "fmt": line}},
        "filters": {"without_query": {"()": WithoutQuery}},
        "handlers": {
            "errors": {"class": "logging.StreamHandler", "formatter": "line"},
            "access": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["without_query"]},
        },
        "root": {"handlers": ["errors"], "level": "WARNING"},
        "loggers": {
            "uvicorn": {"handlers": ["errors"], "level": level, "propagate": False},
            "uvicorn.access": {"handlers": ["access"], "level": level, "propagate": False},
        },
    }
