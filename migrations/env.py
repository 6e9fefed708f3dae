"""Alembic's environment: one transaction a run; on SQLite foreign keys are off while tables are rebuilt.

A table that is rebuilt in a batch loses its triggers without a word. So every run ends by making the declared set of
triggers again and by checking that the database holds exactly that set.
"""

from __future__ import annotations

from alembic import context
from flask import current_app
from sqlalchemy import Connection, text

from app.extensions import db
from migrations.triggers import drop_triggers, install_triggers, missing_triggers

database = current_app.extensions["sqlalchemy"]


def run_migrations() -> None:
    with database.engine.connect() as connection:
        sqlite = connection.dialect.name == "sqlite"
        if sqlite:
            raw = connection.connection.driver_connection
            raw.execute("PRAGMA foreign_keys=OFF")
        connection = connection.execution_options(whetstone_writes=True)
        context.configure(
            connection=connection,
            target_metadata=db.metadata,
            render_as_batch=sqlite,
            compare_type=True,
            transaction_per_migration=False,
            transactional_ddl=True,
        )
        with context.begin_transaction():
            if not sqlite:
                connection.execute(text("SELECT pg_advisory_xact_lock(22503)"))
            drop_triggers(connection)
            context.run_migrations()
            if "audit_log" in connection.dialect.get_table_names(connection):
                install_triggers(connection)
                _check(connection, sqlite)
        if sqlite:
            raw.execute("PRAGMA foreign_keys=ON")


def _check(connection: Connection, sqlite: bool) -> None:
    missing = missing_triggers(connection)
    if missing:
        raise RuntimeError(f"triggers are missing after the migration: {', '.join(sorted(missing))}")
    if sqlite:
        broken = connection.execute(text("PRAGMA foreign_key_check")).fetchall()
        if broken:
            raise RuntimeError(f"{len(broken)} rows point at rows that are not there after the migration")


if context.is_offline_mode():
    raise RuntimeError("Whetstone's migrations need a database: run `./whetstone db upgrade`.")
run_migrations()
