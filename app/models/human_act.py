"""HumanAct: what a human did to an agent's memories, until the agent's journal has told it.

The web process holds no key of the journal: the act leaves this row, and a worker writes the note (`history/telling`).
"""

from __future__ import annotations

from sqlalchemy import ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from app.extensions import db
from app.models.audit import Action, AuditLog
from app.models.base import Identity, Model, Moment, partial_index
from app.values.actor import COMMAND_LINE, ActorKind

TOLD_ACTIONS = (Action.ROLLBACK, Action.CONSTITUTIONAL_TOGGLE, Action.IMPORT)
"""Those that change memories and that a human can do."""


class HumanAct(Model):
    """`entry_id` is the act's audit entry, `actor` who did it, `told_at` when the agent was told of it."""

    __tablename__ = "human_acts"
    __table_args__ = (
        Index("ix_human_acts_entry_id", "entry_id", unique=True),
        partial_index("ix_human_acts_untold", "agent_id", "actor", "at", where="told_at IS NULL"),
        Index("ix_human_acts_told", "agent_id", "actor", "told_at"),
    )

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"))
    entry_id: Mapped[int] = mapped_column(ForeignKey("audit_log.id"))
    actor: Mapped[str] = mapped_column(String(300))
    at: Mapped[Moment]
    told_at: Mapped[Moment | None]


def is_human_act(entry: AuditLog) -> bool:
    """Whether a human changed memories by it, in the browser or at the command line."""
    is_human = entry.actor_kind == ActorKind.USER or entry.actor == str(COMMAND_LINE)
    return is_human and entry.action in TOLD_ACTIONS


def tell_later(entry: AuditLog) -> None:
    """Leave word for the agent, in the transaction of the entry, where it is a human's act."""
    if is_human_act(entry):
        db.session.add(HumanAct(agent_id=entry.agent_id, entry_id=entry.id, actor=entry.actor, at=entry.at))
