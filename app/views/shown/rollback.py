"""What the pages of the Time Machine show: what taking something back would do, and what a rollback did; no content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flask import url_for
from sqlalchemy import select

from app.extensions import db
from app.history.plan import GuardFinal, Plan, Target, preview_plan
from app.history.words import describe_memories, describe_moves
from app.models import Agent, AuditLog, Refinement, Rollback, RollbackKind
from app.shapes.rollback import PlanShape, RollbackShape
from app.views.shown.agents import last_event
from app.vocabulary import ROLLBACKS
from app.vocabulary.actions import action_term


@dataclass(frozen=True)
class RollbackOffer:
    """What taking something back would do now; or who has done it already.

    `later` are refinements since, newest first: those that stand in the way, or those that a rewind reverses.
    """

    plan: Plan
    undone: Rollback | None
    later: Sequence[Refinement]

    @classmethod
    def load(cls, target: Target) -> RollbackOffer:
        """Raises NotFound, and NothingToUndo for an entry that changed no memory."""
        plan = preview_plan(target)
        undone = db.session.get(Rollback, plan.undone_by) if plan.undone_by else None
        return cls(plan, undone, refinements_by_id(plan.later))

    @property
    def target(self) -> Target:
        return self.plan.found.target

    @property
    def state(self) -> str:
        if self.plan.undone_by:
            return "undone"
        if self.plan.final:
            return "final"
        if self.plan.conflicts:
            return "conflict"
        return "ready" if self.plan.changes or self.plan.stops else "nothing"

    @property
    def line(self) -> str:
        """What would happen, in one line."""
        plan = self.plan
        return describe_moves(plan.restored, plan.removed, (plan.mass_before, plan.mass_after))

    @property
    def conflict(self) -> str:
        """Why it is not possible by itself."""
        return f"since then, others changed {self.in_the_way}"

    @property
    def final(self) -> str:
        """Why it can never be done."""
        return GuardFinal(self.plan).sentence if self.plan.final else ""

    @property
    def in_the_way(self) -> str:
        return describe_memories(self.plan.conflicts)

    @property
    def button(self) -> str:
        return ROLLBACKS[self.plan.kind].button

    @property
    def undone_name(self) -> str:
        """What undid it, with the beginning of its id."""
        if self.undone is None:
            return ""
        return f"{ROLLBACKS[self.undone.kind].noun} {self.undone.id[:8]}"

    @property
    def who_undid(self) -> str:
        return who(self.undone) if self.undone else ""

    @property
    def plan_url(self) -> str:
        return plan_url(self.target)

    @property
    def undo_url(self) -> str:
        return undo_url(self.target)

    def as_json(self) -> dict[str, Any]:
        return PlanShape.of(self.plan).as_json() | {"state": self.state}


@dataclass(frozen=True)
class PlanPage:
    """`rewind` is offered in a conflict: to before the refinement, or before the first of those that are in the way."""

    offer: RollbackOffer
    agent: Agent
    rewind: RollbackOffer | None

    @classmethod
    def load(cls, target: Target) -> PlanPage:
        """Raises GuardFinal, NotFound, and NothingToUndo for an entry that changed no memory."""
        offer = RollbackOffer.load(target)
        offer.plan.check_not_final()
        agent = db.session.get_one(Agent, offer.plan.agent_id)
        before = _rewind_to(offer) if offer.state == "conflict" else None
        return cls(offer, agent, RollbackOffer.load(Target.rewind(before)) if before else None)

    @property
    def title(self) -> str:
        return title_of(self.offer.target, self.agent.name)

    @property
    def lead(self) -> str:
        return ROLLBACKS[self.offer.plan.kind].lead

    @property
    def rewinds_for_more(self) -> bool:
        """Whether the rewind only clears the way, so that the undo itself comes after it."""
        return self.offer.plan.found.refinement is None

    @property
    def back_url(self) -> str:
        """The page of what would be taken back."""
        found = self.offer.plan.found
        if found.refinement is not None:
            return url_for("refinements.show", refinement_id=found.refinement.id)
        if found.rollback is not None:
            return url_for("rollbacks.show", rollback_id=found.rollback.id)
        return url_for("audit.agent", agent_id=self.agent.id)

    @property
    def command(self) -> str:
        return command(self.offer.target, "--dry-run")

    def as_json(self) -> dict[str, Any]:
        said = {"agent": self.agent.name, "agent_id": self.agent.id, "memories": list(self.offer.plan.memories)}
        return self.offer.as_json() | said | {"rewind": self.rewind.as_json() if self.rewind else None}


@dataclass(frozen=True)
class RollbackPage:
    """One use of the Time Machine. `taken` and `given` are other refinements whose work it took or gave back.

    `target` is the entry that it undid, where it was one; `facts` is the open data of its own entry: counts and ids.
    """

    rollback: Rollback
    agent: Agent
    facts: dict[str, Any]
    taken: Sequence[Refinement]
    given: Sequence[Refinement]
    target: AuditLog | None
    offer: RollbackOffer
    last_event: int

    @classmethod
    def load(cls, rollback: Rollback) -> RollbackPage:
        seen = last_event(rollback.account_id)
        db.session.refresh(rollback)
        entry = db.session.get_one(AuditLog, rollback.entry_id)
        target = db.session.get(AuditLog, rollback.target_entry_id) if rollback.target_entry_id else None
        return cls(
            rollback,
            db.session.get_one(Agent, rollback.agent_id),
            entry.data,
            refinements_by_id(rollback.undid) if rollback.kind != RollbackKind.REFINEMENT else (),
            refinements_by_id(rollback.redid),
            target,
            RollbackOffer.load(Target.rollback(rollback.id)),
            seen,
        )

    @property
    def name(self) -> str:
        return name_of(self.rollback)

    @property
    def who(self) -> str:
        return who(self.rollback)

    @property
    def entry_words(self) -> str:
        """What the entry had done that this undid."""
        return action_term(self.target.action).words if self.target else ""

    @property
    def line(self) -> str:
        """What it did, in one line."""
        mass = (self.rollback.mass_before, self.rollback.mass_after)
        return describe_moves(self.facts["restored"], self.facts["removed"], mass, past=True)

    @property
    def command(self) -> str:
        return command(self.offer.target, "--dry-run")

    def as_json(self) -> dict[str, Any]:
        counted = {name: self.facts[name] for name in ("restored", "removed", "stays")}
        standing = {"undid": self.rollback.undid, "redid": self.rollback.redid}
        told = RollbackShape.of(self.rollback).as_json()
        return told | {"agent": self.agent.name, "agent_id": self.agent.id} | counted | standing


def plan_url(target: Target) -> str:
    """The page that says beforehand what it would do."""
    return url_for(f"rollbacks.plan_{target.kind}", **_url_arguments(target))


def undo_url(target: Target) -> str:
    """Where to POST to take it back."""
    return url_for(f"rollbacks.undo_{target.kind}", **_url_arguments(target))


def command(target: Target, *options: str) -> str:
    """The same at the command line."""
    rewind = ["--rewind"] if target.kind == RollbackKind.REWIND else []
    return " ".join(["./whetstone rollback", target.id, *rewind, *options])


def title_of(target: Target, agent: str) -> str:
    return ROLLBACKS[target.kind].title.format(agent=agent, id=target.id, short=target.id[:8])


def who(rollback: Rollback) -> str:
    """Who asked for it, for the eye."""
    return rollback.requested_by.partition(":")[2]


def name_of(rollback: Rollback) -> str:
    """What it was, as a noun."""
    return ROLLBACKS[rollback.kind].capitalized


def refinements_by_id(ids: Sequence[str]) -> list[Refinement]:
    """Newest first; ids of other things are passed over."""
    if not ids:
        return []
    query = select(Refinement).where(Refinement.id.in_(ids))
    return list(db.session.scalars(query.order_by(Refinement.requested_at.desc(), Refinement.id.desc())))


def _url_arguments(target: Target) -> dict[str, Any]:
    """What its addresses name: an entry, a rollback, or a refinement, which a rewind goes to before."""
    if target.kind == RollbackKind.ENTRY:
        return {"entry_id": int(target.id)}
    return {"rollback_id" if target.kind == RollbackKind.ROLLBACK else "refinement_id": target.id}


def _rewind_to(offer: RollbackOffer) -> str | None:
    found = offer.plan.found
    if found.refinement is not None:
        return found.refinement.id
    entry = db.session.get(AuditLog, found.entry_id)
    if entry is not None and entry.refinement_id is not None:
        return entry.refinement_id
    return offer.later[-1].id if offer.later else None
