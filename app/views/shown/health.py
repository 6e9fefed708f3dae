"""Whether the parts behind the pages answer: asked at most every few seconds, whoever looks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from flask import current_app

from app.health import CachedAnswer, look_around, stopped_parts
from app.processes.parts import StoppedPart

KEPT_SECONDS = 15.0


@dataclass(frozen=True)
class HealthProblem:
    """A part that is away, and what that means for the one who looks."""

    title: str
    text: str


NO_BROKER = HealthProblem(
    "The broker does not answer.",
    "Nothing is lost: what you start is kept in the database and begins when it is back. Run the doctor on the server.",
)
NO_WORKER = HealthProblem(
    "No worker answers.",
    "What you start waits on the queue until one does. Look at the worker's log, or run the doctor on the server.",
)


def health_problems() -> list[HealthProblem]:
    """Parts that stopped, by name; what else is away, as of at most `KEPT_SECONDS` ago."""
    kept = current_app.extensions.setdefault("health_for_pages", CachedAnswer(look_around, KEPT_SECONDS))
    found = kept.get()
    stopped = stopped_parts()
    away = [NO_BROKER] if found["broker"] != "ok" else [] if found["worker"] == "ok" else [NO_WORKER]
    return [_of_stopped(part) for part in stopped] or away


def _of_stopped(part: StoppedPart) -> HealthProblem:
    what_now = part.what_now(datetime.now(UTC))
    return HealthProblem(f"{part.what}.", f"{what_now[:1].upper()}{what_now[1:]}. Its log: {part.log}")
