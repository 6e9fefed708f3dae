"""What the pages of the Time Machine show: what taking something back would do, and what a rollback did; no content."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flask import url_for
from sqlalchemy import func, select

from app.events.topics import newest_event
from app.extensions import db
from app.history.plan import GuardFinal, Target, preview_plan
from app.models import Agent, AuditLog, MemoryState, MemoryType, Refinement, Rollback, RollbackKind
from app.models.state import NO_EARLIER_STATE
from app.shapes.audit import PlanShape, RollbackShape
from app.vocabulary import ROLLBACKS
from app.vocabulary.actions import action_term
from app.vocabulary.rollbacks import describe_memories, describe_moves, describe_removed


class RollbackOffer:
    """What taking something back would do now, in one `line`; or who has done it already.

    `target` is what it really is: of an entry of the Time Machine, its rollback.
    `later` are refinements since, newest first: those that stand in the way, or those that a rewind reverses.
    `conflict` says why it is not possible by itself, `final` why it can never be done.
    """

    def __init__(self, target: Target) -> None:
        """Raises NotFound, and NothingToUndo for an entry that changed no memory."""
        self.plan = plan = preview_plan(target)
        self.target = target = plan.found.target
        self.undone = db.session.get(Rollback, plan.undone_by) if plan.undone_by else None
        self.who_undid = actor_words(self.undone) if self.undone else ""
        self.later = refinements_by_id(plan.later)
        mass, notes = (plan.mass_before, plan.mass_after), plan.removed_notes
        self.line = describe_moves(plan.restored, plan.removed, mass, notes=notes)
        self.removed_words = describe_removed(plan.removed, notes)
        self.in_the_way = describe_memories(plan.conflicts)
        self.conflict = f"since then, others changed {self.in_the_way}"
        if plan.altered:
            self.conflict = f"the history of {describe_memories(plan.altered)} was altered behind Whetstone's back"
        self.final = GuardFinal(plan).sentence if plan.final else ""
        self.button = ROLLBACKS[target.kind].button
        self.plan_url, self.undo_url = target_url("plan", target), target_url("undo", target)

    @property
    def state(self) -> str:
        if self.plan.undone_by:
            return "undone"
        if self.plan.final:
            return "final"
        if self.plan.conflicts:
            return "conflict"
        return "ready" if self.plan.changes or self.plan.stops else "nothing"

    def as_json(self) -> dict[str, Any]:
        return PlanShape.of(self.plan).as_json() | {"state": self.state}


class PlanPage:
    """`rewind` is offered in a conflict: to before the refinement, or before the first of those that are in the way.

    `rewinds_for_more` where it only clears the way, so that the undo itself comes after it.
    """

    def __init__(self, target: Target) -> None:
        """Raises GuardFinal, NotFound, and NothingToUndo for an entry that changed no memory."""
        self.offer = RollbackOffer(target)
        self.offer.plan.check_not_final()
        self.agent = db.session.get_one(Agent, self.offer.plan.found.agent_id)
        before = _rewind_to(self.offer) if self.offer.state == "conflict" else None
        self.rewind = RollbackOffer(Target.rewind(before)) if before else None
        target, term = self.offer.target, ROLLBACKS[self.offer.target.kind]
        self.title = term.title.format(agent=self.agent.name, id=target.id, short=target.id[:8])
        self.lead, self.command = term.lead, rollback_command(target)
        self.rewinds_for_more = self.offer.plan.found.refinement is None

    @property
    def back_url(self) -> str:
        """The page of what would be taken back."""
        found = self.offer.plan.found
        if found.refinement is not None:
            return url_for("refinements.show", refinement_id=found.refinement.id)
        if found.rollback is not None:
            return url_for("rollbacks.show", rollback_id=found.rollback.id)
        return url_for("audit.agent", agent_id=self.agent.id)

    def as_json(self) -> dict[str, Any]:
        said = {"agent": self.agent.name, "agent_id": self.agent.id, "memories": list(self.offer.plan.memories)}
        return self.offer.as_json() | said | {"rewind": self.rewind.as_json() if self.rewind else None}


class RollbackPage:
    """One use of the Time Machine. `taken` and `given` are other refinements whose work it took or gave back.

    `target` is the entry that it undid, where it was one; `facts` is the open data of its own entry: counts and ids.
    Of what it removed, `removed_notes` were notes in the journal.
    """

    def __init__(self, rollback: Rollback) -> None:
        self.last_event = newest_event(rollback.account_id)
        db.session.refresh(rollback)
        self.rollback = rollback
        self.facts: dict[str, Any] = db.session.get_one(AuditLog, rollback.entry_id).data
        self.target = db.session.get(AuditLog, rollback.target_entry_id) if rollback.target_entry_id else None
        self.entry_words = action_term(self.target.action).words if self.target else ""
        self.agent = db.session.get_one(Agent, rollback.agent_id)
        self.taken = refinements_by_id(rollback.undid) if rollback.kind != RollbackKind.REFINEMENT else []
        self.given = refinements_by_id(rollback.redid)
        self.offer = RollbackOffer(Target.rollback(rollback.id))
        self.name, self.who = ROLLBACKS[rollback.kind].capitalized, actor_words(rollback)
        mass = (rollback.mass_before, rollback.mass_after)
        restored, removed = self.facts["restored"], self.facts["removed"]
        self.removed_notes = _count_removed_notes(rollback.entry_id)
        self.removed_words = describe_removed(removed, self.removed_notes)
        self.line = describe_moves(restored, removed, mass, notes=self.removed_notes, past=True)
        self.command = rollback_command(self.offer.target)

    def as_json(self) -> dict[str, Any]:
        counted = {name: self.facts[name] for name in ("restored", "removed", "stays")}
        standing = {"undid": self.rollback.undid, "redid": self.rollback.redid}
        told = RollbackShape.of(self.rollback).as_json()
        counted["removed_notes"] = self.removed_notes
        return told | {"agent": self.agent.name, "agent_id": self.agent.id} | counted | standing


def target_url(act: str, target: Target) -> str:
    """The page that says beforehand what taking it back would do (`plan`), or where to POST to do that (`undo`)."""
    noun = "refinement" if target.kind == RollbackKind.REWIND else target.kind  # a rewind is to before a refinement
    named: dict[str, Any] = {f"{noun}_id": target.id}
    return url_for(f"rollbacks.{act}_{target.kind}", **named)


def rollback_command(target: Target) -> str:
    """The plan at the command line."""
    rewind = " --rewind" if target.kind == RollbackKind.REWIND else ""
    return f"./whetstone rollback {target.id}{rewind} --dry-run"


def actor_words(rollback: Rollback) -> str:
    """Who asked for it, for the eye."""
    return rollback.requested_by.partition(":")[2]


def refinements_by_id(ids: Sequence[str]) -> list[Refinement]:
    """Newest first; ids of other things are passed over."""
    if not ids:
        return []
    query = select(Refinement).where(Refinement.id.in_(ids))
    return list(db.session.scalars(query.order_by(Refinement.requested_at.desc(), Refinement.id.desc())))


def _count_removed_notes(entry_id: int) -> int:
    removed = MemoryState.restores_entry_id == NO_EARLIER_STATE
    notes = select(func.count()).where(MemoryState.entry_id == entry_id, MemoryState.type == MemoryType.JOURNAL)
    return db.session.scalar(notes.where(removed)) or 0


def _rewind_to(offer: RollbackOffer) -> str | None:
    found = offer.plan.found
    if found.refinement is not None:
        return found.refinement.id
    entry = db.session.get(AuditLog, found.entry_id)
    number = entry.refinement_id if entry is not None else None
    return number or (offer.later[-1].id if offer.later else None)
