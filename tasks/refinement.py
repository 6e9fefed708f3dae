"""The task that carries one refinement, and the way to ask for it."""

from __future__ import annotations

from app.asking.calls import Dependencies
from app.demo import paced_clients
from app.extensions import reading
from app.llm.litellm import LiteLLMClients
from app.models.account_use import next_waiting
from app.refinement import process
from tasks.celery import sound_alarm, task
from tasks.echo import worker_answers
from tasks.queue import send_task

__all__ = ["enqueue", "refine", "worker_answers"]


def enqueue(refinement_id: str) -> bool:
    """Ask a worker to carry a queued refinement, once its row is committed. Never raises; see `send_task`."""
    return send_task(refine, refinement_id)


@task
def refine(refinement_id: str) -> None:
    stopped = process.run_refinement(refinement_id, Dependencies(paced_clients(refinement_id, LiteLLMClients())))
    with reading():
        waiting = next_waiting(refinement_id)
    if waiting is not None:
        enqueue(waiting)
    if stopped is not None:
        sound_alarm(stopped)
