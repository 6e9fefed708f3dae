"""Failures: agents whose newest refinement of a week failed or was interrupted, by the reason that it gave."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, exists, func, or_, select
from sqlalchemy.orm import aliased

from app.extensions import db, now
from app.models import Refinement, Status
from app.models.base import iso
from app.values.plural import count_nouns
from app.values.refinement_states import BROKEN_STATES

SHOWN_FOR = timedelta(days=7)
FAILED = BROKEN_STATES
NO_REASON = "No reason was recorded"

_PAUSE = re.compile(r" and asks for a pause of .*? seconds")


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


def failure_conditions(account_id: int, *states: Status) -> list[ColumnElement[bool]]:
    """What to ask of a refinement: that it failed this week, and that its agent had none since."""
    later = aliased(Refinement)
    return [
        Refinement.account_id == account_id,
        Refinement.status.in_(states or FAILED),
        Refinement.requested_at >= now() - SHOWN_FOR,
        ~exists().where(later.agent_id == Refinement.agent_id, later.requested_at > Refinement.requested_at),
    ]


def reasons_of(account_id: int, *states: Status) -> list[FailureReason]:
    """Those that most agents give come first."""
    query = select(Refinement.reason, func.count(), func.max(Refinement.ended_at))
    found: dict[str, FailureReason] = {}
    for text, count, newest in db.session.execute(
        query.where(*failure_conditions(account_id, *states)).group_by(Refinement.reason)
    ).tuples():
        words = short_reason(text)
        known = found.get(words, FailureReason(words, 0, None))
        times = [moment for moment in (known.newest, newest) if moment]
        found[words] = FailureReason(words, known.count + count, max(times, default=None))
    return sorted(found.values(), key=lambda each: (-each.count, each.words))


def short_reason(reason: str | None) -> str:
    """The first sentence, without what differs from one attempt to the next."""
    first = _PAUSE.sub("", reason or "").partition(". ")[0].partition("; ")[0].removesuffix(".")
    return first or NO_REASON


def has_reason(words: str) -> ColumnElement[bool]:
    """That its reason is this one, as `short_reason` tells it."""
    if words == NO_REASON:
        return Refinement.reason.is_(None)
    ends = (".", ";", " and asks for a pause of ")
    longer = (Refinement.reason.startswith(words + end, autoescape=True) for end in ends)
    return or_(Refinement.reason == words, *longer)
