"""Whether a worker answers: a nonce goes the way of every task and comes back over a key of its own."""

from __future__ import annotations

import secrets
from contextlib import closing

from redis import Redis, RedisError

from app.errors import Unavailable
from app.events.broker import TIMEOUT, broker_client, broker_namespace, broker_url
from tasks.celery import INTERACTIVE, task
from tasks.queue import send_task

KEPT_SECONDS = 30
"""How long an answer that nobody fetched, or a question that nobody answered, stays with the broker."""


def worker_answers(timeout: float = TIMEOUT) -> bool:
    """Whether a worker answers within `timeout` seconds. Raises nothing: without a broker the answer is no."""
    nonce = secrets.token_hex(16)
    if not send_task(echo, nonce):
        return False
    try:
        with closing(
            Redis.from_url(broker_url(), socket_connect_timeout=TIMEOUT, socket_timeout=timeout + 1)
        ) as broker:
            broker.expire(broker_namespace() + INTERACTIVE, KEPT_SECONDS)
            return broker.blpop([_echo_key(nonce)], timeout) is not None
    except (RedisError, OSError, ValueError, Unavailable):
        return False


@task
def echo(nonce: str) -> None:
    broker = broker_client()
    if broker is None or len(nonce) != 32 or not nonce.isalnum():
        return
    with broker.pipeline() as commands:
        commands.rpush(_echo_key(nonce), "1")
        commands.expire(_echo_key(nonce), KEPT_SECONDS)
        commands.execute()


def _echo_key(nonce: str) -> str:
    return f"{broker_namespace()}echo:{nonce}"
