"""The session of every floor: rows that only changed in plain columns, and new ones that are plain and have their key,
are written without SQLAlchemy's unit of work, and rows that are locked are read without its loading.

The unit of work sorts whatever may depend on one another; for a handful of rows that costs several times the
statements themselves. What else is there to write (new rows that the database numbers, removed ones, relationships, SQL
expressions) still goes through it, with everything beside. A load makes a plan for each column of each query anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeVar, cast

from flask_sqlalchemy.session import Session
from sqlalchemy import Column, Connection, Table, bindparam, insert, inspect, update
from sqlalchemy.orm import InstanceState, Mapper
from sqlalchemy.orm.attributes import instance_state
from sqlalchemy.orm.exc import StaleDataError
from sqlalchemy.sql import ClauseElement

from app.prepared import Prepared

T = TypeVar("T")

CONNECTION = "connection of the open write transaction"
"""Where a session's `info` has it."""


class _Change(NamedTuple):
    """What one row's UPDATE sets, by the names of attributes."""

    row: InstanceState[Any]
    values: dict[str, Any]

    names: tuple[str, ...]

    @classmethod
    def of(cls, row: InstanceState[Any]) -> _Change:
        values = _changed_values(row)
        return cls(row, values, tuple(sorted(values)))

    @property
    def table(self) -> Table:
        return cast(Table, self.row.mapper.local_table)

    @property
    def order(self) -> tuple[str, tuple[str, ...], Any]:
        """One order for all, so that no two transactions wait for each other."""
        return self.row.mapper.local_table.description, self.names, self.row.identity


class PlainSession(Session):
    """What it promises is what SQLAlchemy's promises: after a flush the database has what the rows say."""

    def connection(
        self, bind_arguments: Any | None = None, execution_options: Mapping[str, Any] | None = None
    ) -> Connection:
        """The transaction's: inside `writing()` the one that it began with, without looking for it anew."""
        held: Connection | None = self.info.get(CONNECTION)
        if held is None or bind_arguments or execution_options or held.closed or not self.is_active:
            return super().connection(bind_arguments, execution_options)
        return held

    def flush(self, objects: Sequence[Any] | None = None) -> None:
        """Write what is new and what changed; plainly, if all of it is plain."""
        if self._is_clean():
            return
        if objects is not None or self.deleted or self.in_nested_transaction():
            super().flush(objects)
            return
        new = [instance_state(row) for row in self.new]
        rows = [instance_state(row) for row in self.dirty]
        if not (all(_is_plain_new(row) for row in new) and all(_is_plain(row) for row in rows)):
            super().flush()
            return
        if rows or new:
            self.dispatch.before_flush(self, None, None)
        changes = [_Change.of(row) for row in rows]
        for table in sorted({row.mapper.local_table for row in new}, key=_place_of_table):
            self._write([change for change in changes if change.table is table])
            changes = [change for change in changes if change.table is not table]
            self._insert([row for row in new if row.mapper.local_table is table])
        self._write(changes)
        for row in rows:
            row._commit_all(row.dict, self.identity_map)  # what the unit of work does with a row that it has written
        if new:
            self._register_persistent({*new})  # the same of new ones

    def _insert(self, rows: Sequence[InstanceState[Any]]) -> None:
        """New rows of one table, in the order in which they were added, with what nobody said filled in."""
        columns = _new_columns(rows[0].mapper)
        for row in rows:
            for name, default in columns.items():
                if default is not None and row.dict.get(name) is None:
                    row.dict[name] = default
        values = [{name: row.dict.get(name) for name in columns} for row in rows]
        _insert_statement(rows[0].mapper).run(self.connection(), values)

    def _write(self, changes: Sequence[_Change]) -> None:
        kinds: dict[Any, list[dict[str, Any]]] = {}
        for change in sorted([each for each in changes if each.values], key=lambda each: each.order):
            (number,) = change.row.identity or ()
            named = {f"new_{name}": value for name, value in change.values.items()}
            kinds.setdefault((change.row.mapper, change.names), []).append({"row": number, **named})
        for (mapper, names), values in kinds.items():
            done = _update_statement(mapper, names).run(self.connection(), values)
            if done != len(values):
                raise StaleDataError(f"{done} of {len(values)} rows of {mapper.local_table} were there")


