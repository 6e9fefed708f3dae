"""The thread of a worker, or of a web process, that looks every few seconds and has messages delivered beside it.

No beat and no broker can hold it up, and a receiver that takes its time holds up only one of a few threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import structlog
from flask import Flask
from sqlalchemy.exc import SQLAlchemyError

from app.errors import WhetstoneError
from app.extensions import db, end_reading
from app.notices import outbox
from app.notices.away import AwayWatch

TICK_SECONDS = 4.0
WATCH_SECONDS = 10.0
"""Of the web process, which asks a worker for an echo each time."""

SENDERS = 4

log = structlog.get_logger(__name__)


class NoticeTimer:
    """`look` is done each time, before what is due is sent; `away` says whose messages those are."""

    def __init__(self, app: Flask, look: Callable[[], object], *, away: bool, interval: float) -> None:
        self._app, self._look, self._away, self._interval = app, look, away, interval
        self._stop = threading.Event()
        self._senders = ThreadPoolExecutor(SENDERS, thread_name_prefix="notices")
        self._sending: set[int] = set()
        self._thread = threading.Thread(target=self._run, name="notices", daemon=True)

    @classmethod
    def for_worker(cls, app: Flask) -> NoticeTimer:
        return cls(app, _look_around, away=False, interval=TICK_SECONDS)

    @classmethod
    def for_web(cls, app: Flask, worker_answers: Callable[[], bool]) -> NoticeTimer:
        return cls(app, AwayWatch(worker_answers).look, away=True, interval=WATCH_SECONDS)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """At the end of the process or of a test; what is being sent is waited for."""
        self._stop.set()
        self._thread.join()
        self._senders.shutdown()

    def _run(self) -> None:
        while not self._stop.is_set():
            with self._app.app_context():
                self._guarded(self._tick)
            self._stop.wait(self._interval)

    def _tick(self) -> None:
        self._look()
        for notice_id in outbox.find_due(away=self._away):
            if notice_id not in self._sending:
                self._sending.add(notice_id)
                self._senders.submit(self._deliver, notice_id)

    def _deliver(self, notice_id: int) -> None:
        try:
            with self._app.app_context():
                self._guarded(lambda: outbox.deliver(notice_id))
        finally:
            self._sending.discard(notice_id)

    def _guarded(self, work: Callable[[], object]) -> None:
        """What goes wrong once is tried again: a claim that was left ends by itself."""
        try:
            work()
        except (SQLAlchemyError, WhetstoneError, OSError) as error:
            log.error("notices were held up", error=type(error).__name__)  # noqa: TRY400 - no values
        finally:
            end_reading()
            db.session.remove()


def _look_around() -> None:
    outbox.look()
    outbox.write_digests()
