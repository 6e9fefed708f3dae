"""Lists in pages: each begins behind a position, which costs the same at any depth."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import ColumnElement, Select, literal, select, tuple_

from app.errors import Invalid
from app.extensions import db
from app.models.base import iso

R = TypeVar("R")
S = TypeVar("S", bound=Select[Any])

Position = Sequence[Any]
"""A row's values of the columns that order the list."""

_CURSOR = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{6})?)Z~(\d{1,18})", re.ASCII)


class TimeCursor(NamedTuple):
    """A position in a list by time, as it stands in addresses; of two rows at one moment the higher id is newer."""

    at: datetime
    id: int

    def __str__(self) -> str:
        return f"{iso(self.at)}~{self.id}"

    @classmethod
    def parse(cls, text: str) -> TimeCursor | None:
        """None for what is no cursor of ours."""
        match = _CURSOR.fullmatch(text)
        try:
            return cls(datetime.fromisoformat(match[1]).replace(tzinfo=UTC), int(match[2])) if match else None
        except ValueError:
            return None


@dataclass(frozen=True)
class Keyset:
    """The order of a list, by columns that name a row once together: the last one is its id."""

    columns: tuple[Any, ...]
    newest_first: bool = False

    @property
    def order(self) -> list[ColumnElement[Any]]:
        return [column.desc() if self.newest_first else column.asc() for column in self.columns]

    def behind(self, position: Position) -> ColumnElement[bool]:
        """The condition on what comes after a position."""
        key = tuple_(*self.columns)
        mark = tuple_(*(literal(value, column.type) for value, column in zip(position, self.columns, strict=True)))
        return key < mark if self.newest_first else key > mark

    def page(self, query: S, limit: int, position: Position | None = None) -> S:
        """The next rows in this order, and one more, which tells `cut_page` that there are others."""
        conditions = () if position is None else (self.behind(position),)
        return query.where(*conditions).order_by(None).order_by(*self.order).limit(limit + 1)

    def load(self, query: Select[tuple[R]], limit: int, position: Position | None = None) -> tuple[list[R], R | None]:
        """The next rows, and the last of them if others follow."""
        return cut_page(db.session.scalars(self.page(query, limit, position)), limit)

    def find(self, row_id: str | int | None, *mine: ColumnElement[bool]) -> Position | None:
        """Where the row of that id stands; None without one, and for one that is not among `mine`."""
        if not row_id or not str(row_id).isprintable():
            return None
        return db.session.execute(select(*self.columns).where(self.columns[-1] == row_id, *mine)).one_or_none()

    def require(self, name: str, row_id: str | int | None, *mine: ColumnElement[bool]) -> Position | None:
        """The same of what a caller gave as the parameter `name`. Raises Invalid for an id that is not among `mine`."""
        position = self.find(row_id, *mine)
        if row_id is not None and position is None:
            begin = "newest" if self.newest_first else "oldest"
            raise Invalid(f"The cursor `{name}` is not one of yours; leave it out to begin at the {begin}.")
        return position


def cut_page(rows: Iterable[R], limit: int) -> tuple[list[R], R | None]:
    """The rows of a page, and the last of them, behind which the next page begins; None where no others follow."""
    found = list(rows)
    return found[:limit], found[limit - 1] if len(found) > limit else None
