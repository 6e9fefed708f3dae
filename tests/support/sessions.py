"""A server's sessions that an engine ended, kept for the next test of the same lent database.

What a new session reads of the catalogue before its first statement is much of what a test costs a server. One that is
kept has forgotten everything (`DISCARD ALL`: settings, prepared statements, temporary tables, locks, what it listened
to), gets a connection object of its own, and is given only to who knows the database's role of this test.
"""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.pq import ConnStatus, ExecStatus, PGconn, TransactionStatus
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

KEPT = 3
"""Sessions of a database. A web process and a command line, each with one, are what most tests have."""

_PLACE = ("dbname", "user", "password", "context")
"""What a connection is asked for that does not shape its session."""

_connect, _do_close = PGDialect_psycopg.connect, PGDialect_psycopg.do_close


class Sessions:
    """Of the databases that a process lends. `roles`: by database, who may enter it now."""

    def __init__(self) -> None:
        self.roles: dict[str, str] = {}
        self._kept: dict[str, list[tuple[str, PGconn]]] = {}
        self._given = WeakKeyDictionary[psycopg.Connection[Any], tuple[str, str]]()
        self._lock = threading.Lock()

    def pids(self, database: str) -> list[int]:
        with self._lock:
            return [session.backend_pid for _, session in self._kept.get(database, [])]

    def end(self, database: str) -> None:
        with self._lock:
            for _, session in self._kept.pop(database, []):
                session.finish()

    def connect(self, dialect: PGDialect_psycopg, *arguments: Any, **wanted: Any) -> Any:
        database, shape = str(wanted.get("dbname")), _shape(wanted)
        is_lent = not arguments and self.roles.get(database) == wanted.get("user")
        session = self._take(database, shape) if is_lent else None
        made = _connection_of(session, wanted) if session else _connect(dialect, *arguments, **wanted)
        if is_lent and type(made) is psycopg.Connection:
            with self._lock:
                self._given[made] = shape, str(wanted["user"])
        return made

    def do_close(self, dialect: PGDialect_psycopg, connection: psycopg.Connection[Any]) -> None:
        with self._lock:
            given = self._given.pop(connection, None)
        if given is None or not self._keep(*given, connection.pgconn):
            _do_close(dialect, connection)
            return
        connection.pgconn = _nobody()  # whoever still has the object finds it closed
        connection._closed = True

    def _take(self, database: str, shape: str) -> PGconn | None:
        with self._lock:
            kept = self._kept.get(database, [])
            for number, (of_shape, session) in enumerate(kept):
                if of_shape == shape:
                    del kept[number]
                    return session if session.status == ConnStatus.OK else None
        return None

    def _keep(self, shape: str, role: str, session: PGconn) -> bool:
        """False where it is to end: it is in the middle of something, or of a test that has ended."""
        if session.status != ConnStatus.OK or session.transaction_status != TransactionStatus.IDLE:
            return False
        database = session.db.decode()
        with self._lock:
            kept = self._kept.setdefault(database, [])
            if self.roles.get(database) != role or len(kept) >= KEPT:
                return False
            if session.exec_(b"DISCARD ALL").status != ExecStatus.COMMAND_OK:
                return False
            while session.notifies():
                pass
            kept.append((shape, session))
        return True


def _shape(wanted: dict[str, Any]) -> str:
    return repr(sorted((name, value) for name, value in wanted.items() if name not in _PLACE))


def _connection_of(session: PGconn, wanted: dict[str, Any]) -> psycopg.Connection[Any]:
    """As `psycopg.connect` makes one of a new session."""
    made = psycopg.Connection[Any](session)
    made._autocommit = bool(wanted.get("autocommit"))
    if wanted.get("context"):
        made._adapters = AdaptersMap(wanted["context"].adapters)
    made.prepare_threshold = wanted.get("prepare_threshold", 5)
    return made


def _nobody() -> PGconn:
    ended = PGconn.connect(b"host=/nowhere")
    ended.finish()
    return ended
