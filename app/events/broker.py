"""The broker as the application sees it: its address of the moment, a namespace for each installation, and the news.

What the web processes are told through it are ids only, and never the only copy.

The namespace comes from the oldest master key, which all processes of one installation share wherever they run: two
installations on one Redis server neither see nor take each other's messages.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import structlog
from flask import Flask, current_app
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from app.errors import Unavailable
from app.extensions import db
from app.models.agent_settings import operator_settings
from app.models.master_key import MasterKeyRow

if TYPE_CHECKING:
    from redis import Redis

TIMEOUT = 2.0
"""Seconds that a broker may take to answer a plain command."""

WAKE_SECONDS = 0.02
"""Less than the hub waits for the other events of one action."""

CHANNEL = "events"
"""Stands behind the installation's namespace. Messages: `account:event`, or `bye:user`."""

log = structlog.get_logger(__name__)


def broker_url() -> str:
    """The broker to use now, or nothing: the embedded one's address changes with every `up`."""
    return operator_settings().broker_url


def broker_namespace() -> str:
    """What every key and channel of this installation begins with. Raises Unavailable before the first preparation."""
    held = current_app.extensions.get("namespace")
    if held is None:
        with db.engine.connect() as connection:
            first = connection.scalar(select(MasterKeyRow.fingerprint).order_by(MasterKeyRow.id).limit(1))
        if first is None:
            raise Unavailable("There is no master key yet: run `./whetstone up` or `./whetstone db upgrade` once.")
        held = current_app.extensions["namespace"] = f"whetstone:{first}:"
    return str(held)


def broker_client() -> Redis | None:
    """A client of the broker, shared by the process's threads; None where no broker is set up."""
    url = broker_url()
    held: dict[str, Redis] = current_app.extensions.setdefault("broker_clients", {})
    if not url:
        return None
    if url not in held:
        from redis import Redis

        for other in held.values():
            other.close()
        held.clear()
        held[url] = Redis.from_url(url, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT)
    return held[url]


class StreamWaker:
    """`wake_streams` for a process in which many requests write: a message says that there is news, not what.

    So a thread of its own sends at most one an account every `WAKE_SECONDS`, however many events there were, and no
    request waits for the broker. What is still to be sent when the process ends, the pages find by themselves.
    """

    def __init__(self, app: Flask) -> None:
        self._app = app
        self._newest: dict[int, int] = {}
        self._lock = threading.Lock()
        self._is_asked = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="wake", daemon=True).start()
        self._app.extensions["wake_streams"] = self.wake_soon

    def wake_soon(self, account_id: int, event_id: int) -> None:
        with self._lock:
            self._newest[account_id] = event_id
        if not self._is_asked.is_set():
            self._is_asked.set()

    def _run(self) -> None:
        while self._is_asked.wait():
            self._is_asked.clear()
            with self._lock:
                newest, self._newest = self._newest, {}
            with self._app.app_context():
                for account_id, event_id in newest.items():
                    wake_streams(account_id, event_id)
            time.sleep(WAKE_SECONDS)


def wake_streams(account_id: int, event_id: int) -> None:
    """Say that an account has an event. Without a broker the pages hear it later: they look by themselves too."""
    _publish_message(f"{account_id}:{event_id}")


def end_streams(user_id: int) -> None:
    """Say that a user signed out: all web processes close the user's open pages' streams."""
    _publish_message(f"bye:{user_id}")


def _publish_message(message: str) -> None:
    from redis import RedisError

    try:
        broker = broker_client()
        if broker is not None:
            broker.publish(broker_namespace() + CHANNEL, message)
    except (RedisError, SQLAlchemyError, OSError, ValueError, Unavailable) as error:
        log.warning("streams not woken", message=message, error=type(error).__name__)
