"""Rows as the database has them now, whatever the session still holds."""

from __future__ import annotations

from typing import TypeVar

from sqlalchemy import inspect, select

from app.extensions import db
from app.models import Action, Agent, AuditLog
from app.models.base import Model

R = TypeVar("R", bound=Model)


def fresh(row: R) -> R:
    """The same row, read anew."""
    key = inspect(row).identity
    db.session.rollback()
    return db.session.get_one(type(row), key, populate_existing=True)


def entries_of(agent: Agent, *actions: Action) -> list[AuditLog]:
    """The agent's audit entries of these kinds, oldest first."""
    db.session.rollback()
    query = select(AuditLog).where(AuditLog.agent_id == agent.id, AuditLog.action.in_(actions))
    return list(db.session.scalars(query.order_by(AuditLog.id)))
