"""Takes in what came through the web, sealed to the master key."""

from __future__ import annotations

from app.exchange.taking_in import take_in
from tasks.celery import task
from tasks.queue import send_reply, send_task, wait_for_reply

KEPT_SECONDS = 60


def enqueue(intake_id: str) -> bool:
    """Ask a worker to take an intake in, once its row is committed. Never raises; see `send_task`."""
    return send_task(take, intake_id)


def wait_until_taken(intake_id: str, timeout: float = 10.0) -> bool:
    """Let a worker take it in, and wait for that, `timeout` seconds at most. Raises nothing: no broker, no answer."""
    return enqueue(intake_id) and wait_for_reply(f"intake:{intake_id}", timeout)


@task
def take(intake_id: str) -> None:
    take_in(intake_id)
    send_reply(f"intake:{intake_id}", kept=KEPT_SECONDS)
