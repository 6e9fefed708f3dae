"""Which events of an account are worth a message, and of which kind. They are durable, and in the order of commits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import select

from app.extensions import db
from app.models import Agent, Event, Mode, NoticeKind, Refinement, Status
from app.models.notice import Sighting
from app.models.rollback import ROLLED_BACK
from app.values.refinement_states import BROKEN_STATES

BATCH = 1000
"""Events that one look takes in at most; the next look goes on behind them."""

_WATCHED = (*("refinement.ended", "exception.requested", "agent.token", "agent.stopped", "proof.failed"), ROLLED_BACK)

DECLINED_TIMES, OVER_TIMES = 3, 2

Sightings = dict[NoticeKind, Sighting]


def load_events(account_id: int, after: int, until: int) -> Sequence[Event]:
    """Those worth a look, the oldest first."""
    wanted = (Event.account_id == account_id, Event.id > after, Event.id <= until, Event.kind.in_(_WATCHED))
    return db.session.scalars(select(Event).where(*wanted).order_by(Event.id).limit(BATCH)).all()


def sight(events: Iterable[Event]) -> Sightings:
    """By kind, what happened."""
    found: Sightings = {}
    events = list(events)
    refinements = _load(Refinement, {event.refinement_id for event in events})
    names = {agent.id: agent.name for agent in _load(Agent, {event.agent_id for event in events}).values()}
    for event in events:
        name = names.get(event.agent_id or 0, "")
        for kind, reason in _judge(event, refinements.get(event.refinement_id)):
            found.setdefault(kind, Sighting(event.at)).add(reason, name)
    return found


def _judge(event: Event, refinement: Refinement | None) -> list[tuple[NoticeKind, str]]:
    """Kinds, each with the reason that messages count by."""
    match event.kind:
        case "refinement.ended":
            return [] if refinement is None else _judge_end(refinement)
        case "exception.requested":
            return [(NoticeKind.REQUEST, "an exception")]
        case "agent.token":
            return [(NoticeKind.REQUEST, "a token")] if event.data.get("status") == "pending" else []
        case "agent.stopped":
            return [(NoticeKind.STATEMENT, "")]
        case "proof.failed":
            return [(NoticeKind.VERIFY, "")]
        case _:
            return [(NoticeKind.ROLLED_BACK, "")]


def _judge_end(refinement: Refinement) -> list[tuple[NoticeKind, str]]:
    if refinement.status in BROKEN_STATES:
        return [(NoticeKind.FAILED, refinement.failure or refinement.reason or str(refinement.status))]
    if refinement.status == Status.ROLLED_BACK:
        return [(NoticeKind.LATCH, "")]
    if refinement.status == Status.DECLINED:
        streak = _streak(refinement, DECLINED_TIMES, lambda each: each.status == Status.DECLINED)
        return [(NoticeKind.DECLINED, "")] if streak else []
    agent = db.session.get_one(Agent, refinement.agent_id)
    streak = _streak(refinement, OVER_TIMES, lambda each: (each.mass_after or 0) > agent.core_token_budget)
    return [(NoticeKind.OVER_BUDGET, "")] if streak else []


def _streak(refinement: Refinement, times: int, holds: Any) -> bool:
    """Whether it holds of this refinement and those right before it, `times` of them, and not of the one before:
    the third refusal is told, not the fourth.
    """
    before = (Refinement.agent_id == refinement.agent_id, Refinement.requested_at <= refinement.requested_at)
    looks = (Refinement.mode == Mode.FULL, Refinement.ended_at.is_not(None), Refinement.status.not_in(BROKEN_STATES))
    query = select(Refinement).where(*before, *looks).order_by(Refinement.requested_at.desc(), Refinement.id)
    found = [bool(holds(each)) for each in db.session.scalars(query.limit(times + 1))]
    return found[:times] == [True] * times and found[times:] != [True]


def _load(model: Any, ids: Iterable[Any]) -> dict[Any, Any]:
    wanted = [each for each in ids if each is not None]
    query = select(model).where(model.id.in_(wanted)).execution_options(populate_existing=True)
    return {row.id: row for row in db.session.scalars(query)}
