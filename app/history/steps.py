"""Steps: what a refinement did, in order: its events, and what the log says once those are gone.

Events are announcements and are removed after a time. The log is never: what is told again from it lacks only what no
entry records, the turns of the model and the calls that were refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import select

from app.extensions import db
from app.models import Action, AuditLog, Event, Refinement

MOST = 5000
"""More events than the limits of a refinement allow, but for a model that goes on calling without end."""

Data = dict[str, Any]


def steps_of(refinement: Refinement) -> list[Event]:
    """Oldest first. Those told again from the log have no id, and are in no session."""
    kept = select(Event).where(Event.refinement_id == refinement.id).order_by(Event.id).limit(MOST)
    events = list(db.session.scalars(kept))
    return events if events and events[0].kind == "refinement.queued" else _told_again(refinement)


def _told_again(refinement: Refinement) -> list[Event]:
    entries = db.session.scalars(
        select(AuditLog).where(AuditLog.refinement_id == refinement.id).order_by(AuditLog.id).limit(MOST)
    )
    told: list[Event] = []
    for entry in entries:
        step = _STEPS.get(Action(entry.action))
        if step is None:
            continue
        event = _event(entry, *step(entry))
        if entry.action == Action.DEDUP and told and told[-1].kind == event.kind:
            event.data = _sums(told.pop().data, event.data)
        told.append(event)
    return told


def _event(entry: AuditLog, step: str, data: Data) -> Event:
    return Event(
        account_id=entry.account_id,
        agent_id=entry.agent_id,
        refinement_id=entry.refinement_id,
        kind=f"refinement.{step}",
        data=data,
        at=entry.at,
    )


def _queued(entry: AuditLog) -> tuple[str, Data]:
    return "queued", dict(entry.data)


def _deduplicated(entry: AuditLog) -> tuple[str, Data]:
    return "deduplicated", {"removed": len(entry.data["removed"]), "tokens": entry.data["tokens"]}


def _sums(one: Data, other: Data) -> Data:
    """An entry a group of duplicates, but one step for all of them."""
    return {name: one[name] + other[name] for name in one}


def _answered(entry: AuditLog) -> tuple[str, Data]:
    return "answered", {"granted": entry.data["answer"] == "YES", "asked": entry.data["asked"]}


def _noted(entry: AuditLog) -> tuple[str, Data]:
    return "noted", {"entry": entry.id}


def _running(entry: AuditLog) -> tuple[str, Data]:
    return "running", dict(entry.data)


def _operation(entry: AuditLog) -> tuple[str, Data]:
    return "operation", {"entry": entry.id, "action": str(entry.action), **entry.data}


def _stop_requested(entry: AuditLog) -> tuple[str, Data]:
    return "stop_requested", {}


def _ended(entry: AuditLog) -> tuple[str, Data]:
    return "ended", {"status": entry.data["status"]}


_STEPS: dict[Action, Callable[[AuditLog], tuple[str, Data]]] = {
    Action.REFINEMENT_START: _queued,
    Action.DEDUP: _deduplicated,
    Action.REFINEMENT_CONSENT: _answered,
    Action.NOTE_TO_ADMINS: _noted,
    Action.REFINEMENT_SNAPSHOT: _running,
    Action.REFINEMENT_CONSOLIDATE: _operation,
    Action.REFINEMENT_UPDATE: _operation,
    Action.REFINEMENT_DELETE: _operation,
    Action.REFINEMENT_PROTECT: _operation,
    Action.REFINEMENT_STOP_REQUESTED: _stop_requested,
    Action.REFINEMENT_END: _ended,
}
