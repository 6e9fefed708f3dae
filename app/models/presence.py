"""Presence: which workers and which beat were seen lately, by what they leave in the database each minute.

A note for people, as the broker's echo is one for machines: no rule of a refinement reads it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import delete, select

from app.extensions import db, now
from app.models.installation import InstallationMark

SEEN_EVERY = timedelta(minutes=1)
AWAY_AFTER = timedelta(minutes=3)
"""Without a note for so long, a worker or beat counts as away."""

KEPT = timedelta(hours=1)
"""How long a worker that is away is still named; also one that was killed leaves its note."""

WORKER, BEAT = "worker ", "beat"


@dataclass(frozen=True)
class WorkerPresence:
    """What a worker process says of itself. `key_variables` are names of variables that it has a value for, no values.

    `id` is made anew with each start; `threads` is how many refinements it keeps in flight.
    """

    id: str
    host: str
    process: int
    version: str
    started_at: datetime
    seen_at: datetime
    threads: int
    key_variables: frozenset[str]

    def note(self) -> None:
        """Write it down, and forget the notes of those that have been away for long. In `writing()`."""
        InstallationMark.write(WORKER + self.id, _WORKER.dump_json(self).decode())
        old = InstallationMark.at < now() - KEPT
        db.session.execute(delete(InstallationMark).where(InstallationMark.name.startswith(WORKER), old))

    def withdraw(self) -> None:
        """It ends by itself: nobody has to look for it. In `writing()`."""
        InstallationMark.drop(WORKER + self.id)

    def is_away(self, at: datetime) -> bool:
        return self.seen_at < at - AWAY_AFTER

    @classmethod
    def all(cls) -> list[WorkerPresence]:
        """Those of the last hour, the longest running first. A note that says something else is passed over."""
        query = select(InstallationMark.value).where(InstallationMark.name.startswith(WORKER)).limit(1000)
        found = [worker for value in db.session.scalars(query) if (worker := _read_note(value)) is not None]
        return sorted(found, key=lambda worker: (worker.started_at, worker.id))


_WORKER = TypeAdapter(WorkerPresence)


def _read_note(value: str) -> WorkerPresence | None:
    try:
        return _WORKER.validate_json(value)
    except ValidationError:
        return None


def present_workers(at: datetime) -> list[WorkerPresence]:
    return [worker for worker in WorkerPresence.all() if not worker.is_away(at)]


def has_variable(name: str, workers: Collection[WorkerPresence]) -> bool | None:
    """Whether all of these workers have a value for the variable; None where there is none to ask."""
    return all(name in worker.key_variables for worker in workers) if workers else None


def note_beat() -> None:
    """A worker heard beat. In `writing()`."""
    InstallationMark.write(BEAT, now().isoformat())


def beat_heard_at() -> datetime | None:
    """When a worker last heard beat, wherever the two run."""
    said = InstallationMark.read(BEAT)
    return None if said is None else datetime.fromisoformat(said)
