"""Whether the parts behind the pages answer: asked at most every few seconds, whoever looks."""

from __future__ import annotations

import time
from dataclasses import dataclass

from flask import current_app
from redis import RedisError

from app.errors import Unavailable

KEPT_SECONDS = 15.0
ECHO_SECONDS = 1.0


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
    kept = current_app.extensions.get("seen_troubles")
    if kept is None or time.monotonic() - kept[0] > KEPT_SECONDS:
        kept = current_app.extensions["seen_troubles"] = (time.monotonic(), _look())
    found: list[Trouble] = kept[1]
    return found


def _look() -> list[Trouble]:
    from app.events.broker import client

    try:
        broker = client()
        if broker is None or not broker.ping():
            return [NO_BROKER]
    except (RedisError, OSError, Unavailable):
        return [NO_BROKER]
    from tasks.echo import worker_answers

    return [] if worker_answers(ECHO_SECONDS) else [NO_WORKER]
