"""What a worker says of itself each minute: that it is there, since when, and which models' keys it has, by name."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

import structlog
from flask import Flask
from sqlalchemy.exc import SQLAlchemyError

from app.config import Settings
from app.errors import WhetstoneError
from app.extensions import now, writing
from app.keynames import may_hold_a_key
from app.modelnames import USUAL_KEYS
from app.models.presence import SEEN_EVERY, WorkerPresence
from app.version import app_version

log = structlog.get_logger(__name__)


def key_variables(environment: Mapping[str, str], settings: Settings) -> frozenset[str]:
    """Names of those with a value that agents or the operator may name for a key, and of the providers' usual ones."""
    named = {*USUAL_KEYS.values(), settings.safety_api_key_env, settings.second_reader_api_key_env}
    return frozenset(
        name
        for name, value in environment.items()
        if value.strip() and (name in named or may_hold_a_key(name, settings.api_key_envs))
    )


def describe_worker(settings: Settings, at: datetime) -> WorkerPresence:
    """This process, which begins now."""
    return WorkerPresence(
        id=secrets.token_hex(8),
        host=socket.gethostname()[:100],
        process=os.getpid(),
        version=app_version(),
        started_at=at,
        seen_at=at,
        threads=settings.concurrency,
        key_variables=key_variables(os.environ, settings),
    )


class PresenceTimer:
    """Notes the worker in a thread of its own until it is stopped; then its note is taken away."""

    def __init__(self, app: Flask, *, interval: float = SEEN_EVERY.total_seconds()) -> None:
        self._app, self._interval = app, interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run_timer, name="presence", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns at once: the note goes by the timer's own thread."""
        self._stop.set()

    def join(self) -> None:
        self._thread.join()

    def _run_timer(self) -> None:
        with self._app.app_context():
            worker = describe_worker(self._app.extensions["settings"], now())
        while not self._stop.is_set():
            self._write(worker, leaving=False)
            self._stop.wait(self._interval)
        self._write(worker, leaving=True)

    def _write(self, worker: WorkerPresence, *, leaving: bool) -> None:
        with self._app.app_context():
            try:
                with writing():
                    if leaving:
                        worker.withdraw()
                    else:
                        replace(worker, seen_at=now()).note()
            except (SQLAlchemyError, WhetstoneError) as error:
                log.warning("presence not noted", error=type(error).__name__)
