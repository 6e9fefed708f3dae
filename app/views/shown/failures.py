"""What the list of failures shows: every agent whose newest refinement failed, with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from app.extensions import db
from app.models import Agent, Refinement
from app.models.keyset import cut_page
from app.models.refinement import NEWEST_REFINEMENTS
from app.refinement.failures import FailureReason, failure_conditions, has_reason, reasons_of
from app.shapes.refinement import NamedRefinement

ROWS = 50


@dataclass(frozen=True)
class FailuresPage:
    """Newest first. `before` and `next_before` are ids of refinements."""

    rows: Sequence[tuple[Refinement, Agent]]
    reasons: Sequence[FailureReason]
    reason: str
    before: str
    next_before: str

    @classmethod
    def load(cls, account_id: int, *, reason: str = "", before: str = "") -> FailuresPage:
        wanted = [*failure_conditions(account_id), *([has_reason(reason)] if reason else [])]
        query = select(Refinement, Agent).join(Agent, Agent.id == Refinement.agent_id).where(*wanted)
        position = NEWEST_REFINEMENTS.find(before, *wanted)
        found, last = cut_page(db.session.execute(NEWEST_REFINEMENTS.page(query, ROWS, position)).tuples(), ROWS)
        following = last[0].id if last else ""
        return cls(found, reasons_of(account_id), reason, before if position else "", following)

    @property
    def total(self) -> int:
        return sum(each.count for each in self.reasons)

    def as_json(self) -> dict[str, Any]:
        return {
            "failures": [NamedRefinement.of(refinement, agent=agent.name).as_json() for refinement, agent in self.rows],
            "reasons": [each.as_json() for each in self.reasons],
            "next_before": self.next_before or None,
        }
