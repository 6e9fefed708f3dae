"""Failures: agents whose newest refinement of a week failed or was interrupted, by the reason that they gave."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import BindParameter, ColumnElement, exists
from sqlalchemy.orm import aliased

from app.extensions import now
from app.models import Refinement, Status
from app.models.base import iso
from app.models.refinement import NO_REASON
from app.prepared import one_of_these
from app.values.plural import count_nouns
from app.values.refinement_states import BROKEN_STATES

SHOWN_FOR = timedelta(days=7)
FAILED = BROKEN_STATES
_LATER = aliased(Refinement)
AGENT_STOPPED = "The agent is stopped: its page says why"


@dataclass(frozen=True)
class FailureReason:
    """Why agents failed, in a short sentence of the system's own; how many, and when the newest did."""

    words: str
    count: int
    newest: datetime | None

    @property
    def agents(self) -> str:
        return count_nouns(self.count, "agent")

    def as_json(self) -> dict[str, Any]:
        return {"reason": self.words, "agents": self.count, "newest": iso(self.newest)}


def failure_conditions(
    account_id: int | BindParameter[int], *states: Status, since: BindParameter[datetime] | None = None
) -> list[ColumnElement[bool]]:
    """What to ask of a refinement: that it failed this week (or `since`), and that its agent had none after it."""
    return [
        Refinement.account_id == account_id,
        one_of_these(Refinement.status, states or FAILED),
        Refinement.requested_at >= (now() - SHOWN_FOR if since is None else since),
        ~exists().where(_LATER.agent_id == Refinement.agent_id, _LATER.requested_at > Refinement.requested_at),
    ]


def has_reason(words: str) -> ColumnElement[bool]:
    """That this is how it says why it failed."""
    return Refinement.failure.is_(None) if words == NO_REASON else Refinement.failure == words
