"""Event: a durable, content-free note of one step, from which the live pages are fed; an announcement, not a record.

Ids grow in the order of commits within an account, so that a reader who has seen one has missed none before it: on
PostgreSQL an advisory lock of the account, taken last, spans the insert and the commit; SQLite has one writer anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from flask import current_app
from sqlalchemy import ForeignKey, Index, String, delete, func, select, text
from sqlalchemy.orm import Mapped, mapped_column

from app.extensions import after_commit, before_commit, db, is_sqlite, now, reading, writing
from app.models.account import Account
from app.models.base import Identity, Model, Moment, insert_row

KEPT = timedelta(days=90)
"""How long an event is kept; docs/operations.md says so."""

BATCH = 1000
"""Events that one transaction removes at most."""

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


def announce(
    kind: str,
    *,
    account_id: int,
    agent_id: int | None = None,
    refinement_id: str | None = None,
    data: Mapping[str, Any] | None = None,
) -> None:
    """Write an event with the open transaction, as its last step, and wake the streams once it is committed."""
    event = Event(
        account_id=account_id,
        agent_id=agent_id,
        refinement_id=refinement_id,
        kind=kind,
        data=dict(data or {}),
        at=now(),
    )
    before_commit(lambda: _insert_event(event))
    after_commit(lambda: current_app.extensions["wake_streams"](account_id, event.id))


def _insert_event(event: Event) -> None:
    session = db.session()
    if not is_sqlite(session):
        session.flush()
        session.execute(_LOCK, {"space": _LOCK_SPACE, "account": event.account_id})
    event.id = insert_row(event)


def drop_old_events(before: datetime | None = None) -> int:
    """Remove those from before a moment (`KEPT` ago, unless given), a batch a transaction; returns how many.

    The newest event of each account stays, however old: ids must go on growing, and pages name it as what they show.
    """
    limit = before or now() - KEPT
    with reading() as session:
        accounts = session.scalars(select(Account.id).order_by(Account.id)).all()
    return sum(_drop_batches(account_id, limit) for account_id in accounts)


def _drop_batches(account_id: int, before: datetime) -> int:
    dropped = 0
    while batch := _drop_batch(account_id, before):
        dropped += batch
        if batch < BATCH:
            break
    return dropped


def _drop_batch(account_id: int, before: datetime) -> int:
    """Ids grow with time, so the oldest ones are looked at by their index, and nothing behind the first young one."""
    newest = select(func.max(Event.id)).where(Event.account_id == account_id).scalar_subquery()
    oldest = select(Event.id, Event.at).where(Event.account_id == account_id, Event.id < newest)
    with reading() as session:
        rows = session.execute(oldest.order_by(Event.id).limit(BATCH)).tuples()
        old = [event_id for event_id, at in rows if at < before]
    if old:
        with writing() as session:
            session.execute(delete(Event).where(Event.id.in_(old)).execution_options(synchronize_session=False))
    return len(old)
