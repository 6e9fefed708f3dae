"""Putting ids on the queue, from any process, after the commit that made the row: fast, and without ever raising."""

from __future__ import annotations

import structlog
from celery import Task
from flask import current_app
from kombu import Connection
from kombu.exceptions import KombuError
from kombu.pools import producers
from redis import RedisError

from app.errors import Unavailable
from app.events.broker import TIMEOUT, broker_client, broker_namespace, broker_url
from app.processes.broker import trouble_of

RETRIES = {"max_retries": 2, "interval_start": 0, "interval_step": 0.1, "interval_max": 0.2}
"""Enough to outlive a connection that a restart of the broker broke."""

log = structlog.get_logger(__name__)


def send_task(task: Task, *ids: int | str) -> bool:
    """Ask a worker to run `task`; returns whether the broker took it. What was not taken, the minute sweeper finds."""
    try:
        connection = _broker_connection()
        if connection is None:
            log.warning("no broker: left to the sweeper", task=task.name, ids=ids)
            return False
        with producers[connection].acquire(block=True, timeout=TIMEOUT) as producer:
            task.apply_async(ids, producer=producer, retry=True, retry_policy=RETRIES)
    except (KombuError, RedisError, OSError, Unavailable) as error:
        log.warning("broker away: left to the sweeper", task=task.name, ids=ids, broker=trouble_of(error))
        return False
    return True


def queue_length(queue: str) -> int | None:
    """How many messages wait in a queue, or None when the broker does not answer."""
    try:
        broker = broker_client()
        return None if broker is None else int(broker.llen(broker_namespace() + queue))
    except (RedisError, OSError, Unavailable):
        return None


def _broker_connection() -> Connection | None:
    """The pools of kombu know equal connections, so that one is kept for each address."""
    url = broker_url()
    if not url:
        return None
    options = {
        "global_keyprefix": broker_namespace(),
        "socket_connect_timeout": TIMEOUT,
        "socket_timeout": TIMEOUT * 2,
        "socket_keepalive": True,
    }
    held: dict[str, Connection] = current_app.extensions.setdefault("queue_connections", {})
    if url not in held:
        held[url] = Connection(url, transport_options=options)
    return held[url]
