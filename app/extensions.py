"""The database and the clock: how every floor begins a transaction and asks the time."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

from flask import Flask, current_app
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import InvalidatePoolError, OperationalError
from sqlalchemy.orm import DeclarativeBase, Session
from sqlalchemy.pool import ConnectionPoolEntry

from app.config import ROOT
from app.errors import DiskFull, Unavailable
from app.plain_rows import CONNECTION, PlainSession
from app.prepared import NO_VALUES, Prepared, Row, Values, send
from app.write_turns import TurnConnection, WriteTurn, WriteTurns


class Base(DeclarativeBase):
    """Every table's root."""


POOL = {"pool_size": 24, "max_overflow": 16, "pool_use_lifo": True}
"""Connections, opened as they are needed: as many kept as the web process has threads for pages, so that a busy moment
makes none anew; 16 more for a while. The one that was given back last is taken first: it has its statements and the
newest pages at hand."""


def _read_json(stored: str | bytes) -> Any:
    """Most lists of a ledger, its tags and further dates, are empty."""
    return [] if stored == "[]" else json.loads(stored)


db = SQLAlchemy(
    model_class=Base,
    engine_options={"hide_parameters": True, "json_deserializer": _read_json, **POOL},
    session_options={"class_": PlainSession, "expire_on_commit": False},
)


WRITES = {"whetstone_writes": True}
"""Options of a connection whose transaction may write."""

BUSY_TIMEOUT_MS = 15_000
"""How long a transaction waits for SQLite's write lock: for its turn in this process and then for other processes."""

_LOOK_MS = 18
"""SQLite waits 1, 2, 5 and 10 ms between its looks, and up to 100 ms if one lets it. A process that is next looks more
often, or others that hand the lock from thread to thread would keep it out."""


class ServerConnection(Protocol):
    """What of psycopg's connection is used: it is loaded for a server only."""

    read_only: bool | None
    info: Any

    def commit(self) -> None: ...


class Clock(Protocol):
    def now(self) -> datetime:
        """The present moment, aware, UTC."""


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)


def now() -> datetime:
    """By the app's clock: the system's, unless a test set another one."""
    app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]  # asked for each time on a page
    clock: Clock = app.extensions["clock"]
    return clock.now()


@contextmanager
def writing() -> Iterator[Session]:
    """One write transaction: committed at the end, rolled back whole on any exception.

    On SQLite it takes the write lock at the start (BEGIN IMMEDIATE): what is read in it can't change before it is
    written. What `after_commit` was given runs when the commit has happened, in order. Not to be nested.
    """
    session = db.session()
    if session.info.get("writing"):
        raise RuntimeError("a write transaction is open already")
    if session.new or session.dirty or session.deleted:
        raise RuntimeError("unsaved changes before a write transaction")
    session.rollback()
    session.info.update(writing=True, before_commit=[], after_commit=[])
    try:
        begin_immediate(session)
        session.info[CONNECTION] = session.connection()
        yield session
        for step in session.info["before_commit"]:
            step()
        session.commit()
    except BaseException:
        session.rollback()
        raise
    finally:
        session.info.update({"writing": False, CONNECTION: None})
    for callback in session.info.pop("after_commit"):
        callback()


def begin_immediate(session: Session) -> None:
    """Begin a transaction that may write, on SQLite with its write lock. Whoever waits for a turn here has no
    connection meanwhile: the pool is for those who read and for the one who writes."""
    turns: WriteTurns | None = current_app.extensions.get(_TURNS)
    if turns is None:
        session.connection(execution_options=WRITES)
        return
    turn = _take(turns, BUSY_TIMEOUT_MS)
    try:
        session.connection(execution_options={**WRITES, "whetstone_turn": turn})
    except BaseException:
        turn.end()
        raise


def before_commit(step: Callable[[], None], *, first: bool = False) -> None:
    """Run `step` as one of the last things in the open `writing()` transaction: behind the others, or `first`."""
    steps = _pending_calls("before_commit")
    steps.insert(0 if first else len(steps), step)


def after_commit(callback: Callable[[], None]) -> None:
    """Run `callback` once the open `writing()` transaction is committed; never when it is rolled back."""
    _pending_calls("after_commit").append(callback)


def _pending_calls(moment: str) -> list[Callable[[], None]]:
    session = db.session()
    if not session.info.get("writing"):
        raise RuntimeError("there is no write transaction to wait for")
    found: list[Callable[[], None]] = session.info[moment]
    return found


@contextmanager
def reading() -> Iterator[Session]:
    """One read transaction, ended at its end: what is read is of one moment, and no snapshot stays open afterwards.

    What it loads as rows is read anew when it is looked at later: take values along. Not within `writing()`.
    """
    session = db.session()
    if session.info.get("writing"):
        raise RuntimeError("a read transaction within a write transaction")
    try:
        yield session
    finally:
        session.rollback()


def end_reading() -> None:
    """End the read transaction, if one is open: nothing holds a snapshot while a model thinks or a client waits."""
    db.session.rollback()


def read_rows(query: Prepared, values: Values = NO_VALUES) -> list[Row]:
    """What a query finds, as plain rows, in the transaction that is open or begins here."""
    session = db.session()
    session.flush()
    return query.fetch(session.connection(), values)


def is_sqlite(session: Session) -> bool:
    return session.get_bind().dialect.name == "sqlite"


