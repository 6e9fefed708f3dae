"""What prepares an installation, and whether it needs that, found out in a millisecond for a quick second start."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache

from app.config import ROOT, Settings

IS_PREPARED = """
SELECT (SELECT version_num FROM alembic_version) = :version
   AND (SELECT value FROM marks WHERE name = 'immutable_tags') = :immutable_tags
   AND EXISTS (SELECT 1 FROM master_keys)
   AND EXISTS (SELECT 1 FROM users)
"""
"""What `prepare_installation` looks at, one condition a step of it."""


@dataclass(frozen=True)
class PreparedInstallation:
    """What was made now: the first admin, the master key's file. Password and words are told once in its life.

    `signing_fingerprint`: of the installation's public signing key. `version_before`: the database's; None where it was
    empty.
    """

    first_email: str = ""
    first_password: str = field(default="", repr=False)
    made_master_key: str = ""
    signing_fingerprint: str = ""
    recovery_words: str = field(default="", repr=False)
    version_before: str | None = None
    version: str = ""


def is_prepared(settings: Settings) -> bool:
    """Asks SQLite directly, because loading the models takes a second. In doubt, and on PostgreSQL, no: prepare."""
    database = settings.data / "whetstone.db"
    leaves = settings.statements_dir / "leaves"
    needed = (database, settings.master_key_path, settings.web_key_path, settings.pinned_path, leaves)
    if settings.database_url or not all(path.exists() for path in needed):
        return False
    wanted = {"version": revision_ids()[-1], "immutable_tags": ",".join(sorted(settings.immutable_tags))}
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=rw", uri=True, timeout=1)) as connection:
            return bool(connection.execute(IS_PREPARED, wanted).fetchone()[0])
    except sqlite3.Error:
        return False


@cache
def revision_ids() -> tuple[str, ...]:
    """Of all migrations, oldest first: the file names carry them, so that a start need not load Alembic."""
    return tuple(sorted(path.name.partition("_")[0] for path in (ROOT / "migrations/versions").glob("[0-9]*_*.py")))
