"""The replay of rows: what the entries say that consents, tokens, users and the like became, against the rows.

One rule for all of them (`models/logged`): what an entry says counts until a later one says otherwise. Each row must be
as was said last, no row may be there of which nothing was said, and none may be gone.
"""

from __future__ import annotations

import json
import sqlite3
from collections import OrderedDict
from collections.abc import Generator, Iterator
from contextlib import closing
from functools import cache
from typing import Any, cast

from sqlalchemy import ColumnElement, ForeignKey, Select, Table, and_, bindparam, exists, literal, select, union_all
from sqlalchemy.orm import selectinload

from app.extensions import db
from app.history.chain import BATCH, DAMAGE, Difference, as_dict, numbered_entry, raise_unless_damage
from app.models import Account, Agent, AuditLog, User
from app.models.logged import Logged, Said, logged_models

_NAMES = {model.__tablename__: model.NOUN for model in logged_models()}

LoggedValue = list[Any]
"""A value that an entry said of a column, with the entry's number and id."""


class ReplayedRows:
    """What the entries of one chain say of rows."""

    def __init__(self) -> None:
        self._words = _LatestValues()

    def take(self, entry: AuditLog) -> None:
        """The next entry of the chain."""
        for table, rows in as_dict(entry.said).items():
            for key, said in as_dict(rows).items():
                newest = self._words.of(table, key)
                newest.update({name: [value, entry.sequence, entry.id] for name, value in as_dict(said).items()})

    def compare(self, owner: Agent | Account) -> None:
        """Raises Difference unless the rows say the same."""
        kind, owner_id = owner.logged_for
        for model in logged_models():
            if model.OWNER[0] == kind:
                with closing(_present_rows(model, owner_id)) as present:
                    for key, said in present:
                        self._compare_row(model, key, said)
        for table, key, words in self._words.left():
            _, sequence, entry_id = next(iter(words.values()))
            named = f"{_NAMES.get(table, table)} {key}"
            raise Difference(f"{numbered_entry(sequence, entry_id)} says of {named}, but its row is gone.", entry_id)

    def _compare_row(self, model: type[Logged], key: str, now: Said) -> None:
        named = f"{model.NOUN} {key}"
        words = self._words.pop(model.__tablename__, key)
        if not words and now:
            raise Difference(f"{named} is in no entry of the log.")
        for name, value in now.items():
            if name not in words:
                raise Difference(f"of {named} no entry says the {name}.")
            said, *entry = words[name]
            if said != value:
                raise Difference(f"{name} of {named} is not what {numbered_entry(*entry)} says.", entry[1])
        for name, (_, *entry) in words.items():
            if name not in now:
                raise Difference(f"{named} has no {name}, of which {numbered_entry(*entry)} says.", entry[1])


def check_strayed_rows() -> None:
    """Raises Difference for the first logged row that belongs to something that is not there."""
    for number in db.session.scalars(_where_rows_stray()):
        model, key = _references()[number]
        found = db.session.scalar(select(_key_column(model)).where(_is_lost(key)).order_by(_key_column(model)).limit(1))
        raise Difference(f"The {model.NOUN} {found} names a row of {key.column.table.name} that is not there.")


@cache
def _where_rows_stray() -> Select[Any]:
    """The numbers of references that lead nowhere: all are looked at in one statement."""
    asked = [
        select(literal(number).label("number")).where(exists().where(_is_lost(key)))
        for number, (_, key) in enumerate(_references())
    ]
    numbers = union_all(*asked).subquery()
    return select(numbers.c.number).order_by(numbers.c.number)


@cache
def _references() -> list[tuple[type[Logged], ForeignKey]]:
    return [(model, key) for model in logged_models() for key in cast(Table, model.__table__).foreign_keys]


def _is_lost(key: ForeignKey) -> ColumnElement[bool]:
    return and_(key.parent.is_not(None), ~exists().where(key.column == key.parent))


def _key_column(model: type[Logged]) -> Any:
    return getattr(model, model.LOG_KEY)


def _present_rows(model: type[Logged], owner_id: int) -> Generator[tuple[str, Said]]:
    """The rows that there are, with what an entry would say of each now. To be closed."""
    rows = db.session.scalars(_rows_query(cast(Any, model)), {"owner_id": owner_id})
    try:
        for row in rows:
            yield row.log_key, row.said()
    except DAMAGE as error:
        raise_unless_damage(error)
        raise Difference(f"a row of {model.__tablename__} can't be read: it was damaged.") from None
    finally:
        rows.close()


@cache
def _rows_query(model: Any) -> Select[Any]:
    query: Any = select(model).where(model.belongs_to(bindparam("owner_id"))).order_by(_key_column(model))
    if model is User:
        query = query.options(selectinload(User.roles))
    return cast("Select[Any]", query.execution_options(yield_per=BATCH, populate_existing=True))


class _LatestValues:
    """By table and key: the newest word on each column. Those of few rows are held here, all others in a file."""

    HELD = 1000

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, str], dict[str, LoggedValue]] = OrderedDict()
        self._file: sqlite3.Connection | None = None

    def of(self, table: str, key: str) -> dict[str, LoggedValue]:
        """To be read and changed until the next call."""
        found = self._held.get((table, key))
        if found is None:
            found = self._held[table, key] = self._fetch_words(table, key)
            if len(self._held) > self.HELD:
                self._put_away(*self._held.popitem(last=False))
        self._held.move_to_end((table, key))
        return found

    def pop(self, table: str, key: str) -> dict[str, LoggedValue]:
        """Empty where nothing was said, or it was popped before."""
        found = self._held.pop((table, key), None)
        return self._fetch_words(table, key) if found is None else found

    def left(self) -> Iterator[tuple[str, str, dict[str, LoggedValue]]]:
        """Those that nobody popped and of which something was said."""
        yield from ((table, key, words) for (table, key), words in self._held.items() if words)
        if self._file is not None:
            for table, key, words in self._file.execute('SELECT "table", "key", words FROM words ORDER BY 1, 2'):
                yield table, key, json.loads(words)

    def _fetch_words(self, table: str, key: str) -> dict[str, LoggedValue]:
        if self._file is None:
            return {}
        where = 'DELETE FROM words WHERE "table" = ? AND "key" = ? RETURNING words'
        found = self._file.execute(where, (table, key)).fetchall()
        return json.loads(found[0][0]) if found else {}

    def _put_away(self, place: tuple[str, str], words: dict[str, LoggedValue]) -> None:
        if self._file is None:
            self._file = sqlite3.connect("", isolation_level=None)
            self._file.execute('CREATE TABLE words ("table", "key", words, PRIMARY KEY ("table", "key")) WITHOUT ROWID')
        self._file.execute("INSERT INTO words VALUES (?, ?, ?)", (*place, json.dumps(words)))
