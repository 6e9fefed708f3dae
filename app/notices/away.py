"""Parts that are away: the web process tells of them, because a worker that is not there can't.

It asks a worker for an echo every few seconds, and reads when beat last had a worker do its minute's work, and when a
worker last signed a checkpoint. Whichever web process notices first claims the mark, so that all of them together tell
once an hour.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

from sqlalchemy import select

from app.extensions import db, end_reading, now, reading, writing
from app.models import InstallationMark, Notice, NoticeChannel, NoticeKind
from app.models.notice import FOLDED, Sighting
from app.models.presence import AWAY_AFTER, beat_heard_at
from app.models.statement_errors import LogBroken
from app.statements.checkpointing import overdue_words

WORKER_SECONDS = 40.0
"""So long nobody answers before that is told: `up` starts a worker anew within a second."""

TOLD = "told of what is away"
"""A mark."""

NO_WORKER, NO_BEAT = "No worker answers", "The scheduler has stopped"
NO_CHECKPOINT, LOG_BROKEN = "No checkpoint was signed for two hours", "The log of statements is broken"


class AwayWatch:
    """What one web process knows of the others. `answers` asks for a worker's echo."""

    def __init__(self, answers: Callable[[], bool], *, patience: float = WORKER_SECONDS) -> None:
        self._answers, self._patience = answers, patience
        self._answered = time.monotonic()
        self._began: datetime | None = None
        """By the clock of the application, from the first look."""

    def look(self) -> str:
        """What is away, in words, and told; empty while all is well. Not in a transaction."""
        self._began = self._began or now()
        away = self._find(self._began)
        if away:
            tell_away(away)
        return away

    def _find(self, began: datetime) -> str:
        if self._answers():
            self._answered = time.monotonic()
            return NO_BEAT if _is_beat_silent(began) else _find_alarm_of_the_log()
        return NO_WORKER if time.monotonic() - self._answered >= self._patience else ""


def _is_beat_silent(since: datetime) -> bool:
    """Whether nothing was heard of it for so long, or `since` then where it was never heard of."""
    with reading():
        seen = beat_heard_at()
    return now() - max(seen or since, since) > AWAY_AFTER


def _find_alarm_of_the_log() -> str:
    """As this process's own copy of the log says it."""
    try:
        return NO_CHECKPOINT if overdue_words() else ""
    except LogBroken:
        return LOG_BROKEN
    finally:
        end_reading()


def tell_away(what: str) -> bool:
    """Put it into every channel that wants to know, unless that was done within the hour. Returns whether it was."""
    with writing():
        if not InstallationMark.write(TOLD, what, unless_since=now() - FOLDED):
            return False
        live = select(NoticeChannel).where(NoticeChannel.is_live()).order_by(NoticeChannel.id)
        for channel in db.session.scalars(live.execution_options(populate_existing=True)).all():
            if NoticeKind.AWAY in channel.kinds:
                seen = Sighting(now())
                seen.add(what)
                Notice.put(channel, NoticeKind.AWAY, seen, due_at=now())
    return True
