"""Real databases for tests: one template a run, migrated once, copied for every test."""

from __future__ import annotations

import os
import shutil
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from sqlalchemy.engine import make_url

from app.config import Settings, load_settings
from app.setup import prepare
from app.silo import MasterKey

SERVER = os.environ.get("WHETSTONE_TEST_DATABASE_URL", "")


class Template:
    """A migrated database with its master key, first account and owner, to copy from."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = f"wt_template_{uuid.uuid4().hex[:12]}"
        if SERVER:
            _admin(f'CREATE DATABASE "{self._name}"')
        self.settings = load_settings(data_dir=folder, database_url=_url(self._name))
        self.first = prepare(self.settings)
        self.master_key = MasterKey.load(self.settings.master_key_path)
        if not SERVER:
            with sqlite3.connect(folder / "whetstone.db") as database:
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextmanager
    def copy(self, folder: Path, **settings: object) -> Iterator[Settings]:
        """Settings of a database of its own, with the same keys and first account."""
        shutil.copytree(self._folder / "keys", folder / "keys")
        if not SERVER:
            shutil.copyfile(self._folder / "whetstone.db", folder / "whetstone.db")
            yield load_settings(data_dir=folder, database_url="", **settings)
            return
        name = f"wt_{uuid.uuid4().hex[:16]}"
        _admin(f'CREATE DATABASE "{name}" TEMPLATE "{self._name}" STRATEGY WAL_LOG')
        try:
            yield load_settings(data_dir=folder, database_url=_url(name), **settings)
        finally:
            _admin(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def drop(self) -> None:
        if SERVER:
            _admin(f'DROP DATABASE IF EXISTS "{self._name}" WITH (FORCE)')


def _url(name: str) -> str:
    return make_url(SERVER).set(database=name).render_as_string(hide_password=False) if SERVER else ""


def _admin(statement: str) -> None:
    url = make_url(SERVER).set(drivername="postgresql")
    with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as connection:
        connection.execute(statement)
