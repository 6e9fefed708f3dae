"""Fixtures that every test may use: a real database each, a clock that stands still, a closed network."""

from __future__ import annotations

import asyncio
import atexit
import gc
import os
import socket
import sqlite3
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType

import httpx
import pytest
import structlog
from flask import Flask
from jinja2.bccache import Bucket, BytecodeCache
from passlib.hash import argon2
from sqlalchemy import Connection, Engine, event
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.util import LRUCache
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from app import Part, create_app
from app.config import Settings
from tests.support import locks
from tests.support.clock import FakeClock
from tests.support.databases import SERVER, SESSIONS, Template, let_go
from tests.support.routes import SharedMap, shared_rule

TOGETHER = {
    "browser": ("tests/browser/",),
    "house": ("tests/cli/test_web_processes.py",),
    "models": ("tests/llm/",),
    "workers": (
        *("tests/tasks/", "tests/test_shared_work.py", "tests/notices/test_worker.py", "tests/events/test_health.py"),
        *("tests/silo/test_processes.py", "tests/cli/test_refine.py::TestWithA", "tests/cli/test_grants.py::TestWithA"),
    ),
}
"""Tests that share what takes seconds to start: a browser, an installation, a library with every model's client, or a
process that has loaded it for workers."""


class OneHouse(LoadScopeScheduling):
    """Each test goes to the next process that is free; but all those of a kind in TOGETHER, begun first, to one."""

    def _split_scope(self, nodeid: str) -> str:
        return next((kind for kind, beginnings in TOGETHER.items() if nodeid.startswith(beginnings)), nodeid)


MEMORY = Path("/dev/shm")
ROOM = 3 << 30
"""Bytes, for the data folders of a whole run: those of tests that passed are removed."""


def pytest_configure(config: pytest.Config) -> None:
    """Where it is offered, data folders are in memory: what the product writes for good waits for a disk no more.

    Nobody cuts a test's power, and tests of what is written before what ask in which order it is.
    """
    if hasattr(config, "workerinput"):
        atexit.register(os._exit, 0)  # all is told by then: to free a million objects takes each process three seconds
    if os.access(MEMORY, os.W_OK) and "PYTEST_DEBUG_TEMPROOT" not in os.environ:
        there = os.statvfs(MEMORY)
        if there.f_bavail * there.f_frsize > ROOM and not there.f_flag & os.ST_NOEXEC:
            os.environ["PYTEST_DEBUG_TEMPROOT"] = str(MEMORY)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneHouse:
    return OneHouse(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On a database server, only what uses it or a broker's, and promises what may hang on it: the rest would run as it
    did on SQLite.

    What takes long begins first: else one process is busy with it at the end, and the others wait.
    """
    items.sort(key=lambda item: not (item.get_closest_marker("slow") or item.get_closest_marker("timeout")))
    if SERVER:
        alike = [item for item in items if not _uses_a_server(item)]
        config.hook.pytest_deselected(items=alike)
        items[:] = [item for item in items if _uses_a_server(item)]


def _uses_a_server(item: pytest.Item) -> bool:
    assert isinstance(item, pytest.Function)
    if item.get_closest_marker("once"):
        return False
    return "template" in item.fixturenames or bool({"SERVER", "REDIS"} & vars(item.module).keys())


@pytest.fixture(scope="session", autouse=True)
def thread_loop() -> Iterator[None]:
    """The event loop that libraries find when they ask for this thread's: else they make one that nobody closes."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    loop.close()


@pytest.fixture(scope="session", autouse=True)
def imported_modules_are_not_searched_for_garbage() -> None:
    """They are most of the objects of a run, and none of them ever goes."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def routes_compiled_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Flask, "url_map_class", SharedMap)
        patch.setattr(Flask, "url_rule_class", staticmethod(shared_rule))
        yield


class CompiledTemplates(BytecodeCache):
    """In memory, by a template's name and text."""

    def __init__(self) -> None:
        self._code: dict[tuple[str, str], CodeType] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = self._code.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        assert bucket.code is not None
        self._code[bucket.key, bucket.checksum] = bucket.code


@pytest.fixture(scope="session", autouse=True)
def templates_compiled_once() -> Iterator[None]:
    """Each app has templates of its own, made of the same files: compiling them was a third of the pages' tests."""
    compiled = CompiledTemplates()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Flask, "jinja_options", {**Flask.jinja_options, "bytecode_cache": compiled})
        yield


