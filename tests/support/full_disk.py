"""A disk that is full for some acts: SQLite reaches a bound of its own, PostgreSQL raises its own state for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flask import Flask
from sqlalchemy import Connection, Engine, event, text

from app.extensions import db

ENTRIES = "INSERT ON audit_log"
NO_ROOM = """
CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100';
END $$
"""


class FullDisk:
    """From `fill` to `free`, none of the acts finds room. `app` is the one whose engine meets it."""

    def __init__(self, app: Flask, *acts: str) -> None:
        self._acts = {f"no_room_{number}": act for number, act in enumerate(acts or [ENTRIES])}
        with app.app_context():
            self._engine: Engine = db.engine
        self._is_sqlite = self._engine.dialect.name == "sqlite"
        self._is_full = False

    def fill(self) -> None:
        self._is_full = True
        if self._is_sqlite:
            made = "AFTER {} BEGIN INSERT INTO filler VALUES (zeroblob(1000000)); END"
            self._run("CREATE TABLE filler (x BLOB)", *self._triggers(made))
            event.listen(self._engine, "begin", _bound)
        else:
            self._run(NO_ROOM, *self._triggers("BEFORE {} FOR EACH ROW EXECUTE FUNCTION no_room()"))

    def free(self) -> None:
        if not self._is_full:
            return
        self._is_full = False
        if self._is_sqlite:
            event.remove(self._engine, "begin", _bound)
            self._run(*(f"DROP TRIGGER {name}" for name in self._acts), "DROP TABLE filler")
        else:
            self._run("DROP FUNCTION no_room() CASCADE")

    def _triggers(self, made: str) -> list[str]:
        return [f"CREATE TRIGGER {name} {made.format(act)}" for name, act in self._acts.items()]

    def _run(self, *statements: str) -> None:
        with self._engine.connect().execution_options(whetstone_writes=True) as connection, connection.begin():
            for statement in statements:
                connection.execute(text(statement))


def _bound(connection: Connection) -> None:
    """Room for a little more, but not for the filler."""
    pages = connection.exec_driver_sql("PRAGMA page_count").scalar() or 0
    connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 50}")


@contextmanager
def full_disk(app: Flask, *acts: str) -> Iterator[FullDisk]:
    """Full at once, free at the end."""
    disk = FullDisk(app, *acts)
    disk.fill()
    try:
        yield disk
    finally:
        disk.free()
