"""Event: a durable, content-free note of one step, from which the live pages are fed; an announcement, not a record.

Ids grow in the order of commits within an account, so that a reader who has seen one has missed none before it: on
PostgreSQL an advisory lock of the account, taken last, spans the insert and the commit; SQLite has one writer anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

from flask import current_app
from sqlalchemy import ForeignKey, Index, Integer, String, Table, bindparam, func, insert, select, text
from sqlalchemy.orm import Mapped, mapped_column

from app.extensions import after_commit, before_commit, db, is_sqlite, now, reading
from app.models.base import Identity, Model, Moment, drop_old_rows, insert_row, insert_values
from app.models.user import Account
from app.plain_rows import make_row
from app.prepared import Prepared

KEPT = timedelta(days=90)
"""How long an event is kept; docs/operations.md says so."""

_LOCK_SPACE = 0x57E7
_LOCK = text("SELECT pg_advisory_xact_lock(:space, :account)")


class Event(Model):
    """`kind` is `refinement.step`-like; `data` holds numbers, ids and machine words."""

    __tablename__ = "events"
    __table_args__ = (
        Index("ix_events_account_id_id", "account_id", "id"),
        Index("ix_events_refinement_id_id", "refinement_id", "id"),
    )

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    agent_id: Mapped[int | None] = mapped_column(ForeignKey("agents.id"))
    refinement_id: Mapped[str | None] = mapped_column(ForeignKey("refinements.id"))
    kind: Mapped[str] = mapped_column(String(48))
    data: Mapped[dict[str, Any]]
    at: Mapped[Moment]


_TABLE = cast(Table, Event.__table__)
_SAID = [column for column in _TABLE.columns if not column.primary_key]
_TURN = select(func.pg_advisory_xact_lock(_LOCK_SPACE, bindparam("account_id", type_=Integer))).cte("turn")
_INSERT_IN_TURN = Prepared(
    insert(_TABLE)
    .from_select(_SAID, select(*(bindparam(column.name, type_=column.type) for column in _SAID)).select_from(_TURN))
    .returning(_TABLE.c.id)
)
"""The lock and the row in one statement: the row, and with it the number, is made once the lock is held."""


def announce(
    kind: str, account_id: int, agent_id: int | None = None, refinement_id: str | None = None, /, **data: Any
) -> None:
    """Write an event with the open transaction, as its last step, and wake the streams once it is committed.

    What is given by name is the event's data: counts and ids.
    """
    about = {"account_id": account_id, "agent_id": agent_id, "refinement_id": refinement_id}
    event = make_row(Event, {**about, "kind": kind, "data": data, "at": now()})
    before_commit(lambda: _insert_event(event))
    after_commit(lambda: current_app.extensions["wake_streams"](account_id, event.id))


def announce_each(kind: str, account_id: int, agent_ids: Sequence[int]) -> None:
    """The same of many agents of one account: an event each, in one statement, and one waking."""
    at = now()
    same = {"account_id": account_id, "kind": kind, "data": {}, "at": at}

    def insert() -> None:
        _take_turn(account_id)
        insert_values(Event, [same | {"agent_id": agent_id} for agent_id in agent_ids[:-1]])
        last.id = insert_row(last)

    if agent_ids:
        last = Event(agent_id=agent_ids[-1], **same)
        before_commit(insert)
        after_commit(lambda: current_app.extensions["wake_streams"](account_id, last.id))


def _insert_event(event: Event) -> None:
    session = db.session()
    if is_sqlite(session):
        event.id = insert_row(event)
        return
    session.flush()
    values = {column.name: getattr(event, column.name) for column in _SAID}
    ((event.id,),) = _INSERT_IN_TURN.fetch(session.connection(), values)


def _take_turn(account_id: int) -> None:
    """Nobody else adds an event of the account until this transaction has ended."""
    session = db.session()
    if not is_sqlite(session):
        session.flush()
        session.execute(_LOCK, {"space": _LOCK_SPACE, "account": account_id})


def drop_old_events() -> int:
    """Remove those from more than `KEPT` ago; returns how many.

    The newest event of each account stays, however old: ids must go on growing, and pages name it as what they show.
    """
    with reading() as session:
        accounts = session.scalars(select(Account.id).order_by(Account.id)).all()
    return sum(_drop_old_events_of(account_id) for account_id in accounts)


def _drop_old_events_of(account_id: int) -> int:
    newest = select(func.max(Event.id)).where(Event.account_id == account_id).scalar_subquery()
    return drop_old_rows(Event.id, Event.at, now() - KEPT, Event.account_id == account_id, Event.id < newest)
