"""Shredding: after keys were removed, the database's own files are made to hold them no more.

A removed row's bytes stay where they were until something overwrites them. SQLite does so at once (`secure_delete`,
which `extensions` sets), in its WAL: so that is brought into the database and emptied. On PostgreSQL the tables move to
new files, whatever old snapshots would still like to see. Neither reaches PostgreSQL's own WAL, replicas, backups, or
blocks that the disk has put aside.
"""

from __future__ import annotations

from sqlalchemy import delete, text
from sqlalchemy.exc import OperationalError, ProgrammingError

from app.extensions import BUSY_TIMEOUT_MS, db, end_reading, is_sqlite, writing
from app.models.installation import TO_SHRED, InstallationMark

PATIENCE_MS = 3000
"""How long it may wait for others to leave the tables; the next minute's upkeep tries again."""

TABLES = ("agent_keys", "intakes", "content_keys", "memory_texts", "idempotency_keys")
"""What holds sealed keys, content that the master key opens, and texts that may be erased."""


def is_due() -> bool:
    """Whether removed keys may still be found in the files."""
    return InstallationMark.read(TO_SHRED) is not None


def shred_files() -> bool:
    """Clean the files if that is due; returns whether they are clean. Not in a transaction. Safe to repeat."""
    due = InstallationMark.read(TO_SHRED)
    sqlite = is_sqlite(db.session())
    end_reading()
    if due is None:
        return True
    clean = _empty_wal() if sqlite else _move_tables()
    if clean:
        with writing():
            db.session.execute(
                delete(InstallationMark).where(InstallationMark.name == TO_SHRED, InstallationMark.value == due)
            )
    return clean


def _empty_wal() -> bool:
    connection = db.engine.raw_connection()
    try:
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={PATIENCE_MS}")
        busy, *_ = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    finally:
        connection.close()
    return not busy


def _move_tables() -> bool:
    """One after the other, each in a moment. False when somebody stays in one, or this user may not do it."""
    try:
        for table in TABLES:
            with writing() as session:
                session.execute(text(f"SET LOCAL lock_timeout = {PATIENCE_MS}"))
                session.execute(text(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"))
                session.execute(text(f"CREATE TEMPORARY TABLE kept ON COMMIT DROP AS SELECT * FROM {table}"))
                session.execute(text(f"TRUNCATE {table}"))
                session.execute(text(f"INSERT INTO {table} SELECT * FROM kept"))
    except (OperationalError, ProgrammingError):
        return False
    return True
