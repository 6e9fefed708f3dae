"""Real databases for tests: one template a run, migrated once, copied for every test.

On a server, making and dropping a database costs more than most tests do. So one that a test leaves as it found it, its
tables and triggers unchanged, is emptied, filled again and lent to another one, to a role that has a new name: whatever
still holds the address of the test before is refused.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import LiteralString

import psycopg
from psycopg import sql
from sqlalchemy import Engine, QueuePool
from sqlalchemy.engine import make_url

from app.config import Settings, load_settings
from app.setup import prepare_installation
from app.silo import MasterKey
from tests.support.sessions import Sessions

SERVER = os.environ.get("WHETSTONE_TEST_DATABASE_URL", "")

_MAINTENANCE = make_url(SERVER).database or "postgres" if SERVER else ""
"""The database that the server is told from to make, rename and drop others."""

LENT_AT_MOST = 50
"""Times, because what was deleted still takes room: nothing vacuums these databases."""

RESTING = 2
"""Databases that are free before one is lent again, the one that waited longest: by then its connections are closed."""


SESSIONS = Sessions()
"""What engines of this process ended, by lent database."""


class Template:
    """A migrated database with its master key, first account and owner, to copy from."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = f"wt_template_{uuid.uuid4().hex[:12]}"
        if SERVER:
            with _connected(_MAINTENANCE) as connection:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(self._name)))
        self.settings = load_settings(data_dir=folder, database_url=_url(self._name))
        self.first = prepare_installation(self.settings)
        self.master_key = MasterKey.load(self.settings.master_key_path)
        self._lending = _Lending(self._name) if SERVER else None
        if not SERVER:
            with sqlite3.connect(folder / "whetstone.db") as database:
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextmanager
    def copy(self, folder: Path, **settings: object) -> Iterator[Settings]:
        """Settings of a database of its own, with the same keys and first account."""
        for kept in ("keys", "statements"):
            shutil.copytree(self._folder / kept, folder / kept)
        for file in ("web.key", "installation.json"):
            shutil.copyfile(self._folder / file, folder / file)
        if self._lending is None:
            shutil.copyfile(self._folder / "whetstone.db", folder / "whetstone.db")
            yield _settings_of(folder, "", settings)
            return
        lent = self._lending.lend()
        try:
            yield _settings_of(folder, lent.url, settings)
        finally:
            self._lending.take_back(lent)

    def drop(self) -> None:
        if self._lending is not None:
            self._lending.close()


def _settings_of(folder: Path, database_url: str, others: dict[str, object]) -> Settings:
    """Read once for each environment: hardly any test has one of its own."""
    if others:
        return load_settings(data_dir=folder, database_url=database_url, **others)
    named = ("WHETSTONE_", "DATABASE_URL", "REDIS_URL")
    known = _settings_in(frozenset(each for each in os.environ.items() if each[0].startswith(named)))
    read = {"data_dir": folder, "database_url": database_url.replace("postgresql://", "postgresql+psycopg://")}
    return known.model_copy(update=read)


@cache
def _settings_in(_environment: frozenset[tuple[str, str]]) -> Settings:
    return load_settings()


@dataclass
class _Lent:
    """A database of one test. `role`: who may enter, another one each time. `times`: how many tests have had it."""

    name: str
    role: str
    times: int = 0
    emptying: psycopg.Connection[tuple[object, ...]] | None = None
    """Kept between tests: what a server's process has to read before its first statement costs more than emptying."""

    @property
    def url(self) -> str:
        return _url(self.name, self.role)

    @property
    def own_pids(self) -> list[int]:
        """Of the sessions that belong to no test."""
        return SESSIONS.pids(self.name) + ([self.emptying.info.backend_pid] if self.emptying else [])


class _Lending:
    """The databases that are free again, and how each of them has to look before anybody gets it."""

    def __init__(self, template: str) -> None:
        self._template = template
        self._free: deque[_Lent] = deque()
        with _connected(template) as connection:
            connection.execute(_KEEP)
            self._schema = _schema(connection)
            self._refilling = sql.SQL(_REFILL) + _set_sequences(connection)
        self._server = _connected(_MAINTENANCE)

    def lend(self) -> _Lent:
        while len(self._free) >= RESTING:
            lent = self._free.popleft()
            if self._restore(lent):
                break
            self._drop(lent)
        else:
            lent = self._make()
        lent.times += 1
        SESSIONS.roles[lent.name] = lent.role
        return lent

    def take_back(self, lent: _Lent) -> None:
        """Nobody enters any more, and who is in there is sent away."""
        role = _new_name()
        self._on_server("ALTER ROLE {} RENAME TO {}", lent.role, role)
        lent.role = role
        del SESSIONS.roles[lent.name]
        self._server.execute(_END_OTHERS, [lent.name, lent.own_pids])
        if lent.times < LENT_AT_MOST:
            self._free.append(lent)
        else:
            self._drop(lent)

    def close(self) -> None:
        for lent in self._free:
            self._drop(lent)
        self._on_server("DROP DATABASE IF EXISTS {} WITH (FORCE)", self._template)
        self._server.close()

    def _make(self) -> _Lent:
        lent = _Lent(_new_name(), _new_name())
        self._on_server("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY", lent.name, self._template)
        create_role = sql.SQL("CREATE ROLE {} SUPERUSER LOGIN PASSWORD {}")
        self._server.execute(create_role.format(sql.Identifier(lent.role), make_url(SERVER).password))
        return lent

    def _restore(self, lent: _Lent) -> bool:
        """Empties and fills it; False where a test changed more than rows, or threw out who empties it."""
        try:
            if lent.emptying is None:
                lent.emptying = _connected(lent.name)
                lent.emptying.execute("SET session_replication_role = replica")
            _wait_until_alone(lent.emptying, lent.own_pids)
            return self._refill(lent.emptying)
        except psycopg.OperationalError:
            return False

    def _refill(self, connection: psycopg.Connection[tuple[object, ...]]) -> bool:
        if _schema(connection) != self._schema:
            return False
        connection.execute(self._refilling)
        return True

    def _drop(self, lent: _Lent) -> None:
        SESSIONS.end(lent.name)
        if lent.emptying is not None:
            lent.emptying.close()
        self._on_server("DROP DATABASE IF EXISTS {} WITH (FORCE)", lent.name)
        self._on_server("DROP ROLE {}", lent.role)

    def _on_server(self, statement: LiteralString, *names: str) -> None:
        self._server.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


