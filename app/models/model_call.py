"""ModelCall: one call of a model, what it was for and what it cost; without any content.

It is telemetry: nothing of it stands in the audit log, and `verify` does not look at it.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from enum import StrEnum

from sqlalchemy import ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from app.extensions import now
from app.models.base import Identity, Micros, Model, Moment, drop_old_rows

KEPT = timedelta(days=400)
"""How long a call is kept, so that a month can be compared with the one a year before; docs/operations.md says so."""

ANSWERED = "answered"
UNEXPECTED = "unexpected"
"""The outcome of a call that ended by an error which is none of a model's."""


class CallPurpose(StrEnum):
    REFINEMENT = "refinement"
    CONSENT = "consent"
    EXCEPTION = "exception"
    TOKEN = "token"  # noqa: S105 - a purpose's name
    SAFETY_READING = "safety_reading"
    CONVERSATION = "conversation"
    PROMOTION = "promotion"
    SETTINGS_CHANGE = "settings_change"
    SECOND_READING = "second_reading"
    RECALL_PROBES = "recall_probes"
    MODEL_TEST = "model_test"


class ModelCall(Model):
    """One row a call, however many attempts it took; also one that failed, or whose answer came too late to count.

    `subject_id` is the id of the refinement, exception, token request, proposal, change of settings or intake that it
    was for; a promotion and a test have none. `seconds` run from the first attempt to the end of the last. `outcome` is
    `answered`, `unexpected`, or the kind of the ModelError.
    """

    __tablename__ = "model_calls"
    __table_args__ = (
        Index("ix_model_calls_account", "account_id", "started_at"),
        Index("ix_model_calls_agent", "agent_id", "started_at"),
    )

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"))
    purpose: Mapped[CallPurpose] = mapped_column(String(16))
    subject_id: Mapped[str | None] = mapped_column(String(36), index=True)
    model_id: Mapped[str] = mapped_column(String(200))
    prompt_tokens: Mapped[int]
    completion_tokens: Mapped[int]
    total_tokens: Mapped[int]
    cost_usd: Mapped[Decimal] = mapped_column(Micros)
    started_at: Mapped[Moment]
    seconds: Mapped[float]
    outcome: Mapped[str] = mapped_column(String(24))


def drop_old_calls() -> int:
    """Remove those that began more than `KEPT` ago; returns how many."""
    return drop_old_rows(ModelCall.id, ModelCall.started_at, now() - KEPT)
