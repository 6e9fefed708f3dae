"""Prompts that agents write for themselves: read by a safety model, where one is set; and their outcomes, told."""

from __future__ import annotations

from app.asking.calls import Dependencies
from app.authoring import reading
from app.llm.litellm import LiteLLMClients
from tasks.celery import task
from tasks.queue import send_lost, send_task


def enqueue(proposal_id: str) -> bool:
    """Ask a worker to have a prompt read, once its row is committed. Never raises; see `send_task`."""
    return send_task(read, proposal_id)


@task
def read(proposal_id: str) -> None:
    reading.read_proposal(proposal_id, Dependencies(LiteLLMClients()))


@task
def find_unread() -> None:
    """Every minute: send the prompts that wait for a reader whose question got lost."""
    send_lost(read, reading.find_unread())


@task
def tell_what_was_decided() -> None:
    """Every minute: the dashboard that decided it has no key of the agent's journal."""
    for proposal_id in reading.find_decisions_to_tell():
        reading.tell_outcome(proposal_id)
