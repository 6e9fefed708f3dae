"""Working off many refinements at once: started anew, or marked as seen. Each agent in a transaction of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sqlalchemy import ColumnElement, exists, select
from sqlalchemy.orm import aliased

from app.errors import Refused
from app.extensions import reading
from app.models import OPEN_STATES, Actor, Agent, AttentionItem, Mode, Refinement, Status, Trigger
from app.models.account_use import MonthlyCostReached
from app.models.agent import AgentForgotten
from app.models.refinement import NEWEST_REFINEMENTS
from app.refinement.attention import MOST_AT_ONCE, MarkedSeen, mark_many_seen
from app.refinement.start import AgentInactive, AlreadyRunning, LedgerEmpty, RestingAfterNo, start_refinement

COMPLETED = "completed"
REFINED_SINCE = "refined again since"
ALREADY_OPEN = "already open"

_WORDS: dict[type[Refused], str] = {
    AlreadyRunning: ALREADY_OPEN,
    LedgerEmpty: "no core memories",
    RestingAfterNo: "declined in the last 24 hours",
    AgentInactive: "agent not active",
    AgentForgotten: "agent forgotten",
    MonthlyCostReached: "the account's model cost of this month is used up",
}
"""Why an agent was not started, in the fewest words."""


@dataclass
class Retried:
    """`queued` are the new refinements; `refused` counts, in words, why the others were not started."""

    queued: list[str] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)

    @property
    def line(self) -> str:
        """`48 queued; 2 not: already open`."""
        words = f"{len(self.queued):,} queued"
        if not self.refused:
            return f"{words}."
        reasons = self.refused.most_common()
        told = [reason if len(reasons) == 1 else f"{count:,} {reason}" for reason, count in reasons]
        return f"{words}; {self.refused.total():,} not: {', '.join(told)}."


def find_chosen(account_id: int, *conditions: ColumnElement[bool]) -> list[str]:
    """Ids of the newest `MOST_AT_ONCE` of the account's that are so."""
    wanted = select(Refinement.id).where(Refinement.account_id == account_id, *conditions)
    with reading() as session:
        return list(session.scalars(wanted.order_by(*NEWEST_REFINEMENTS.order).limit(MOST_AT_ONCE)))


def retry_refinements(chosen: Sequence[str], *, by: Actor, started: Callable[[str], object]) -> Retried:
    """Start the agents of these refinements anew, in the same mode: each by the rules of a start by hand.

    One that is not its agent's newest is left out, and so is one that completed: doing it twice starts nothing twice.
    `started` is told of each once it is committed.
    """
    done = Retried()
    for agent_id, mode, refusal in _read_candidates(chosen):
        if refusal:
            done.refused[refusal] += 1
            continue
        try:
            refinement = start_refinement(agent_id, trigger=Trigger.ADMIN, by=by, mode=mode)
        except Refused as error:
            done.refused[_WORDS.get(type(error), error.sentence)] += 1
            continue
        done.queued.append(refinement.id)
        started(refinement.id)
    return done


def mark_refinements_seen(chosen: Sequence[str], *, by: Actor) -> MarkedSeen:
    """Mark all that is open about these refinements as seen."""
    return mark_many_seen(AttentionItem.refinement_id.in_(chosen), by=by)


def _read_candidates(chosen: Sequence[str]) -> list[tuple[int, Mode, str]]:
    """Agent, mode, and why it is not to be started; empty where the rules of a start decide."""
    newest = select(Refinement.id).where(Refinement.agent_id == Agent.id)
    newest_of = newest.order_by(*NEWEST_REFINEMENTS.order).limit(1).correlate(Agent).scalar_subquery()
    other = aliased(Refinement)
    is_open = exists().where(other.agent_id == Agent.id, other.status.in_(OPEN_STATES)).correlate(Agent)
    query = (
        select(Refinement, newest_of, is_open)
        .join(Agent, Agent.id == Refinement.agent_id)
        .where(Refinement.id.in_(chosen))
    )
    with reading() as session:
        rows = session.execute(query.order_by(*NEWEST_REFINEMENTS.order)).tuples().all()
        return [(each.agent_id, each.mode, _refusal_of(each, newest_id, busy)) for each, newest_id, busy in rows]


def _refusal_of(refinement: Refinement, newest_id: str, is_open: bool) -> str:
    if is_open:
        return ALREADY_OPEN
    if refinement.id != newest_id:
        return REFINED_SINCE
    return COMPLETED if refinement.status == Status.COMPLETED else ""
