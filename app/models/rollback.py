"""Rollback: one use of the Time Machine, an undo or a rewind; it can be undone like what it undid."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from sqlalchemy import ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Model, Moment

ROLLED_BACK = "agent.rolled_back"
"""The event of every use of the Time Machine. It may change how many refinements and rollbacks stand."""


class RollbackKind(StrEnum):
    """What was undone: one refinement, one audit entry, an earlier rollback; or all since before a refinement."""

    REFINEMENT = "refinement"
    ENTRY = "entry"
    ROLLBACK = "rollback"
    REWIND = "rewind"


class Rollback(Model):
    """What it did, without content. Masses in tokens; `reversed` counts memories.

    `entry_id` is the audit entry with every state that it wrote. `target_entry_id` is the entry that it undid, where it
    was one. `undid` and `redid` name the refinements whose work it took back or gave back; `undone_by` is the rollback
    that undid this one, as long as that one stands.
    """

    __tablename__ = "rollbacks"
    __table_args__ = (Index("ix_rollbacks_agent_id_at", "agent_id", "at"),)

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"))
    kind: Mapped[RollbackKind] = mapped_column(String(16))
    refinement_id: Mapped[str | None] = mapped_column(ForeignKey("refinements.id"), index=True)
    target_entry_id: Mapped[int | None] = mapped_column(ForeignKey("audit_log.id"))
    rollback_id: Mapped[str | None] = mapped_column(ForeignKey("rollbacks.id"))
    entry_id: Mapped[int] = mapped_column(ForeignKey("audit_log.id"), index=True, unique=True)
    requested_by: Mapped[str] = mapped_column(String(300))
    reversed: Mapped[int]
    mass_before: Mapped[int]
    mass_after: Mapped[int]
    undid: Mapped[list[str]]
    redid: Mapped[list[str]]
    undone_by: Mapped[str | None] = mapped_column(String(36))
    at: Mapped[Moment]

    @property
    def subject(self) -> str:
        return f"rollback:{self.id}"

    def said(self, **more: Any) -> dict[str, Any]:
        """What its audit entry says of it, with the counts or whatever else is to stand there."""
        return {
            "rollback": self.id,
            "kind": str(self.kind),
            "refinement": self.refinement_id,
            "entry": self.target_entry_id,
            "of": self.rollback_id,
            **more,
            "mass_before": self.mass_before,
            "mass_after": self.mass_after,
            "undid": self.undid,
            "redid": self.redid,
        }

    @property
    def stands(self) -> bool:
        return self.undone_by is None
