"""What the list of failures shows: every agent whose newest refinement failed, with its reason."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from app.extensions import db
from app.models import Agent, Refinement
from app.models.keyset import cut_page
from app.models.refinement import NEWEST_REFINEMENTS
from app.refinement.failures import failure_conditions, has_reason, reasons_of
from app.views.shown.overview import refinements_json

ROWS = 50


class FailuresPage:
    """Newest first. `before` and `next_before` are ids of refinements."""

    def __init__(self, account_id: int, *, reason: str = "", before: str = "") -> None:
        wanted = [*failure_conditions(account_id), *([has_reason(reason)] if reason else [])]
        query = select(Refinement, Agent).join(Agent, Agent.id == Refinement.agent_id).where(*wanted)
        position = NEWEST_REFINEMENTS.find(before, *wanted)
        self.rows, last = cut_page(db.session.execute(NEWEST_REFINEMENTS.page(query, ROWS, position)).tuples(), ROWS)
        self.reasons, self.reason = reasons_of(account_id), reason
        self.total = sum(each.count for each in self.reasons)
        self.before, self.next_before = before if position else "", last[0].id if last else ""

    def as_json(self) -> dict[str, Any]:
        return {
            "failures": refinements_json(self.rows),
            "reasons": [each.as_json() for each in self.reasons],
            "next_before": self.next_before or None,
        }
