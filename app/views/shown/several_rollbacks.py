"""What the page shows that says beforehand what rolling back several refinements would do: numbers, no content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select

from app.extensions import db
from app.history.several import LEFT_OUT, MOST_ROLLED_BACK, PlannedRollback, Prospect, preview_rollbacks
from app.models import Agent, Refinement
from app.vocabulary.rollbacks import describe_removed


class SeveralRollbacksPage:
    """`chosen` has the newest first; of more than one click takes only the newest are planned. `kept` is what the form
    carries so that the act means the same ones."""

    most = MOST_ROLLED_BACK

    def __init__(self, chosen: Sequence[str], matching: int) -> None:
        self.chosen = chosen[:MOST_ROLLED_BACK]
        self.matching = matching
        self.preview = preview_rollbacks(self.chosen)
        query = select(Refinement, Agent.name).join(Agent, Agent.id == Refinement.agent_id)
        rows = db.session.execute(query.where(Refinement.id.in_(self.chosen))).tuples()
        self._rows: Mapping[str, tuple[Refinement, str]] = {each.id: (each, agent) for each, agent in rows}

    @property
    def command(self) -> str:
        """The same preview at the command line."""
        return f"./whetstone refinements rollback {' '.join(self.chosen) or 'ID'}"

    @property
    def removed_words(self) -> str:
        return describe_removed(self.preview.removed, self.preview.removed_notes)

    @property
    def rows(self) -> list[tuple[PlannedRollback, Refinement, str, str]]:
        """Each with its refinement, its agent's name, and in words what would become of it."""
        return [(each, *self._rows[each.refinement_id], WORDS[each.prospect]) for each in self.preview.planned]

    @property
    def left_out(self) -> list[tuple[str, int]]:
        """Why some would be left out, and how many."""
        counted = [(words, self.preview.count(prospect)) for prospect, words in LEFT_OUT.items()]
        return [(words, count) for words, count in counted if count]

    def as_json(self) -> dict[str, Any]:
        planned = [
            {"id": each.refinement_id, "agent": agent, "prospect": str(each.prospect), **_figures(each)}
            for each, _, agent, _ in self.rows
        ]
        totals = {
            name: getattr(self.preview, name)
            for name in ("done", "agents", "restored", "removed", "removed_notes", "gain")
        }
        return {"matching": self.matching, "planned": planned, **totals}


WORDS: Mapping[str, str] = {
    Prospect.READY: "would be rolled back",
    Prospect.WAITS: "would be rolled back after the later ones of these",
    **{prospect: f"left out: {words}" for prospect, words in LEFT_OUT.items()},
}


def _figures(each: PlannedRollback) -> dict[str, Any]:
    plan = each.plan
    return {"restored": plan.restored, "removed": plan.removed, "conflicts": len(plan.conflicts)}
