"""Progress: what an open refinement waits for now: which turn and attempt, since when, and until when at most.

It follows from the steps that are told anyway and from the heartbeat, so that nothing is written while a model thinks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from app.extensions import now
from app.history.steps import Step
from app.models import Agent, Refinement, Status
from app.models.account_use import find_hold
from app.models.base import iso
from app.values.refinement_states import WaitsFor
from app.vocabulary.progress import WAITS

_NO_MODEL = (WaitsFor.WORKER, WaitsFor.PLACE, WaitsFor.MONTH, WaitsFor.DUPLICATES)

_BESIDE = ("stop_requested", "noted")
"""Steps after which the worker waits for what it waited for before."""


@dataclass(frozen=True)
class Progress:
    """`since` is when the attempt was sent: later than now while the pause before it lasts. It is given up at
    `attempt_ends`, the whole refinement at `deadline`; both are None where no model is asked. `attempt` is the first,
    1, of at most `attempts`.
    """

    waits_for: WaitsFor
    since: datetime
    turn: int | None = None
    attempt: int = 1
    attempts: int = 1
    attempt_ends: datetime | None = None
    deadline: datetime | None = None
    heartbeat_at: datetime | None = None
    is_stopping: bool = False

    @classmethod
    def of(cls, refinement: Refinement, agent: Agent, steps: Sequence[Step]) -> Progress | None:
        """None once it has ended. `steps` are all of its steps, oldest first."""
        if not refinement.is_open:
            return None
        mine = [step for step in steps if step.name not in _BESIDE]
        waits_for, last = _find_wait(refinement, agent, mine), mine[-1] if mine else None
        since = last.at if last else refinement.requested_at
        attempt, attempts = 1, 1
        if last is not None and last.name == "retried":
            since += timedelta(seconds=last.data["pause"])
            attempt, attempts = last.data["attempt"] + 1, last.data["attempts"]
        attempt_ends, deadline = _find_limits(mine, since)
        return cls(
            waits_for,
            since,
            turn=refinement.turns + 1 if waits_for is WaitsFor.TURN else None,
            attempt=attempt,
            attempts=attempts,
            attempt_ends=None if waits_for in _NO_MODEL else attempt_ends,
            deadline=deadline,
            heartbeat_at=refinement.heartbeat_at,
            is_stopping=refinement.stop_requested_at is not None and refinement.ending is None,
        )

    @property
    def title(self) -> str:
        return WAITS[self.waits_for].words.format(turn=self.turn)

    @property
    def stop_words(self) -> str:
        """What a Stop that was pressed waits for; empty where none was."""
        what = WAITS[self.waits_for].stop.format(turn=self.turn)
        if not self.is_stopping or not what:
            return ""
        until = f", until {self.attempt_ends:%H:%M:%S} UTC at most" if self.attempt_ends else ""
        return f"Stop waits for {what}{until}; then it ends without another change."

    @property
    def pause_left(self) -> float:
        """Seconds until the next attempt is sent; 0 where it was."""
        return max((self.since - now()).total_seconds(), 0.0)

    @property
    def waited(self) -> float:
        """Seconds since the attempt was sent."""
        return max((now() - self.since).total_seconds(), 0.0)

    @property
    def silent(self) -> float | None:
        """Seconds since the worker was last heard of; None before there is one."""
        return None if self.heartbeat_at is None else max((now() - self.heartbeat_at).total_seconds(), 0.0)

    def as_json(self) -> dict[str, Any]:
        return {
            "waits_for": str(self.waits_for),
            "title": self.title,
            "turn": self.turn,
            "attempt": self.attempt,
            "since": iso(self.since),
            "attempt_ends_at": iso(self.attempt_ends),
            "deadline": iso(self.deadline),
            "heartbeat_at": iso(self.heartbeat_at),
            "stopping": self.is_stopping,
        }


def _find_wait(refinement: Refinement, agent: Agent, steps: Sequence[Step]) -> WaitsFor:
    if refinement.status == Status.QUEUED:
        return find_hold(refinement) or WaitsFor.WORKER
    if refinement.status == Status.ASKING:
        is_asked = any(step.name == "asked" for step in steps)
        return WaitsFor.CONSENT if is_asked else WaitsFor.DUPLICATES
    if refinement.ending is not None:
        return WaitsFor.READER if refinement.awaits_reading else WaitsFor.ANSWERS
    writes = agent.recall_probes and refinement.probes_asked is None and not refinement.turns
    return WaitsFor.QUESTIONS if writes else WaitsFor.TURN


def _find_limits(steps: Sequence[Step], since: datetime) -> tuple[datetime | None, datetime | None]:
    """When the attempt is given up, and when the whole refinement is: as its worker told when it began."""
    begun = next((step for step in steps if step.name == "begun" and "deadline" in step.data), None)
    if begun is None:
        return None, None
    deadline = begun.at + timedelta(seconds=begun.data["deadline"])
    return min(since + timedelta(seconds=begun.data["step"]), deadline), deadline
