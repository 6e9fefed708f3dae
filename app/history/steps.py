"""Steps: what a refinement did, in order: read from its events, or from the log once those are gone.

Events are announcements and are removed after a time. The log is never: what is read from it lacks only what no entry
records: the turns of the model, the calls that were refused, and when the last change was made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select

from app.extensions import db
from app.models import Action, AuditLog, Event, Refinement
from app.models.audit import OPERATIONS

MOST = 5000
"""More events than the limits of a refinement allow, but for a model that goes on calling without end."""


@dataclass(frozen=True)
class Step:
    """One thing that happened, with its open data: the same from an event and from the log."""

    name: str
    at: datetime
    data: Mapping[str, Any]

    @classmethod
    def of_event(cls, event: Event) -> Step:
        return cls(event.kind.removeprefix("refinement."), event.at, event.data)


def steps_of(refinement: Refinement) -> list[Step]:
    """Oldest first."""
    kept = select(Event).where(Event.refinement_id == refinement.id).order_by(Event.id).limit(MOST)
    steps = [Step.of_event(event) for event in db.session.scalars(kept)]
    return steps if steps and steps[0].name == "queued" else _read_log(refinement)


def _read_log(refinement: Refinement) -> list[Step]:
    """Of exact duplicates a group has an entry, but all of them are one step."""
    mine = select(AuditLog).where(AuditLog.refinement_id == refinement.id).order_by(AuditLog.id).limit(MOST)
    steps: list[Step] = []
    for entry in db.session.scalars(mine):
        if entry.action not in _ENTRIES:
            continue
        name, read = _ENTRIES[entry.action]
        step = Step(name, entry.at, read(entry))
        if step.name == "deduplicated" and steps and steps[-1].name == step.name:
            before = steps.pop().data
            step = Step(step.name, step.at, {name: before[name] + step.data[name] for name in before})
        steps.append(step)
    return steps


_ENTRIES: Mapping[Action, tuple[str, Callable[[AuditLog], dict[str, Any]]]] = {
    Action.REFINEMENT_START: ("queued", lambda entry: dict(entry.data)),
    Action.DEDUP: (
        "deduplicated",
        lambda entry: {"removed": len(entry.data["removed"]), "tokens": entry.data["tokens"]},
    ),
    Action.REFINEMENT_CONSENT: (
        "answered",
        lambda entry: {"granted": entry.data["answer"] == "YES", "asked": entry.data["asked"]},
    ),
    Action.NOTE_TO_ADMINS: ("noted", lambda entry: {"entry": entry.id}),
    Action.REFINEMENT_SNAPSHOT: ("running", lambda entry: dict(entry.data)),
    **dict.fromkeys(
        OPERATIONS, ("operation", lambda entry: {"entry": entry.id, "action": str(entry.action), **entry.data})
    ),
    Action.REFINEMENT_STOP_REQUESTED: ("stop_requested", lambda entry: {}),
    Action.SECOND_READING: ("read", lambda entry: {name: entry.data[name] for name in ("groups", "kept", "outcome")}),
    Action.REFINEMENT_END: ("ended", lambda entry: {"status": entry.data["status"]}),
}
