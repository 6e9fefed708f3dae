"""The heartbeat: a timer of its own in each worker process: a slow model call is not a dead worker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog
from flask import Flask, current_app
from sqlalchemy import ColumnElement, case, func, literal_column, update
from sqlalchemy.exc import SQLAlchemyError

from app.errors import WhetstoneError
from app.extensions import begin_immediate, db, is_sqlite
from app.models import OPEN_STATES, Refinement
from app.models.base import UtcDateTime, database_now
from app.refinement.guard import Claim

BEAT_SECONDS = 10.0
STALE_SECONDS = 45
"""A refinement without a heartbeat for so long has lost its worker. The sweeper looks every minute."""

log = structlog.get_logger(__name__)


def stale_before() -> ColumnElement[Any]:
    """The moment before which a heartbeat counts as stopped."""
    if is_sqlite(db.session()):
        return literal_column(f"strftime('%Y-%m-%d %H:%M:%f000', 'now', '-{STALE_SECONDS} seconds')", UtcDateTime)
    return func.clock_timestamp() - literal_column(f"interval '{STALE_SECONDS} seconds'")


class Heartbeat:
    """Beats for every refinement that this process holds; one thread, one statement a beat."""

    def __init__(self, app: Flask, *, interval: float = BEAT_SECONDS) -> None:
        self._app = app
        self._interval = interval
        self._held: dict[str, str] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def beating(self, claim: Claim) -> Iterator[None]:
        """Keep the refinement alive for as long as the block runs."""
        with self._lock:
            self._held[claim.refinement_id] = claim.worker
            if self._thread is None:
                self._thread = threading.Thread(target=self._run_timer, name="heartbeat", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._held.pop(claim.refinement_id, None)

    def held(self) -> dict[str, str]:
        """The refinements that this process carries now, and as which worker."""
        with self._lock:
            return dict(self._held)

    def stop(self) -> None:
        """End the timer, at the end of the process or of a test."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run_timer(self) -> None:
        while not self._stop.wait(self._interval):
            if held := self.held():
                with self._app.app_context():
                    try:
                        set_heartbeats(held)
                    except (SQLAlchemyError, WhetstoneError) as error:
                        log.warning("heartbeat missed", refinements=len(held), error=type(error).__name__)


def set_heartbeats(held: dict[str, str]) -> None:
    """Set the heartbeat of the refinements (id to worker) that are still held by those workers."""
    db.session.rollback()
    begin_immediate(db.session())
    db.session.execute(
        update(Refinement)
        .where(
            Refinement.id.in_(held),
            Refinement.status.in_(OPEN_STATES),
            Refinement.worker == case(held, value=Refinement.id),
        )
        .values(heartbeat_at=database_now())
        .execution_options(synchronize_session=False)
    )
    db.session.commit()


def heartbeat() -> Heartbeat:
    """This app's heartbeat, made on first use."""
    app = current_app._get_current_object()  # type: ignore[attr-defined]
    found: Heartbeat = app.extensions.setdefault("heartbeat", Heartbeat(app))
    return found
