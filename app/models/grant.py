"""AccessGrant: a mechanic's exception, a human's time-limited view of content that the agent consented to."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Model, SealedText, UtcDateTime
from app.silo import Sealed


class GrantCategory(StrEnum):
    DEBUGGING = "debugging"
    SAFETY = "safety"
    LEGAL = "legal"
    AGENT_ASKED = "agent_asked"
    OTHER = "other"


class GrantStatus(StrEnum):
    PENDING = "pending"
    GRANTED = "granted"
    DENIED = "denied"
    EXPIRED = "expired"
    REVOKED = "revoked"


class AccessGrant(Model):
    """`refinement_id` null means the ledger; otherwise the history of that one refinement."""

    __tablename__ = "access_grants"

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), index=True)
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"), index=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    category: Mapped[GrantCategory] = mapped_column(String(16))
    purpose: Mapped[str] = mapped_column(String(500))
    refinement_id: Mapped[str | None] = mapped_column(ForeignKey("refinements.id"))
    minutes: Mapped[int]
    status: Mapped[GrantStatus] = mapped_column(String(16))
    requested_by: Mapped[str] = mapped_column(String(300))
    requested_at: Mapped[datetime] = mapped_column(UtcDateTime)
    decided_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    reason: Mapped[Sealed | None] = mapped_column(SealedText)
