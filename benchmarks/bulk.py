"""Many rows by one statement, made from one row that the product wrote: only for databases that are thrown away.

`n` counts from 1 in every expression. On SQLite the triggers and indexes of a large table are put aside meanwhile, and
made again by the same words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import text

from app.extensions import WRITES, db
from app.models.base import Model
from benchmarks.scratch import is_sqlite


def multiply_row(model: type[Model], where: str, count: int, changed: Mapping[str, str]) -> None:
    """Insert `count` copies of the row that `where` finds, with some columns by an SQL expression of `n`."""
    columns = [column.name for column in model.__table__.columns]
    values = ", ".join(changed.get(name, f"t.{name}") for name in columns)
    table = model.__tablename__
    statement = (
        f"{_NUMBERS[is_sqlite()]} INSERT INTO {table} ({', '.join(columns)})"
        f" SELECT {values} FROM numbers CROSS JOIN (SELECT * FROM {table} WHERE {where}) AS t"
    )
    with aside(table), db.engine.execution_options(**WRITES).begin() as connection:
        connection.execute(text(statement), {"count": count})


_NUMBERS = {
    True: "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count)",
    False: "WITH numbers(n) AS (SELECT generate_series(1, :count))",
}


@contextmanager
def aside(table: str) -> Iterator[None]:
    """Without its triggers and, but for those of constraints, its indexes; the statistics are made anew after."""
    if not is_sqlite():
        with db.engine.execution_options(**WRITES).begin() as connection:
            found = connection.execute(text(_SERVER_INDEXES), {"table": table}).tuples().all()
            connection.execute(text(f"ALTER TABLE {table} DISABLE TRIGGER USER"))
            for name, _ in found:
                connection.execute(text(f"DROP INDEX {name}"))
        yield
        with db.engine.execution_options(**WRITES).begin() as connection:
            connection.execute(text("SET LOCAL maintenance_work_mem = '512MB'"))
            for _, made_by in found:
                connection.execute(text(made_by))
            connection.execute(text(f"ALTER TABLE {table} ENABLE TRIGGER USER"))
        _autocommit(f"VACUUM ANALYZE {table}")
        return
    with db.engine.execution_options(**WRITES).begin() as connection:
        query = (
            "SELECT type, name, sql FROM sqlite_master WHERE tbl_name = :table AND sql IS NOT NULL AND type <> 'table'"
        )
        kept = connection.execute(text(query), {"table": table}).tuples().all()
        for kind, name, _ in kept:
            connection.execute(text(f"DROP {kind} {name}"))
    yield
    with db.engine.execution_options(**WRITES).begin() as connection:
        for *_, made_by in kept:
            _raw(connection, made_by)


_SERVER_INDEXES = (
    "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = :table AND schemaname = 'public'"
    " AND indexname NOT IN (SELECT conname FROM pg_constraint)"
)


def _raw(connection: Any, statement: str) -> None:
    """As it is: a colon in a trigger is no parameter."""
    connection.exec_driver_sql(statement)


def _autocommit(statement: str) -> None:
    with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(statement))


def set_sequence(table: str) -> None:
    """PostgreSQL: let the next number come after the rows that were given theirs."""
    if not is_sqlite():
        _autocommit(f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), (SELECT max(id) FROM {table}))")
