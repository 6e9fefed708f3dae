"""Statements that hot paths send again and again: compiled once, and run on the transaction's own cursor.

SQLAlchemy compiles a statement once, too, but looks that up, makes a context and a result and asks each column anew at
every execution: several times what the database itself takes for a row. What it promises is kept here: parameters and
columns go through their types, listeners hear of each statement, and errors come as its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from sqlalchemy import ColumnElement, Connection, Executable, bindparam, literal
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import InstrumentedAttribute
from sqlalchemy.sql.compiler import SQLCompiler

Values = Mapping[str, Any]
Row = tuple[Any, ...]
NO_VALUES: Values = {}
Column = ColumnElement[Any] | InstrumentedAttribute[Any]
_Process = Callable[[Any], Any]


class Prepared:
    """A constant statement. `keys` are the columns that an INSERT gets, as an INSERT has none of its own."""

    def __init__(self, statement: Executable, keys: Sequence[str] | None = None) -> None:
        self.statement = statement
        self._keys = keys
        self._form: _Form | None = None

    def fetch(self, connection: Connection, values: Values) -> list[Row]:
        """The rows that it finds or returns."""
        form = self._form_for(connection)
        if form is None:
            return [tuple(row) for row in connection.execute(self.statement, values)]
        return form.fetch(connection, values)

    def run(self, connection: Connection, rows: Sequence[Values]) -> int:
        """Once for each of these values, at least one; returns how many rows it changed."""
        form = self._form_for(connection)
        if form is None:
            return connection.execute(self.statement, rows).rowcount
        return form.run(connection, rows)

    def _form_for(self, connection: Connection) -> _Form | None:
        """What it is for this database; None where only SQLAlchemy knows how to run it, or tells more of it."""
        form = self._form
        if form is None or form.dialect != connection.dialect:
            self._form = form = _Form(self.statement, connection.dialect, self._keys)
        return form if form.is_plain and _is_ordinary(connection) else None


def _is_ordinary(connection: Connection) -> bool:
    return connection.in_transaction() and not connection._echo and not _hears(connection, "after_execute")


def _hears(connection: Connection, *events: str) -> bool:
    """Whether anybody listens for one of these. SQLAlchemy's own way to ask walks from connection to engine to classes:
    several times what a statement of one row takes."""
    if connection._has_events:
        return any(getattr(connection.dispatch, name) for name in events)
    of_engine = connection.engine.dispatch
    for name in events:
        told = getattr(of_engine, name)
        if told.listeners or told.parent_listeners:
            return True
    return False


_OF_STATEMENTS = ("before_execute", "before_cursor_execute", "after_cursor_execute")


class _Execution:
    """What listeners get as SQLAlchemy's context: one for each execution, on which they may keep what is theirs, as
    OpenTelemetry's do from before it to behind it."""

    def __init__(self, is_many: bool) -> None:
        self.executemany = is_many

    def handle_dbapi_exception(self, error: BaseException) -> None:
        """SQLAlchemy's says more to some drivers; those that are used here want nothing."""