def init_app(app: Flask) -> None:
    """Bind the database to `app` and set the options of SQLite connections."""
    app.extensions.setdefault("clock", SystemClock())
    db.init_app(app)
    with app.app_context():
        engine = db.engine
        event.listen(engine, "handle_error", _name_a_full_disk)
        if engine.dialect.name == "sqlite":
            app.extensions[_TURNS] = turns = WriteTurns()
            event.listen(engine, "do_connect", _with_turns)
            event.listen(engine, "connect", _on_connect)
            event.listen(engine, "begin", lambda connection: _on_begin(connection, turns))
        else:
            event.listen(engine, "checkin", _note_the_moment)
            event.listen(engine, "checkout", partial(_ask_whether_it_answers, engine))
            event.listen(engine, "begin", _on_server_begin)
            event.listen(engine, "rollback", _on_server_rollback)


_DISK_FULL = "53100"
"""PostgreSQL's state for it."""

_NEEDS_ROOM = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}
"""What SQLite also says where a file beside the database can't grow."""

_TOO_LITTLE_BYTES = 64_000


def _name_a_full_disk(context: ExceptionContext) -> None:
    error, engine = context.original_exception, context.engine
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    has_no_room = code in _NEEDS_ROOM and engine is not None and has_no_disk_left(engine)
    if getattr(error, "sqlstate", None) == _DISK_FULL or code == sqlite3.SQLITE_FULL or has_no_room:
        raise DiskFull from error


def has_no_disk_left(engine: Engine) -> bool:
    """Whether the disk of an SQLite database is full. What a server's disk has left, only the server knows."""
    if engine.dialect.name != "sqlite" or not engine.url.database:
        return False
    folder = Path(engine.url.database).parent
    return folder.is_dir() and shutil.disk_usage(folder).free < _TOO_LITTLE_BYTES


def _on_connect(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None
    connection.create_function("sha256", 1, _sha256, deterministic=True)
    cursor = connection.cursor()
    for pragma in (
        "journal_mode=WAL",
        "synchronous=NORMAL",
        f"busy_timeout={BUSY_TIMEOUT_MS}",
        "foreign_keys=ON",
        "recursive_triggers=ON",
        "secure_delete=ON",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _sha256(value: object) -> bytes | None:
    """PostgreSQL's function of that name. What is no bytes has none."""
    return hashlib.sha256(value).digest() if isinstance(value, bytes) else None


def _with_turns(_dialect: Any, _record: Any, _arguments: Any, options: dict[str, Any]) -> None:
    options["factory"] = TurnConnection


TRUSTED_SECONDS = 1.0
"""A connection to a server that was given back no longer ago is taken again without a question: that question is a way
to the server and back before every transaction. Whoever meets a server that ended it in this second is told to try
again."""

_GIVEN_BACK = "given_back"


def _note_the_moment(_raw: object, record: ConnectionPoolEntry) -> None:
    record.info[_GIVEN_BACK] = time.monotonic()


def _ask_whether_it_answers(engine: Engine, raw: Any, record: ConnectionPoolEntry, _proxy: object) -> None:
    """One that rested, before it is used; where it does not answer, the pool makes all of them anew."""
    given_back = record.info.get(_GIVEN_BACK)
    if given_back is None or time.monotonic() - given_back <= TRUSTED_SECONDS:
        return
    try:
        engine.dialect.do_ping(raw)
    except engine.dialect.loaded_dbapi.Error as error:
        raise InvalidatePoolError from error


def _on_server_begin(connection: Connection) -> None:
    """Whoever has not said that he writes reads: the server refuses the rest."""
    raw = cast("ServerConnection", connection.connection.driver_connection)
    only_reads = not connection.get_execution_options().get("whetstone_writes")
    if raw.read_only is not only_reads:
        raw.read_only = only_reads


def _on_server_rollback(connection: Connection) -> None:
    """Where nothing can have been written, end by COMMIT: at a ROLLBACK the driver forgets every statement that it has
    prepared, and the server plans each of them anew. What is not in order is left to the rollback that follows.
    """
    if connection.invalidated:
        return
    raw = cast("ServerConnection", connection.connection.driver_connection)
    if raw.read_only and raw.info.transaction_status == _IN_ORDER:
        with suppress(connection.dialect.loaded_dbapi.Error):  # it is gone, and the rollback will say so
            raw.commit()


_IN_ORDER = 2
"""libpq's PQTRANS_INTRANS: in a transaction that has not failed."""


def _on_begin(connection: Connection, turns: WriteTurns) -> None:
    options = connection.get_execution_options()
    if not options.get("whetstone_writes"):
        send(connection, "BEGIN DEFERRED")
        return
    raw = cast(TurnConnection, connection.connection.driver_connection)
    turn = options.get("whetstone_turn") or _take(turns, options.get("whetstone_patience_ms", BUSY_TIMEOUT_MS))
    try:
        _begin_before_others(connection, raw, turn)
    except BaseException:
        turn.end()
        raise
    raw.keep(turn)


def _take(turns: WriteTurns, patience_ms: int) -> WriteTurn:
    turn = turns.take(patience_ms / 1000)
    if turn is None:
        raise Unavailable(_BUSY)
    return turn


def _begin_before_others(connection: Connection, raw: TurnConnection, turn: WriteTurn) -> None:
    """Ask for the lock that other processes take, too."""
    raw.execute(f"PRAGMA busy_timeout={_LOOK_MS}")
    try:
        while not _begins(connection):
            if turn.is_late():
                raise Unavailable(_BUSY)
    finally:
        raw.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")


def _begins(connection: Connection) -> bool:
    try:
        send(connection, "BEGIN IMMEDIATE")
    except OperationalError as error:
        if "database is locked" not in str(error):
            raise
        return False
    return True


_BUSY = "The database was busy for 15 seconds; nothing was written. Try again."

_TURNS = "write_turns"


def init_migrations(app: Flask) -> None:
    """Bind Flask-Migrate to our migrations. It is imported here, because hardly any process needs it."""
    from flask_migrate import Migrate

    Migrate(app, db, directory=str(ROOT / "migrations"))
