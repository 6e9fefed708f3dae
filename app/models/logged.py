"""Logged rows: their audit entries hold the new value of every column, so that `verify` can compare it with the table.

Whoever changes such a row only calls `record` in the same transaction: the entry takes with it all that changed since
and belongs to its chain. Sealed, binary and long values are said as digests.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

from sqlalchemy import Column, ColumnElement, event
from sqlalchemy.orm import Session
from sqlalchemy.orm.attributes import instance_state

from app.extensions import db
from app.models.base import ExactRatio, Micros, Model
from app.silo import Sealed

MAX_PLAIN_TEXT = 64
"""Characters of a text that an entry says as it is."""

MAX_PLAIN_JSON = 1_000
"""The same of an object, as JSON."""

_TOUCHED = "logged rows that changed"
_SAID = "what this transaction has said of logged rows"

Said = dict[str, Any]
Owner = tuple[str, int]
"""Whose chain records a row: `agent` or `account`, and its id."""


class Logged:
    """`NOUN` is what sentences and hashed entries call such a row, so it never changes. `LOG_KEY` is the column by
    which entries name one. `OWNER` is whose chain records them: `agent` or `account`, and the column with its id.

    `CHECKED_ELSEWHERE` are columns that another part of the proof compares; `NOT_AUDITED` gives, by column, why the
    audit log leaves it out. Every other column is copied into the log, a new one without a change here.
    """

    NOUN: ClassVar[str]
    LOG_KEY: ClassVar[str] = "id"
    OWNER: ClassVar[tuple[str, str]] = ("agent", "agent_id")
    CHECKED_ELSEWHERE: ClassVar[frozenset[str]] = frozenset()
    NOT_AUDITED: ClassVar[Mapping[str, str]] = {}

    if TYPE_CHECKING:
        __tablename__: str
        __table__: ClassVar[Any]

    @property
    def log_key(self) -> str:
        return str(getattr(self, self.LOG_KEY))

    @property
    def subject(self) -> str:
        """What the audit log calls this row where an entry is about it."""
        return f"{self.NOUN}:{self.log_key}"

    @property
    def logged_for(self) -> Owner:
        kind, column = self.OWNER
        return kind, getattr(self, column)

    @classmethod
    def belongs_to(cls, owner_id: int | ColumnElement[int]) -> ColumnElement[bool]:
        """The condition in a query that a row belongs to this agent or account."""
        return cast("ColumnElement[bool]", getattr(cls, cls.OWNER[1]) == owner_id)

    def said(self) -> Said:
        """Its values for the next entry, by column; empty while there is nothing to record yet."""
        other = self.CHECKED_ELSEWHERE | self.NOT_AUDITED.keys()
        return self._logged_values(column.name for column in self.__table__.columns if column.name not in other)

    def _logged_values(self, names: Iterable[str]) -> Said:
        forms, held, said = _forms_of(cast(Any, type(self))), self.__dict__, Said()
        for name in names:
            value = held[name] if name in held else getattr(self, name)
            kind, form = type(value), forms[name]
            is_plain = form.scale is None and (kind is int or kind is bool)
            said[name] = value if is_plain else _as_said(form, value)
        return said


class _SaidForm(NamedTuple):
    """How a column's values are said: what it has where nobody said anything, and by what it is multiplied."""

    default: Any
    scale: Decimal | None

    @classmethod
    def of(cls, column: Column[Any]) -> _SaidForm:
        default = cast(Any, column.default)
        scale = column.type.SCALE if isinstance(column.type, ExactRatio | Micros) else None
        return cls(default.arg if default is not None and default.is_scalar else None, scale)


@cache
def _forms_of(model: Any) -> Mapping[str, _SaidForm]:
    return {column.name: _SaidForm.of(column) for column in model.__table__.columns}


def _as_said(form: _SaidForm, value: Any) -> Any:
    """A value as plain JSON, the same before it is stored and after it is read."""
    if value is None:
        value = form.default
    if value is not None and form.scale is not None:
        return int(value * form.scale)
    match value:
        case Sealed():
            return _sha256_digest(value.at_rest)
        case bytes():
            return _sha256_digest(value)
        case datetime():
            return (value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)).isoformat()
        case dict() if len(written := json.dumps(value, sort_keys=True)) > MAX_PLAIN_JSON:
            return _sha256_digest(written.encode())
        case []:
            return None  # some column types store an empty list as NULL
        case str():
            return str(value) if len(value) <= MAX_PLAIN_TEXT else _sha256_digest(value.encode(errors="surrogatepass"))
    return value


def take_what_changed(owner: Owner, also: Iterable[Logged] = ()) -> dict[str, dict[str, Said]] | None:
    """What a chain's next entry has to say, by table and key: of rows that changed since the last, and of `also`."""
    _note_changed_rows(db.session())
    return _take_noted(owner, also)


def take_what_changed_of(owners: Sequence[Owner]) -> list[dict[str, dict[str, Said]] | None]:
    """The same for the next entry of each of these chains; the session's rows are looked through once."""
    _note_changed_rows(db.session())
    return [_take_noted(owner) for owner in owners]


def _take_noted(owner: Owner, also: Iterable[Logged] = ()) -> dict[str, dict[str, Said]] | None:
    touched = _touched_rows(db.session())
    rows = [row for row in touched.values() if row.logged_for == owner]
    for row in rows:
        del touched[id(row)]
    found: dict[str, dict[str, Said]] = {}
    before: dict[tuple[str, str], Said] = db.session().info.setdefault(_SAID, {})
    for row in (*rows, *also):
        said, key = row.said(), (row.__tablename__, row.log_key)
        if said and said != before.get(key):  # a row that waits to be written is looked at with each entry
            before[key] = found.setdefault(key[0], {})[key[1]] = said
    return found or None


def logged_models() -> list[type[Logged]]:
    """All of them, in the order of their tables' names."""
    models = [mapper.class_ for mapper in Model.registry.mappers if issubclass(mapper.class_, Logged)]
    return sorted(models, key=lambda model: model.__tablename__)


def _sha256_digest(value: bytes) -> str:
    return f"sha256:{hashlib.sha256(value).hexdigest()}"


def _touched_rows(session: Session) -> dict[int, Logged]:
    found: dict[int, Logged] = session.info.setdefault(_TOUCHED, {})
    return found


@event.listens_for(Session, "before_flush")
def _note_changed_rows(session: Session, *_: Any) -> None:
    """Keep rows that are new, or changed in a recorded column, until the next entry of their chain is written."""
    for row in (*session.new, *session.dirty):
        if isinstance(row, Logged) and (row in session.new or _has_changed(row)):
            _touched_rows(session)[id(row)] = row


def _has_changed(row: Logged) -> bool:
    state = instance_state(row)
    return not (state.committed_state.keys() <= row.CHECKED_ELSEWHERE | row.NOT_AUDITED.keys())


@event.listens_for(Session, "after_commit")
@event.listens_for(Session, "after_rollback")
def _forget_changed_rows(session: Session) -> None:
    session.info.pop(_TOUCHED, None)
    session.info.pop(_SAID, None)
