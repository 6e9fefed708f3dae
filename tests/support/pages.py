"""A real web server in a thread, and open pages that listen to its event stream over HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx
import uvicorn
from flask import Flask

from app.events.hub import Hub
from app.events.stream import EventStream
from app.gateway.protocol import Deadlines
from app.models import User
from app.processes.asgi import DEADLINES, assemble_application, server_of
from tests.support.cookies import new_session, serializer_of
from tests.support.processes import wait_for


@dataclass
class Site:
    """A running web process. `hub` is its own."""

    url: str
    hub: Hub
    server: uvicorn.Server
    flask: Flask

    @property
    def place(self) -> tuple[str, int]:
        """Host and port."""
        url = urlsplit(self.url)
        return url.hostname or "", url.port or 0

    def cookie_of(self, user: User) -> str:
        """The session cookie of a user who is signed in."""
        said = serializer_of(self.flask).dumps(new_session(user))
        return f"{self.flask.config['SESSION_COOKIE_NAME']}={said}"


@contextmanager
def serving(
    flask: Flask, *, keep_alive: float = 0.1, patience: float = 30, deadlines: Deadlines = DEADLINES, **hub: Any
) -> Iterator[Site]:
    made = Hub(flask, **hub)
    settings = flask.extensions["settings"].model_copy(update={"port": 0})
    stream = EventStream(made, keep_alive=keep_alive, patience=patience)
    server = server_of(assemble_application(flask, made, stream, deadlines), settings)
    thread = threading.Thread(target=server.run, name="site")
    thread.start()
    try:
        wait_for(lambda: server.started, seconds=30)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Site(f"http://127.0.0.1:{port}", made, server, flask)
    finally:
        server.handle_exit(15, None)
        thread.join(20)
        assert not thread.is_alive(), "the server did not stop"


@dataclass(frozen=True)
class Message:
    id: str
    event: str
    data: str


@dataclass
class Page:
    """One open page: everything that its stream brought, in order."""

    site: Site
    topic: str
    cookie: str = ""
    last_event_id: str = ""
    after: str = ""
    messages: list[Message] = field(default_factory=list)
    beats: int = 0
    is_closed: bool = False
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)

    def __enter__(self) -> Page:
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._read, name="page", daemon=True)
        self._thread.start()
        wait_for(lambda: self.status or self.is_closed)
        return self

    def __exit__(self, *_: object) -> None:
        """Leaves at the next line that the server sends: no later than its next beat."""
        self._leave.set()
        self._thread.join(10)
        assert not self._thread.is_alive()

    def newest(self) -> Message | None:
        return self.messages[-1] if self.messages else None

    def _read(self) -> None:
        headers = {"Cookie": self.cookie} if self.cookie else {}
        headers |= {"Last-Event-ID": self.last_event_id} if self.last_event_id else {}
        asked = {"topic": self.topic} | ({"after": self.after} if self.after else {})
        url = f"{self.site.url}/events"
        try:
            with httpx.stream("GET", url, params=asked, headers=headers, timeout=None) as self._response:
                self.headers = dict(self._response.headers)
                self.status = self._response.status_code
                self._parse(self._response.iter_lines())
        except httpx.HTTPError:
            assert self._leave.is_set() or self.site.server.should_exit
        finally:
            self.is_closed = True

    def _parse(self, lines: Iterator[str]) -> None:
        fields: dict[str, list[str]] = {}
        for line in lines:
            if self._leave.is_set():
                return
            if line:
                name, _, value = line.partition(": ")
                fields.setdefault(name.removesuffix(":"), []).append(value)
            elif fields:
                said = {name: "\n".join(values) for name, values in fields.items()}
                fields = {}
                if said.get("event") == "beat":
                    self.beats += 1
                else:
                    self.messages.append(Message(said.get("id", ""), said.get("event", ""), said.get("data", "")))


def seconds_until(question: Any) -> float:
    began = time.monotonic()
    wait_for(question)
    return time.monotonic() - began
