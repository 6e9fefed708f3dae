"""What every table shares: column types that behave the same on SQLite and PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeVar, cast

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    DateTime,
    Index,
    Integer,
    LargeBinary,
    Select,
    Table,
    bindparam,
    delete,
    func,
    insert,
    literal_column,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import InstrumentedAttribute, Mapped, mapped_column
from sqlalchemy.types import JSON, TypeDecorator

from app.errors import NotFound
from app.extensions import Base, db, is_sqlite, now, reading, writing
from app.plain_rows import object_of
from app.prepared import Prepared
from app.silo import Sealed

if TYPE_CHECKING:

    class Model(Base):
        __abstract__ = True
else:
    Model = db.Model

T = TypeVar("T")
Q = TypeVar("Q", bound=Select[Any])

Identity = BigInteger().with_variant(Integer, "sqlite")
"""Integer primary keys: 64 bits on both databases."""


class UtcDateTime(TypeDecorator[datetime]):
    """Aware UTC in, aware UTC out; a naive datetime is refused."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        value = _as_utc(value)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)

    def bind_processor(self, dialect: Dialect) -> Callable[[datetime | None], Any] | None:
        """In one step where SQLite takes text."""
        return _write_utc if dialect.name == "sqlite" else super().bind_processor(dialect)

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], datetime | None] | None:
        """In one step where SQLite gives text: a ledger of 10,000 memories has 40,000 of them."""
        return _read_utc if dialect.name == "sqlite" else super().result_processor(dialect, coltype)


_AS_WRITTEN = len("2026-11-30 12:00:00.000000")


def _write_utc(value: datetime | None) -> str | None:
    return None if value is None else _as_utc(value).isoformat(" ", "microseconds")[:_AS_WRITTEN]


def _read_utc(stored: str | None) -> datetime | None:
    if stored is None:
        return None
    if len(stored) == _AS_WRITTEN:
        return datetime.fromisoformat(f"{stored}+00:00")  # `replace` takes five times as long
    return datetime.fromisoformat(stored).replace(tzinfo=UTC)


Moment = Annotated[datetime, mapped_column(UtcDateTime)]
"""A column of moments."""


class UtcDateTimes(TypeDecorator[list[datetime]]):
    """A list of aware moments, in the order given, as JSON text in UTC."""

    impl = JSON
    cache_ok = True

    def process_bind_param(self, value: list[datetime] | None, dialect: Dialect) -> Any:
        return None if value is None else [_as_utc(moment).isoformat() for moment in value]

    def process_result_value(self, value: Any, dialect: Dialect) -> list[datetime] | None:
        return None if value is None else [datetime.fromisoformat(text) for text in value]

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], list[datetime] | None] | None:
        """In one step where SQLite gives text; most memories have no further dates."""
        return _read_moments if dialect.name == "sqlite" else super().result_processor(dialect, coltype)


def _read_moments(stored: str | None) -> list[datetime] | None:
    if stored is None:
        return None
    return [] if stored == "[]" else [datetime.fromisoformat(moment) for moment in json.loads(stored)]


def _as_utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("a datetime without a time zone")
    return moment if moment.tzinfo is UTC else moment.astimezone(UTC)


class ExactRatio(TypeDecorator[Decimal]):
    """A decimal from 0 to 1 with four digits, stored as ten-thousandths: exact on both databases."""

    impl = Integer
    cache_ok = True
    SCALE = Decimal(10_000)

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> int | None:
        return None if value is None else int(value * self.SCALE)

    def process_result_value(self, value: int | None, dialect: Dialect) -> Decimal | None:
        return None if value is None else (Decimal(value) / self.SCALE).quantize(Decimal("0.0001"))


class Micros(TypeDecorator[Decimal]):
    """An amount of money with six digits, stored as millionths."""

    impl = BigInteger
    cache_ok = True
    SCALE = Decimal(1_000_000)

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> int | None:
        return None if value is None else int(value * self.SCALE)

    def process_result_value(self, value: int | None, dialect: Dialect) -> Decimal | None:
        return None if value is None else Decimal(value) / self.SCALE


class SealedText(TypeDecorator[Sealed]):
    """Sealed bytes; the type keeps them from being printed by accident."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: Sealed | None, dialect: Dialect) -> bytes | None:
        return None if value is None else value.at_rest

    def process_result_value(self, value: Any, dialect: Dialect) -> Sealed | None:
        return None if value is None else Sealed(bytes(value))

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Sealed | None] | None:
        """In one step: both databases' drivers give bytes."""
        return _read_sealed