_END_OTHERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = %s AND backend_type = 'client backend' AND pid <> ALL(%s)
"""

_OTHERS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> ALL(%s)
"""


def _wait_until_alone(connection: psycopg.Connection[tuple[object, ...]], own_pids: list[int]) -> None:
    """Until all others, who were sent away, are gone: what they did last must not come after the emptying."""
    deadline = time.monotonic() + 5
    while (row := connection.execute(_OTHERS, [own_pids]).fetchone()) and row[0]:
        if time.monotonic() > deadline:
            raise psycopg.OperationalError("somebody does not leave the database")
        time.sleep(0.005)


_KEEP = """
DO $$
DECLARE each text; has_rows boolean;
BEGIN
    CREATE SCHEMA kept;
    FOR each IN SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM public.%I)', each) INTO has_rows;
        IF has_rows THEN
            EXECUTE format('CREATE TABLE kept.%I AS TABLE public.%I', each, each);
        END IF;
    END LOOP;
END $$
"""
"""Puts the template's rows aside, in the template itself: every copy of it has them at hand."""

_REFILL = """
DO $$
DECLARE each text;
BEGIN
    FOR each IN SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace LOOP
        EXECUTE format('DELETE FROM public.%I', each);
    END LOOP;
    FOR each IN SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'kept'::regnamespace LOOP
        EXECUTE format('INSERT INTO public.%I OVERRIDING SYSTEM VALUE SELECT * FROM kept.%I', each, each);
    END LOOP;
END $$;
"""

_SCHEMA = """
WITH ours AS (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace)
SELECT array_agg(ARRAY[entries, newest] ORDER BY catalog) FROM (
    SELECT 'pg_class', count(*), max(xmin::text::bigint) FROM pg_class WHERE relnamespace = 'public'::regnamespace
    UNION ALL SELECT 'pg_attribute', count(*), max(a.xmin::text::bigint)
        FROM pg_attribute a JOIN ours ON attrelid = ours.oid
    UNION ALL SELECT 'pg_trigger', count(*), max(t.xmin::text::bigint)
        FROM pg_trigger t JOIN ours ON tgrelid = ours.oid
    UNION ALL SELECT 'pg_proc', count(*), max(xmin::text::bigint)
        FROM pg_proc WHERE pronamespace = 'public'::regnamespace
    UNION ALL SELECT 'pg_constraint', count(*), max(xmin::text::bigint)
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace
) AS found(catalog, entries, newest)
"""
"""What a catalog tells of a change: there are more or fewer entries, or one of a later transaction."""


def _schema(connection: psycopg.Connection[tuple[object, ...]]) -> object:
    """What differs once a table, index, trigger, function, constraint or right was changed."""
    row = connection.execute(_SCHEMA).fetchone()
    return row and row[0]


def _set_sequences(connection: psycopg.Connection[tuple[object, ...]]) -> sql.Composed:
    """The statement that sets each to what it is now."""
    rows = connection.execute("SELECT sequencename, last_value, start_value FROM pg_sequences").fetchall()
    calls = [
        sql.SQL("setval({}::regclass, {}, {})").format(sql.Literal(name), last or first, last is not None)
        for name, last, first in rows
    ]
    return sql.SQL("SELECT {}").format(sql.SQL(", ").join(calls))


def let_go(engine: Engine) -> None:
    """End an engine: first those of its threads that still answer give their connections back, within 10 seconds.

    What is given back later is closed by nobody, and complained of in a test that has nothing to do with it.
    """
    deadline = time.monotonic() + 10
    while isinstance(engine.pool, QueuePool) and engine.pool.checkedout() and time.monotonic() < deadline:
        time.sleep(0.01)
    engine.dispose()


def _new_name() -> str:
    return f"wt_{uuid.uuid4().hex[:16]}"


def _url(name: str, role: str = "") -> str:
    if not SERVER:
        return ""
    url = make_url(SERVER)
    return url.set(database=name, username=role or url.username).render_as_string(hide_password=False)


def _connected(database: str) -> psycopg.Connection[tuple[object, ...]]:
    url = make_url(SERVER).set(drivername="postgresql", database=database)
    return psycopg.connect(url.render_as_string(hide_password=False), autocommit=True)
