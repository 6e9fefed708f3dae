"""Whether the parts behind the pages answer: asked at most every few seconds, whoever looks."""

from __future__ import annotations

from dataclasses import dataclass

from flask import current_app

from app.health import Kept, look_around

KEPT_SECONDS = 15.0


@dataclass(frozen=True)
class Trouble:
    """A part that is away, and what that means for the one who looks."""

    title: str
    text: str


NO_BROKER = Trouble(
    "The broker does not answer.",
    "Nothing is lost: what you start is kept in the database and begins when it is back. Run the doctor on the server.",
)
NO_WORKER = Trouble(
    "No worker answers.",
    "What you start waits on the queue until one does. Look at the worker's log, or run the doctor on the server.",
)


def troubles() -> list[Trouble]:
    """What is away just now, as of at most `KEPT_SECONDS` ago."""
    kept = current_app.extensions.setdefault("health_for_pages", Kept(look_around, KEPT_SECONDS))
    found = kept.get()
    if found["broker"] != "ok":
        return [NO_BROKER]
    return [] if found["worker"] == "ok" else [NO_WORKER]
