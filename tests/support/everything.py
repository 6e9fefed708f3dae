"""All rows of all tables as one checksum: what a request that is refused must leave as it was."""

from __future__ import annotations

import hashlib
import sqlite3

from sqlalchemy import Connection, inspect, text

from app.extensions import db

_LOOKS = dict[frozenset[str], tuple[int, str]]
"""By columns left out, the checksum, and SQLite's number of what others had committed when it was taken."""

_LAST_LOOK = dict[frozenset[str], tuple[str, str]]()
"""By columns left out, of the database that a server was asked about last: where its rows stood, and the checksum."""

_looked_at = ""

_watched: tuple[str, sqlite3.Connection, _LOOKS] | None = None
"""The file that was looked at last. A connection that stays open is told whether others changed anything since."""


def everything(*leaving_out: str) -> str:
    """But for columns of these names."""
    without = frozenset(leaving_out)
    with db.engine.connect() as connection:
        if connection.dialect.name == "sqlite":
            return _read_file(str(db.engine.url.database), without)
        return _ask_server(connection, without)


def _read_file(path: str, without: frozenset[str]) -> str:
    global _watched
    if _watched is None or _watched[0] != path:
        if _watched is not None:
            _watched[1].close()
        _watched = path, sqlite3.connect(path, check_same_thread=False), {}
    _, connection, looks = _watched
    (version,) = connection.execute("PRAGMA data_version").fetchone()
    if looks.get(without, (None,))[0] != version:
        looks[without] = version, _hash_tables(connection, without)
    return looks[without][1]


def _hash_tables(connection: sqlite3.Connection, without: frozenset[str]) -> str:
    digest = hashlib.sha256()
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
    for (table,) in tables:
        columns = [name for _, name, *_ in connection.execute(f'PRAGMA table_info("{table}")') if name not in without]
        listed = ", ".join(f'"{name}"' for name in columns)
        rows = connection.execute(f'SELECT {listed} FROM "{table}"').fetchall()
        digest.update(repr((table, sorted(map(repr, rows)))).encode())
    return digest.hexdigest()


def _ask_server(connection: Connection, without: frozenset[str]) -> str:
    """By the server, in one statement: what it says of a row as JSON is all of it.

    A row that is written anew stands elsewhere or has another `xmin`: where all stand as they stood, none was.
    """
    global _looked_at
    tables = inspect(connection).get_table_names()
    if _looked_at != (address := str(connection.engine.url)):
        _looked_at = address
        _LAST_LOOK.clear()
    standing = _of_all(connection, tables, "string_agg(concat(t.ctid, t.xmin), ',')")
    if _LAST_LOOK.get(without, ("",))[0] != standing:
        row = "(to_jsonb(t) - CAST(:without AS text[]))::text"
        rows = _of_all(connection, tables, f"string_agg({row}, ',' ORDER BY {row} COLLATE \"C\")", without=[*without])
        _LAST_LOOK[without] = standing, rows
    return _LAST_LOOK[without][1]


def _of_all(connection: Connection, tables: list[str], of_one: str, **values: list[str]) -> str:
    parts = [f"SELECT '{table}' AS name, md5({of_one}) AS rows FROM \"{table}\" t" for table in tables]
    query = (
        f"SELECT string_agg(name || ' ' || coalesce(rows, ''), ';' ORDER BY name) FROM ({' UNION ALL '.join(parts)}) a"
    )
    return str(connection.scalar(text(query), values))
