"""Whether an installation needs no preparation, found out in a millisecond, so that a second start is a quick one."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from app.config import ROOT, Settings

NOTHING_TO_DO = """
SELECT (SELECT version_num FROM alembic_version) = :version
   AND (SELECT value FROM marks WHERE name = 'immutable_tags') = :immutable_tags
   AND EXISTS (SELECT 1 FROM master_keys)
   AND EXISTS (SELECT 1 FROM users)
"""
"""What `app.setup.prepare` looks at, one condition a step of it."""


def is_prepared(settings: Settings) -> bool:
    """Asks SQLite directly, because loading the models takes a second. In doubt, and on PostgreSQL, no: prepare."""
    database = settings.data / "whetstone.db"
    if settings.database_url or not database.exists() or not settings.master_key_path.exists():
        return False
    wanted = {"version": _newest_version(), "immutable_tags": ",".join(sorted(settings.immutable_tags))}
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=rw", uri=True, timeout=1)) as connection:
            return bool(connection.execute(NOTHING_TO_DO, wanted).fetchone()[0])
    except sqlite3.Error:
        return False


def _newest_version() -> str:
    return max(path.name.partition("_")[0] for path in (ROOT / "migrations" / "versions").glob("[0-9]*_*.py"))
