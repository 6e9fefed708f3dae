"""What an attacker does to rows: by SQL past every trigger, by the product's own code without the statement, undone."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from sqlalchemy import Table, delete, insert, select, update

import app.grants.request
import app.keys.agent_keys
import app.models.agent
import app.models.grant
import app.models.key
import app.refinement.start
import app.tokens.request
from app.extensions import db
from tests.support.tampering import as_owner

Rows = dict[str, dict[tuple[Any, ...], dict[str, Any]]]
"""By table and primary key, every row."""

_DECLARING = (
    app.grants.request,
    app.keys.agent_keys,
    app.models.agent,
    app.models.grant,
    app.models.key,
    app.refinement.start,
    app.tokens.request,
)


@contextmanager
def without_statements() -> Iterator[None]:
    """What the product's own code does in here leaves right rows and right entries in chains that fit, and nothing
    signed: so an attacker does it who runs that code on the database, without the master key."""
    with ExitStack() as stack:
        for module in _DECLARING:
            stack.enter_context(mock.patch.object(module, "declare", lambda *_, **__: None))
        yield


def all_rows() -> Rows:
    """As they stand in the database now."""
    db.session.rollback()
    with db.engine.connect() as connection:
        return {
            table.name: {
                tuple(row[key] for key in _keys(table)): dict(row)
                for row in connection.execute(select(table)).mappings()
            }
            for table in db.metadata.sorted_tables
        }


def changes(before: Rows, after: Rows) -> list[tuple[str, tuple[Any, ...]]]:
    """The rows that are others, by table and key."""
    return [
        (name, key)
        for name in before
        for key in sorted(before[name].keys() | after[name].keys(), key=repr)
        if before[name].get(key) != after[name].get(key)
    ]


APPENDED = ("audit_log", "memory_states", "events", "log_leaves")
"""What is only added to: an entry that explains a forged row stays where it is, when the row is put back."""

HEADS = ("audit_sequence", "audit_head")


def restore(rows: Rows, *, but: Collection[str] = ()) -> None:
    """Put the whole database back to what it was then, except for some tables."""
    present = all_rows()
    put_back(rows | {name: present[name] for name in but}, present, but=())


def put_back(before: Rows, after: Rows, *, but: Collection[str] = APPENDED) -> None:
    """Undo what made `after` of `before`, and nothing that happened since."""
    found = [(name, key, before[name].get(key), after[name].get(key)) for name, key in changes(before, after)]
    with as_owner() as connection:
        for name, key, old, new in sorted(found, key=lambda each: (each[3] is None, each[2] is not None)):
            if name in but:
                continue
            table = db.metadata.tables[name]
            this = [table.c[column] == value for column, value in zip(_keys(table), key, strict=True)]
            if old is None:
                connection.execute(delete(table).where(*this))
            elif new is None:
                connection.execute(insert(table).values(old))
            elif changed := _changed_columns(old, new, HEADS if but else ()):
                connection.execute(update(table).where(*this).values(changed))


def _changed_columns(old: dict[str, Any], new: dict[str, Any], but: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in old.items() if new[name] != value and name not in but}


def change_rows(table: str, values: dict[str, Any], **where: Any) -> None:
    """Set columns of the rows with these values, past every trigger; at least one."""
    found = db.metadata.tables[table]
    with as_owner() as connection:
        done = connection.execute(update(found).where(*(found.c[name] == where[name] for name in where)).values(values))
        assert done.rowcount


def remove_rows(table: str, **where: Any) -> None:
    found = db.metadata.tables[table]
    with as_owner() as connection:
        assert connection.execute(delete(found).where(*(found.c[name] == where[name] for name in where))).rowcount


def insert_row(table: str, **values: Any) -> None:
    with as_owner() as connection:
        connection.execute(insert(db.metadata.tables[table]).values(values))


def read_rows(table: str, **where: Any) -> list[dict[str, Any]]:
    """In the order of their keys."""
    db.session.rollback()
    found = db.metadata.tables[table]
    query = select(found).where(*(found.c[name] == where[name] for name in where)).order_by(*found.primary_key.columns)
    with db.engine.connect() as connection:
        return [dict(row) for row in connection.execute(query).mappings()]


def _keys(table: Table) -> list[str]:
    return [column.name for column in table.primary_key.columns] or [column.name for column in table.columns]
