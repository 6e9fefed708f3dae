"""A full disk of the database is named, and nothing is written."""

from __future__ import annotations

import shutil
import sqlite3
from collections import namedtuple
from pathlib import Path

import pytest
from flask import Flask
from sqlalchemy import func, select, text

from app.config import Settings
from app.errors import DiskFull
from app.extensions import db, is_sqlite, writing
from app.health import look_around
from app.models import AuditLog, Memory
from tests.support.factories import make_agent, remember
from tests.support.full_disk import full_disk

SAID = "disk of the database is full; nothing was written"


def test_a_change_that_the_disk_has_no_room_for_says_so_and_leaves_nothing(app: Flask) -> None:
    agent = make_agent()
    entries = count_of(AuditLog)
    with full_disk(app), pytest.raises(DiskFull, match=SAID):
        remember(agent, "There was no room for this.")
    assert (count_of(Memory), count_of(AuditLog)) == (0, entries)
    remember(agent, "Now there is.")
    assert count_of(Memory) == 1


def test_the_database_itself_says_so(app: Flask) -> None:
    """Without a trigger: SQLite's own bound, PostgreSQL's own state."""
    with pytest.raises(DiskFull, match=SAID), writing() as session:
        if not is_sqlite(session):
            session.execute(text("DO $$ BEGIN RAISE EXCEPTION SQLSTATE '53100'; END $$"))
        session.execute(text("PRAGMA max_page_count = 1"))
        session.execute(text("CREATE TABLE filler (x BLOB)"))
        session.execute(text("INSERT INTO filler VALUES (zeroblob(100000000))"))


def test_a_file_beside_sqlite_s_that_can_t_grow_is_a_full_disk_only_where_there_is_no_room(
    app: Flask, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_sqlite(db.session()):
        pytest.skip("PostgreSQL has a state of its own for it")
    db.engine.dispose()
    database = Path(db.engine.url.database or "")
    database.rename(database.with_suffix(".moved"))
    database.mkdir()
    with pytest.raises(Exception, match="unable to open") as damaged:
        db.session.execute(text("SELECT 1"))
    assert isinstance(damaged.value.__cause__, sqlite3.OperationalError)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9, 4096))
    with pytest.raises(DiskFull, match=SAID):
        db.session.execute(text("SELECT 1"))
    database.rmdir()
    database.with_suffix(".moved").rename(database)
    db.session.rollback()
    assert look_around()["database"] == "its disk is full: nothing can be written"


def count_of(model: type[AuditLog | Memory]) -> int | None:
    db.session.rollback()
    return db.session.scalar(select(func.count()).select_from(model))