def _read_sealed(stored: bytes | None) -> Sealed | None:
    return None if stored is None else Sealed(stored)


class Texts(TypeDecorator[list[str]]):
    """A list of texts as JSON, where it is read from long ledgers: most have none."""

    impl = JSON
    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], list[str] | None] | None:
        """In one step where SQLite gives text."""
        return _read_texts if dialect.name == "sqlite" else super().result_processor(dialect, coltype)


def _read_texts(stored: str | None) -> list[str] | None:
    if stored is None:
        return None
    return [] if stored == "[]" else cast("list[str]", json.loads(stored))


Model.registry.update_type_annotation_map(
    {list[datetime]: UtcDateTimes, Sealed: SealedText, list[str]: JSON, dict[str, int]: JSON, dict[str, Any]: JSON}
)
"""What a column is by its annotation alone."""


def database_now() -> ColumnElement[Any]:
    """The database's clock: the only one that all processes share."""
    if is_sqlite(db.session()):
        return literal_column("strftime('%Y-%m-%d %H:%M:%f000', 'now')", UtcDateTime)
    return func.clock_timestamp(type_=DateTime(timezone=True))


def iso(moment: datetime | None) -> str | None:
    """ISO 8601, UTC, with Z: the form that programs rely on."""
    if moment is None:
        return None
    in_utc = moment if moment.tzinfo is UTC else moment.astimezone(UTC)  # which takes as long as all the rest
    return f"{in_utc.isoformat()[: -len('+00:00')]}Z"


LOCK_ORDER = (
    "accounts",
    "one_time_links",
    "refinements",
    "intakes",
    "agents",
    "settings_requests",
    "token_requests",
    "access_grants",
    "setting_proposals",
    "agent_tokens",
    "attention_items",
    "notice_channels",
    "memories",
)
"""In which order one transaction locks rows: with one order for all, no two of them wait for each other. Every test
watches it (`tests/support/locks.py`). Behind all comes PostgreSQL's advisory lock of an account's events."""


def lock_row(query: Q, *, of: type[Model] | Table | None = None) -> Q:
    """Read a row for change: locked against other writers (not against foreign keys), and never from memory.

    `of` is whose rows are locked, where the query joins others. What else the transaction locks comes in LOCK_ORDER.
    """
    return query.with_for_update(key_share=True, of=of).execution_options(populate_existing=True)


def require_row(row: T | None, missing: str) -> T:
    """What a query found. Raises NotFound with the sentence `missing` for nothing."""
    if row is None:
        raise NotFound(missing)
    return row


class Lockable:
    """Rows that are changed one by one. `NOUN` is what sentences call such a row; see `Logged`."""

    NOUN: ClassVar[str]

    if TYPE_CHECKING:
        id: Any

    @classmethod
    def lock(cls, row_id: int | str) -> Self:
        """Load it for change; what comes before it in LOCK_ORDER is locked already. Raises NotFound."""
        found = read_locked(_select_for_change(cast(Any, cls)), {"row": row_id}, cls)
        return require_row(next((cast("Self", row) for (row,) in found), None), f"There is no such {cls.NOUN}.")


@cache
def _select_for_change(model: Any) -> Prepared:
    table = cast(Table, model.__table__)
    return Prepared(lock_row(select(table).where(table.c.id == bindparam("row"))))


def read_row(model: type[T], row_id: int | str) -> T | None:
    """The row of this id as the database has it, whatever the session held of it."""
    return next((row for (row,) in read_locked(_select_by_id(cast(Any, model)), {"row": row_id}, model)), None)


@cache
def _select_by_id(model: Any) -> Prepared:
    table = cast(Table, model.__table__)
    return Prepared(select(table).where(table.c.id == bindparam("row")))


def read_locked(query: Prepared, values: Mapping[str, Any], *models: type[Any]) -> Iterator[tuple[Any, ...]]:
    """The objects of the rows that a query locks or changes, never from memory; behind them its further columns.

    It gives all columns of each model's table, in the order of `models`.
    """
    session = db.session()
    session.flush()
    for row in query.fetch(session.connection(), values):
        objects, start = [], 0
        for model in models:
            columns = _column_names(cast(Any, model))
            objects.append(object_of(session, model, dict(zip(columns, row[start:], strict=False))))
            start += len(columns)
        yield *objects, *row[start:]


