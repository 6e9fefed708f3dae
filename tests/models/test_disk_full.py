"""A full disk is named, and nothing is written."""

from __future__ import annotations

import pytest
from flask import Flask
from sqlalchemy import text

from app.errors import DiskFull
from app.extensions import db, is_sqlite, writing


def test_a_change_that_the_disk_has_no_room_for_says_so_and_leaves_nothing(app: Flask) -> None:
    with app.app_context(), pytest.raises(DiskFull, match="disk of the database is full; nothing was written"):
        fill()
    with app.app_context():
        db.session.rollback()
        assert DiskFull().http_status == 507


def fill() -> None:
    with writing() as session:
        if not is_sqlite(session):
            session.execute(text("DO $$ BEGIN RAISE EXCEPTION SQLSTATE '53100'; END $$"))
        session.execute(text("PRAGMA max_page_count = 1"))
        session.execute(text("CREATE TABLE filler (x BLOB)"))
        session.execute(text("INSERT INTO filler VALUES (zeroblob(100000000))"))
