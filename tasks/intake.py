"""Takes in what came through the web, sealed to the master key."""

from __future__ import annotations

from app.exchange.taking_in import take_in
from tasks.celery import task
from tasks.queue import send_task


def enqueue(intake_id: str) -> bool:
    """Ask a worker to take an intake in, once its row is committed. Never raises; see `send_task`."""
    return send_task(take, intake_id)


@task
def take(intake_id: str) -> None:
    take_in(intake_id)