@cache
def _column_names(model: Any) -> tuple[str, ...]:
    return tuple(model.__table__.columns.keys())


def claim_row(model: type[T], *conditions: ColumnElement[bool], **values: Any) -> T | None:
    """Change the row that is as the conditions say and return it: for exactly one worker, by one conditional UPDATE."""
    changed = update(model).where(*conditions).values(**values).returning(model)
    return db.session.scalar(changed.execution_options(populate_existing=True, synchronize_session=False))


CLAIM_EXPIRES_AFTER = timedelta(minutes=10)
"""Longer than any question lasts, so that whoever asked is done with it by then, or dead."""


class Question:
    """A row about which one worker at a time asks a model; should that worker die, another one takes it over.

    `asked_at` is when a worker began to ask. What still waits, and where the answer goes, its rows know.
    """

    if TYPE_CHECKING:
        id: Mapped[str]

    asked_at: Mapped[Moment | None]

    @classmethod
    def is_free(cls) -> ColumnElement[bool]:
        """No worker has it, or its worker's ten minutes are over."""
        return or_(cls.asked_at.is_(None), cls.asked_at < now() - CLAIM_EXPIRES_AFTER)

    @classmethod
    def find_ids(cls, *conditions: ColumnElement[bool], first: Any = None, limit: int = 100) -> list[str]:
        """Ids of those that are so, in the order of the column `first`; in a read transaction of its own."""
        with reading() as session:
            return list(session.scalars(select(cls.id).where(*conditions).order_by(first).limit(limit)))

    @classmethod
    def claim(cls, number: str, *waits: ColumnElement[bool]) -> Self | None:
        """The row, if it is as `waits` says and free, for exactly one worker."""
        return claim_row(cls, cls.id == number, cls.is_free(), *waits, asked_at=now())


def partial_index(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    """An index of the rows that fulfil a condition, on both databases."""
    return Index(name, *columns, unique=unique, sqlite_where=text(where), postgresql_where=text(where))


def insert_row(row: Model) -> int:
    """One plain INSERT of an object that stays out of the session, as append-only rows may; returns its id."""
    values = _column_values(row)
    ((number,),) = _insert_one(type(row), tuple(values)).fetch(db.session.connection(), values)
    return int(number)


def insert_rows(rows: Sequence[Model]) -> None:
    """The same for many objects of one table, in one statement."""
    if rows:
        insert_values(type(rows[0]), [_column_values(row) for row in rows])


def insert_values(model: type[Model], rows: Sequence[Mapping[str, Any]]) -> None:
    """The same for columns by their names, of rows that nobody needs as objects."""
    if rows:
        _insert_many(model, tuple(rows[0])).run(db.session.connection(), rows)


@cache
def _insert_one(model: type[Model], columns: tuple[str, ...]) -> Prepared:
    table = cast(Table, model.__table__)
    return Prepared(insert(table).returning(table.c.id), columns)


@cache
def _insert_many(model: type[Model], columns: tuple[str, ...]) -> Prepared:
    return Prepared(insert(cast(Table, model.__table__)), columns)


def _column_values(row: Model) -> dict[str, Any]:
    return {name: value for name, value in vars(row).items() if name[0] != "_"}


BATCH = 1000
"""Rows that one transaction removes at most."""


def drop_old_rows(
    row_id: InstrumentedAttribute[int], at: InstrumentedAttribute[datetime], before: datetime, *of: ColumnElement[bool]
) -> int:
    """Remove what is from before a moment, `BATCH` rows a transaction; returns how many.

    Ids grow with time, so the oldest rows are looked at by them, without an index of the moments.
    """
    dropped, is_left = 0, True
    oldest = select(row_id, at).where(*of).order_by(row_id).limit(BATCH)
    while is_left:
        with reading() as session:
            old = [number for number, moment in session.execute(oldest).tuples() if moment < before]
        if old:
            with writing() as session:
                removal = delete(row_id.class_).where(row_id.in_(old))
                session.execute(removal.execution_options(synchronize_session=False))
        dropped, is_left = dropped + len(old), len(old) == BATCH
    return dropped
