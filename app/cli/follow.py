"""Watching a refinement from the command line: carried by a worker, or in this process where no worker answers."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from flask import current_app
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.asking.calls import Dependencies
from app.cli.crash import record_crash
from app.cli.printing import say_on_stderr
from app.cli.refinement_facts import step_line
from app.extensions import db, end_reading, reading, writing
from app.history.reversing import end_unread
from app.history.steps import Step
from app.history.timeline import tell_step
from app.llm.client import ModelClients
from app.models import COMMAND_LINE, OPEN_STATES, Agent, Event, Refinement, Status
from app.models.account_use import find_hold, hold_words
from app.refinement.process import run_refinement
from app.refinement.sweep import close_stalled
from app.vocabulary.statuses import EARLIER_CHANGES_KEPT

LOOK_SECONDS = 0.3
STALL_SECONDS = 30.0
"""How often to look whether the worker is still alive."""

STOPPED_HERE = f"Stopped at the command line; {EARLIER_CHANGES_KEPT}."

Tell = Callable[[str], None]


class Follower:
    """Tells each event of one refinement once, in order. It reads on a connection of its own, shortly."""

    def __init__(self, refinement_id: str, tell: Tell) -> None:
        self._refinement_id = refinement_id
        self._tell = tell
        self._last = 0

    def look(self) -> None:
        """Tell what is new."""
        query = (
            select(Event, Refinement)
            .join(Refinement, Refinement.id == Event.refinement_id)
            .where(Event.refinement_id == self._refinement_id, Event.id > self._last)
            .order_by(Event.id)
        )
        with Session(db.engine) as session:
            for event, refinement in session.execute(query).tuples():
                self._last = event.id
                row = tell_step(Step.of_event(event), refinement)
                if row is not None:
                    self._tell(step_line(row, refinement.threshold))

    def is_open(self) -> bool:
        query = select(Refinement.status).where(Refinement.id == self._refinement_id)
        with db.engine.connect() as connection:
            return connection.scalar(query) in OPEN_STATES


def watch_refinement(refinement_id: str, tell: Tell) -> None:
    """Return when a worker has brought it to its end. Ctrl-C ends the watching only."""
    follower, looked = Follower(refinement_id, tell), time.monotonic()
    end_reading()
    while follower.is_open():
        follower.look()
        time.sleep(LOOK_SECONDS)
        if time.monotonic() - looked > STALL_SECONDS:
            close_stalled()
            looked = time.monotonic()
    follower.look()


def refine_here(refinement_id: str, clients: ModelClients, tell: Tell) -> None:
    """Do the work in this process, to its end. Ctrl-C and SIGTERM stop the refinement; earlier changes are kept."""
    follower = Follower(refinement_id, tell)
    with _told_at_once(follower), _termination_as_interrupt():
        try:
            run_refinement(refinement_id, Dependencies(clients))
        except KeyboardInterrupt:
            with writing():
                refinement = Refinement.lock(refinement_id)
                end_unread(refinement, Agent.lock(refinement.agent_id), Status.STOPPED, STOPPED_HERE, by=COMMAND_LINE)
        except Exception as error:  # noqa: BLE001 - the refinement has reached its end; its result is told all the same
            say_on_stderr(f"Something unexpected happened ({type(error).__name__}). {record_crash(error)}")
    hold = _read_hold(refinement_id)
    if hold:
        say_on_stderr(hold)
    elif follower.is_open():
        watch_refinement(refinement_id, tell)  # a worker came up meanwhile, and was faster


def _read_hold(refinement_id: str) -> str:
    """Why nobody may begin it now, if a limit of its account is why."""
    with reading() as session:
        refinement = session.get_one(Refinement, refinement_id)
        hold = find_hold(refinement) if refinement.status == Status.QUEUED else None
        return hold_words(refinement, hold) if hold else ""


@contextmanager
def _told_at_once(follower: Follower) -> Iterator[None]:
    """Hear of every event right after its commit, before the streams do."""
    extensions = current_app.extensions
    wake: Callable[[int, int], Any] = extensions["wake_streams"]

    def tell_and_wake(account_id: int, event_id: int) -> None:
        follower.look()
        wake(account_id, event_id)

    extensions["wake_streams"] = tell_and_wake
    try:
        follower.look()
        yield
    finally:
        extensions["wake_streams"] = wake


@contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