@pytest.fixture(scope="session", autouse=True)
def certificates_read_once() -> Iterator[None]:
    """Each client that a test makes reads those of all authorities, and then speaks to its own machine without TLS."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpx._transports.default, "create_ssl_context", cache(httpx.create_ssl_context))
        yield


@pytest.fixture(scope="session", autouse=True)
def passwords_hashed_cheaply() -> Iterator[None]:
    """A tenth of a second each is what a guesser shall pay, not hundreds of tests. Processes of the product pay it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argon2, "memory_cost", 64)
        patch.setattr(argon2, "default_rounds", 1)
        patch.setattr(argon2, "parallelism", 1)
        yield


@pytest.fixture(scope="session", autouse=True)
def rows_without_an_order_come_backwards() -> Iterator[None]:
    """PostgreSQL gives them in another order once in a hundred runs, SQLite gives them backwards every time."""

    def turn_round(raw: sqlite3.Connection | object, _: object) -> None:
        if isinstance(raw, sqlite3.Connection):
            raw.execute("PRAGMA reverse_unordered_selects=ON")

    event.listen(Engine, "connect", turn_round)
    yield
    event.remove(Engine, "connect", turn_round)


@pytest.fixture(scope="session", autouse=True)
def locks_in_order() -> Iterator[None]:
    locks.watch()
    yield
    locks.unwatch()


@pytest.fixture(scope="session", autouse=True)
def statements_compiled_once() -> Iterator[None]:
    """Each test has an engine of its own, of one kind; what one of them compiled holds for all."""
    compiled: LRUCache[object, object] = LRUCache(2000)
    shared = property(lambda self: compiled, lambda self, own: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "_compiled_cache", shared, raising=False)
        patch.setattr(DefaultDialect, "__hash__", lambda self: hash(type(self)))
        patch.setattr(DefaultDialect, "__eq__", lambda self, other: type(self) is type(other))
        yield


@pytest.fixture(scope="session", autouse=True)
def server_known_once() -> Iterator[None]:
    """What a new engine first asks a server (its version, schema and further types), the engines after it know."""
    learned: dict[str, object] = {}
    ask = PGDialect_psycopg.initialize

    def initialize(self: PGDialect_psycopg, connection: Connection) -> None:
        if not learned:
            before = dict(vars(self))
            ask(self, connection)
            learned.update((name, value) for name, value in vars(self).items() if before.get(name, self) is not value)
        vars(self).update(learned)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PGDialect_psycopg, "initialize", initialize)
        yield


@pytest.fixture(scope="session", autouse=True)
def sessions_kept() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PGDialect_psycopg, "connect", lambda *given, **wanted: SESSIONS.connect(*given, **wanted))
        patch.setattr(PGDialect_psycopg, "do_close", lambda *given: SESSIONS.do_close(*given))
        yield


@pytest.fixture(autouse=True)
def logs_of_one_test() -> Iterator[None]:
    """A part of the product that a test starts in this process says where its log goes: to that test's own output."""
    yield
    if structlog.is_configured():
        structlog.reset_defaults()


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Template]:
    made = Template(tmp_path_factory.mktemp("template"))
    yield made
    made.drop()


@pytest.fixture
def settings(template: Template, tmp_path: Path) -> Iterator[Settings]:
    """Settings of an installation of its own: migrated, with a master key and a first account."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)  # as `up` makes it, whatever this machine lets others see
    with template.copy(folder) as copied:
        yield copied


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def app(settings: Settings, template: Template, clock: FakeClock) -> Iterator[Flask]:
    """The command line's app, in its context, with the master key."""
    from app.extensions import db

    made = create_app(settings, part=Part.COMMAND_LINE)
    made.extensions.update(clock=clock, master_key=template.master_key)
    with made.app_context():
        yield made
        db.session.remove()
        if "heartbeat" in made.extensions:
            made.extensions["heartbeat"].stop()
        let_go(db.engine)


@pytest.fixture
def web(app: Flask, settings: Settings, clock: FakeClock) -> Iterator[Flask]:
    """The web process's app beside the command line's, by the same clock. It holds no master key."""
    from app.extensions import db

    made = create_app(settings, part=Part.WEB)
    made.extensions["clock"] = clock
    yield made
    with made.app_context():
        let_go(db.engine)


@pytest.fixture
def nothing_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what comes after the comparison of texts: no change is asked about, whatever it would lose."""
    monkeypatch.setattr("app.refinement.losses._compare_texts", lambda _: (0, {}))


@pytest.fixture(autouse=True)
def closed_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever leaves this machine is a mistake."""
    connect = socket.socket.connect

    def only_loopback(self: socket.socket, address: object) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            host = str(address[0]) if isinstance(address, tuple) else str(address)
            if not (host.startswith("127.") or host in ("localhost", "::1")):
                raise AssertionError(f"a test tried to reach {host}")
        connect(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", only_loopback)
