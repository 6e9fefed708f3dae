"""Whether a worker answers: a nonce goes the way of every task and comes back over a key of its own."""

from __future__ import annotations

import secrets

from app.events.broker import TIMEOUT
from tasks.celery import task
from tasks.queue import send_reply, send_task, wait_for_reply

KEPT_SECONDS = 30
"""How long an answer that nobody fetched, or a question that nobody answered, stays with the broker."""


def worker_answers(timeout: float = TIMEOUT) -> bool:
    """Whether a worker answers within `timeout` seconds. Raises nothing: without a broker the answer is no."""
    nonce = secrets.token_hex(16)
    return send_task(echo, nonce) and wait_for_reply(f"echo:{nonce}", timeout, question_kept=KEPT_SECONDS)


@task
def echo(nonce: str) -> None:
    if len(nonce) == 32 and nonce.isalnum():
        send_reply(f"echo:{nonce}", kept=KEPT_SECONDS)
