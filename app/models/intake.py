"""Intake: content that came in through the web, sealed to the master public key until the worker takes it in."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from sqlalchemy import ForeignKey, LargeBinary, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Model, UtcDateTime


class IntakeStatus(StrEnum):
    WAITING = "waiting"
    TAKEN = "taken"
    FAILED = "failed"


class Intake(Model):
    """`sealed` is emptied once taken in or refused; `imported` counts memories; `error` never holds content."""

    __tablename__ = "intakes"

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"), index=True)
    kind: Mapped[str] = mapped_column(String(16))
    actor_kind: Mapped[str] = mapped_column(String(8))
    actor_name: Mapped[str] = mapped_column(String(300))
    actor_user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    status: Mapped[IntakeStatus] = mapped_column(String(16))
    sealed: Mapped[bytes | None] = mapped_column(LargeBinary)
    imported: Mapped[int | None]
    error: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    taken_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