def object_of(session: Session, model: type[T], values: Mapping[str, Any]) -> T:
    """The session's object of a row that a query has just read whole: as the row says, whatever it said before.

    `values` are all columns by their names. What waits to be written is written before such a query, by the caller.
    Listeners hear of it as of a load, those that make a list one whose changes are seen among them.
    """
    mapper = _mapper_of(cast(Any, model))
    key = mapper.identity_key_from_primary_key(tuple(values[column.name] for column in mapper.primary_key))
    found: T | None = session.identity_map.get(key)
    if found is None:
        found = make_row(model, values)
        row = instance_state(found)
        row.key, row.session_id = key, session.hash_key  # all of this is what a load does
        session.identity_map._add_unpresent(row, key)
        row._commit_all(row.dict, session.identity_map)
        if listeners := cast(Any, mapper.class_manager).dispatch.load:
            listeners(row, None)
        return found
    row = instance_state(found)
    row.dict.update(values)
    for name in mapper.relationships.keys():  # noqa: SIM118 - no mapping
        row.dict.pop(name, None)
    row._commit_all(row.dict, session.identity_map)
    if listeners := cast(Any, mapper.class_manager).dispatch.refresh:
        listeners(row, None, values.keys())
    return found


def make_row(model: type[T], values: Mapping[str, Any]) -> T:
    """`model(**values)`, without telling SQLAlchemy of each value: for rows that are new, or that it does not write."""
    made: T = _mapper_of(cast(Any, model)).class_manager.new_instance()
    instance_state(made).dict.update(values)
    return made


@cache
def _mapper_of(model: Any) -> Mapper[Any]:
    return cast("Mapper[Any]", inspect(model))


def _is_plain(row: InstanceState[Any]) -> bool:
    columns = _plain_columns(row.mapper)
    values = row.dict
    return all(
        name in columns and name in values and not isinstance(values[name], ClauseElement)
        for name in row.committed_state
    )


def _changed_values(row: InstanceState[Any]) -> dict[str, Any]:
    """What was set to another value than the database has; where that was never read, whatever was set."""
    columns, values, found = _plain_columns(row.mapper), row.dict, dict[str, Any]()
    for name, before in row.committed_state.items():
        if not columns[name].type.compare_values(values[name], before):
            found[name] = values[name]
    return found


def _is_plain_new(row: InstanceState[Any]) -> bool:
    """Whether it has its key, and says what the database needs as values."""
    columns, values = _new_columns(row.mapper), row.dict
    if not columns or row.key is not None:
        return False
    if any(values.get(column.name) is None for column in row.mapper.primary_key):
        return False
    return all(not isinstance(value, ClauseElement) for value in values.values()) and all(
        values.get(name) is not None for name in _to_be_given(row.mapper)
    )


@cache
def _new_columns(mapper: Mapper[Any]) -> Mapping[str, Any]:
    """By attribute, what a new row has where nobody said anything, if it stands in one table and nothing depends on it
    by relationships; else nothing, and no new row of the kind is plain."""
    columns = cast(Table, mapper.local_table).columns
    is_simple = len(mapper.tables) == 1 and mapper.version_id_col is None
    is_simple = is_simple and all(each.viewonly for each in mapper.relationships)
    is_simple = is_simple and all(mapper.has_property(column.key) for column in columns)
    if not is_simple or any(column.server_default or column.key != column.name for column in columns):
        return {}
    return {column.key: _plain_default(column) for column in columns}


@cache
def _to_be_given(mapper: Mapper[Any]) -> Sequence[str]:
    """Attributes for which there is no value unless somebody said one, or for which None may be one."""
    columns = cast(Table, mapper.local_table).columns
    made = (column.key for column in columns if column.default is not None and not column.default.is_scalar)
    return [*made, *(column.key for column in columns if column.type.should_evaluate_none)]


def _plain_default(column: Column[Any]) -> Any:
    default = cast(Any, column.default)
    return default.arg if default is not None and default.is_scalar else None


@cache
def _insert_statement(mapper: Mapper[Any]) -> Prepared:
    return Prepared(insert(cast(Table, mapper.local_table)), tuple(_new_columns(mapper)))


@cache
def _place_of_table(table: Table) -> int:
    """Where a table comes in an order in which each comes behind those that its rows may name."""
    return table.metadata.sorted_tables.index(table)


@cache
def _plain_columns(mapper: Mapper[Any]) -> Mapping[str, Column[Any]]:
    """By attribute, the columns of a row that stands in one table and is known by one number; else nothing is plain."""
    table = cast(Table, mapper.local_table)
    is_simple = len(mapper.tables) == 1 and len(mapper.primary_key) == 1 and mapper.version_id_col is None
    if not is_simple or any(column.onupdate or column.server_onupdate for column in table.columns):
        return {}
    plain = {each.key: cast("Column[Any]", each.columns[0]) for each in mapper.column_attrs if len(each.columns) == 1}
    return {key: column for key, column in plain.items() if not column.primary_key}


@cache
def _update_statement(mapper: Mapper[Any], names: tuple[str, ...]) -> Prepared:
    columns, key = _plain_columns(mapper), mapper.primary_key[0]
    new = {columns[name]: bindparam(f"new_{name}", type_=columns[name].type) for name in names}
    return Prepared(update(cast(Table, mapper.local_table)).where(key == bindparam("row")).values(new))
