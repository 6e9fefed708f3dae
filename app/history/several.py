"""Rolling back several refinements: in numbers first, then the newest first, each in a transaction of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from app.errors import Refused
from app.extensions import reading
from app.history.plan import Plan, Target, preview_plan
from app.history.undo import RollbackConflict, roll_back
from app.models import Actor
from app.values.plural import count_nouns

MOST_ROLLED_BACK = 100
"""Refinements that one click rolls back; the newest come first. Each is planned by a handful of queries."""


class Prospect(StrEnum):
    """What rolling one back would come to now."""

    READY = "ready"
    WAITS = "waits"
    """In conflict with later ones of the same choice, which are rolled back before it."""
    CONFLICT = "conflict"
    FINAL = "final"
    OPEN = "open"
    """A refinement of its agent is open: by itself it can be rolled back, which ends that one first."""
    UNDONE = "undone"
    NOTHING = "nothing"


LEFT_OUT = {
    Prospect.CONFLICT: "changed since by others",
    Prospect.FINAL: "reversed by a guard for good",
    Prospect.OPEN: "agent is being refined",
    Prospect.UNDONE: "undone already",
    Prospect.NOTHING: "nothing to undo",
}
"""Why one is not rolled back, in the fewest words."""


@dataclass(frozen=True)
class PlannedRollback:
    refinement_id: str
    plan: Plan
    prospect: Prospect

    @property
    def is_done(self) -> bool:
        """Whether it would be rolled back."""
        return self.prospect not in LEFT_OUT


@dataclass(frozen=True)
class RollbackPreview:
    """`planned` has the newest first. The figures are of those that are ready now: what waits is planned later."""

    planned: Sequence[PlannedRollback]

    def count(self, prospect: Prospect) -> int:
        return sum(each.prospect == prospect for each in self.planned)

    @property
    def done(self) -> int:
        """How many would be rolled back."""
        return sum(each.is_done for each in self.planned)

    @property
    def _ready(self) -> list[Plan]:
        return [each.plan for each in self.planned if each.prospect == Prospect.READY]

    @property
    def restored(self) -> int:
        return sum(plan.restored for plan in self._ready)

    @property
    def removed(self) -> int:
        return sum(plan.removed for plan in self._ready)

    @property
    def removed_notes(self) -> int:
        """How many of the removed are notes in the journal."""
        return sum(plan.removed_notes for plan in self._ready)

    @property
    def gain(self) -> int:
        """What the masses of all agents gain, in tokens."""
        return sum(plan.mass_after - plan.mass_before for plan in self._ready)

    @property
    def agents(self) -> int:
        return len({each.plan.found.agent_id for each in self.planned if each.is_done})


@dataclass
class RolledBack:
    """`done` are the rollbacks that were made, `left_out` counts, in words, why the others were not."""

    done: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    @property
    def line(self) -> str:
        """`3 refinements rolled back; 2 left out: undone already.`"""
        words = f"{count_nouns(len(self.done), 'refinement')} rolled back"
        if not self.left_out:
            return f"{words}."
        reasons = self.left_out.most_common()
        told = [reason if len(reasons) == 1 else f"{count:,} {reason}" for reason, count in reasons]
        return f"{words}; {self.left_out.total():,} left out: {', '.join(told)}."


def preview_rollbacks(chosen: Sequence[str]) -> RollbackPreview:
    """What `roll_back_several` would do now; `chosen` has the newest first. Reads only. Raises NotFound."""
    with reading():
        return RollbackPreview([_plan_one(each, frozenset(chosen)) for each in chosen])


def roll_back_several(chosen: Sequence[str], *, by: Actor) -> RolledBack:
    """Each whole or not at all; one that can't be leaves the others. `chosen` has the newest first."""
    made = RolledBack()
    for refinement_id in chosen:
        with reading():
            prospect = _plan_one(refinement_id, frozenset()).prospect
        if prospect in LEFT_OUT:
            made.left_out[LEFT_OUT[prospect]] += 1
            continue
        try:
            result = roll_back(Target.refinement(refinement_id), by=by)
        except RollbackConflict:  # somebody was faster than the lock
            made.left_out[LEFT_OUT[Prospect.CONFLICT]] += 1
            continue
        except Refused as error:
            made.left_out[error.sentence] += 1
            continue
        if result.applied and result.rollback is not None:
            made.done.append(result.rollback.id)
        else:
            made.left_out[LEFT_OUT[Prospect.UNDONE]] += 1
    return made


def _plan_one(refinement_id: str, chosen: frozenset[str]) -> PlannedRollback:
    plan = preview_plan(Target.refinement(refinement_id))
    return PlannedRollback(refinement_id, plan, _prospect_of(plan, chosen))


def _prospect_of(plan: Plan, chosen: frozenset[str]) -> Prospect:
    if plan.undone_by is not None:
        return Prospect.UNDONE
    if plan.final is not None:
        return Prospect.FINAL
    if plan.conflicts:
        return Prospect.WAITS if plan.later and chosen.issuperset(plan.later) else Prospect.CONFLICT
    if plan.stops is not None:
        return Prospect.OPEN
    return Prospect.READY if plan.changes else Prospect.NOTHING
