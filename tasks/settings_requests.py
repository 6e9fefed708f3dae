"""Changes of settings that humans want: the agent's present model is asked. Ids only go over the broker."""

from __future__ import annotations

from app.asking.calls import Dependencies
from app.authoring import asked_changes
from app.llm.litellm import LiteLLMClients
from tasks.celery import task
from tasks.queue import send_lost, send_task


def enqueue(request_id: str) -> bool:
    """Let a worker ask the agent, once the row is committed. Never raises; see `send_task`."""
    return send_task(ask, request_id)


@task
def ask(request_id: str) -> None:
    asked_changes.ask_agent(request_id, Dependencies(LiteLLMClients()))


@task
def find_unasked() -> None:
    """Every minute: send those whose question got lost."""
    send_lost(ask, asked_changes.find_unasked())