class _Form:
    """A statement as one database's driver takes it."""

    def __init__(self, statement: Executable, dialect: Dialect, keys: Sequence[str] | None) -> None:
        self.dialect = dialect
        self._statement = statement
        given = None if keys is None else list(keys)
        compiled = cast(SQLCompiler, cast(Any, statement).compile(dialect=dialect, column_keys=given))
        self._sql = str(compiled)
        self.is_plain = _is_plain(compiled)
        names = compiled.bind_names.items()
        self._constants = {name: bound.effective_value for bound, name in names if not bound.required}
        processors = compiled._bind_processors
        order = compiled.positiontup if compiled.positional else [name for _, name in names]
        self._bound = [(name, cast("_Process | None", processors.get(name))) for name in order or ()]
        self._is_positional = compiled.positional
        self._types = [column.type for column in compiled._result_columns]
        self._read: list[tuple[int, _Process]] | None = None

    def fetch(self, connection: Connection, values: Values) -> list[Row]:
        cursor, found = self._execute(connection, self._parameters(values), has_rows=True)
        read = self._processors(cursor.description) if self._read is None else self._read
        cursor.close()
        return [_processed(row, read) for row in found] if read else list(found)

    def run(self, connection: Connection, rows: Sequence[Values]) -> int:
        if len(rows) == 1:
            cursor, _ = self._execute(connection, self._parameters(rows[0]))
        else:
            cursor, _ = self._execute(connection, [self._parameters(row) for row in rows], is_many=True)
        count = int(cursor.rowcount)
        cursor.close()
        return count

    def _parameters(self, values: Values) -> Any:
        given = {**self._constants, **values} if self._constants else values
        if self._is_positional:
            return tuple([given[name] if process is None else process(given[name]) for name, process in self._bound])
        return {name: given[name] if process is None else process(given[name]) for name, process in self._bound}

    def _execute(
        self, connection: Connection, parameters: Any, *, is_many: bool = False, has_rows: bool = False
    ) -> tuple[Any, Sequence[Row]]:
        """A cursor behind it, and its rows. Tells those who listen, as SQLAlchemy does."""
        sql, execution = self._sql, _Execution(is_many)
        told = connection.dispatch if _hears(connection, *_OF_STATEMENTS) else None
        if told is not None:
            for listener in told.before_execute:
                listener(connection, self._statement, (), {}, {})
        cursor = cast(Any, connection.connection.dbapi_connection).cursor()
        if told is not None:
            for listener in told.before_cursor_execute:
                sql, parameters = listener(connection, cursor, sql, parameters, execution, is_many)
        try:
            if is_many:
                cursor.executemany(sql, parameters)
            else:
                cursor.execute(sql, parameters)
            if told is not None:
                for listener in told.after_cursor_execute:
                    listener(connection, cursor, sql, parameters, execution, is_many)
            return cursor, cursor.fetchall() if has_rows else []
        except BaseException as error:  # noqa: BLE001 - SQLAlchemy tells them apart, and raises
            connection._handle_dbapi_exception(error, sql, parameters, cursor, cast(Any, execution))

    def _processors(self, description: Sequence[Sequence[Any]]) -> list[tuple[int, _Process]]:
        """Of the columns whose values are not what the driver gives."""
        found = [
            (place, type_._cached_result_processor(self.dialect, column[1]))
            for place, (type_, column) in enumerate(zip(self._types, description, strict=True))
        ]
        self._read = [(place, process) for place, process in found if process is not None]
        return self._read


def send(connection: Connection, sql: str) -> None:
    """What has neither parameters nor rows, such as a BEGIN: those who listen hear of it, errors are SQLAlchemy's."""
    told, execution, parameters = connection.dispatch, cast(Any, _Execution(False)), cast(Any, ())
    cursor = connection.connection.cursor()
    for before in told.before_cursor_execute:
        sql, parameters = before(connection, cursor, sql, parameters, execution, False)
    try:
        cursor.execute(sql, parameters)
        for behind in told.after_cursor_execute:
            behind(connection, cursor, sql, parameters, execution, False)
    except BaseException as error:  # noqa: BLE001 - SQLAlchemy tells them apart, and raises
        connection._handle_dbapi_exception(error, sql, parameters, cursor, execution)
    cursor.close()


def _is_plain(compiled: SQLCompiler) -> bool:
    """Whether its text and parameters are the same at each execution, but for the values."""
    is_made_later = compiled.post_compile_params or compiled.literal_execute_params or compiled.escaped_bind_names
    has_defaults = compiled.insert_prefetch or compiled.update_prefetch
    is_called = any(bound.callable for bound in compiled.bind_names)
    return not (is_made_later or has_defaults or is_called) and compiled._ordered_columns


def _processed(row: Row, read: Sequence[tuple[int, _Process]]) -> Row:
    values = list(row)
    for place, process in read:
        values[place] = process(values[place])
    return tuple(values)


def one_of(column: Column, count: int) -> ColumnElement[bool]:
    """The condition that a column is one of so many values: `count` as `spread` gives it."""
    return column.in_([bindparam(f"value_{number}", type_=column.type) for number in range(count)])


def one_of_these(column: Column, values: Iterable[Any]) -> ColumnElement[bool]:
    """The same for values that are constants."""
    return column.in_([literal(value, column.type) for value in values])


def spread(values: Sequence[Any]) -> tuple[int, dict[str, Any]]:
    """How many there are to be in the statement, and each by its name.

    That many is a power of two, the last one repeated: so there are few statements, however many values they are for.
    """
    count = 1 << (len(values) - 1).bit_length()
    last = len(values) - 1
    return count, {f"value_{number}": values[min(number, last)] for number in range(count)}
