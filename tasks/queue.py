"""Putting ids on the queue, from any process, after the commit that made the row: fast, and without ever raising.

Who waits for what a task did gets its reply over a key of its own: that it is done, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import structlog
from celery import Task
from flask import current_app
from kombu import Connection
from kombu.exceptions import KombuError
from kombu.pools import producers
from redis import Redis, RedisError

from app.errors import Unavailable
from app.events.broker import TIMEOUT, broker_client, broker_namespace, broker_url
from app.processes.broker import trouble_of
from tasks.celery import INTERACTIVE, REFINE

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


def send_lost(task: Task, ids: Sequence[str]) -> None:
    """Ask again for what got lost, unless so many messages wait that it may be among them."""
    waiting = queue_length(REFINE)
    if waiting is not None and len(ids) > waiting:
        for each in ids:
            send_task(task, each)


def wait_for_reply(name: str, timeout: float, *, question_kept: int | None = None) -> bool:
    """Whether a task replies within `timeout` seconds. Raises nothing: no broker, no reply.

    With `question_kept` what waits in the interactive queue is forgotten after so many seconds.
    """
    try:
        broker = Redis.from_url(broker_url(), socket_connect_timeout=TIMEOUT, socket_timeout=timeout + 1)
        with closing(broker):
            if question_kept is not None:
                broker.expire(broker_namespace() + INTERACTIVE, question_kept)
            return broker.blpop([broker_namespace() + name], timeout) is not None
    except (RedisError, OSError, ValueError, Unavailable):
        return False


def send_reply(name: str, *, kept: int) -> None:
    """Tell who waits; the broker keeps it for so many seconds. Raises RedisError."""
    broker = broker_client()
    if broker is None:
        return
    with broker.pipeline() as commands:
        commands.rpush(broker_namespace() + name, "1")
        commands.expire(broker_namespace() + name, kept)
        commands.execute()


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
