"""Tokens that humans ask for: lets the agent be asked, and seals its keys after a YES. Ids only go over the broker."""

from __future__ import annotations

from app.asking.calls import Dependencies
from app.keys.provision import provision_keys
from app.llm.litellm import LiteLLMClients
from app.tokens import asking
from tasks.celery import task
from tasks.queue import send_task


def enqueue(request_id: str) -> bool:
    """Let a worker ask the agent, once the row is committed. Never raises; see `send_task`."""
    return send_task(ask, request_id)


@task
def ask(request_id: str) -> None:
    agent_id = asking.ask_about_token(request_id, Dependencies(LiteLLMClients()))
    if agent_id is not None:
        provision_keys(agent_id)


@task
def look_after() -> None:
    """Every minute: end what nobody answered, and ask what nobody asked."""
    asking.end_what_is_over()
    for request_id in asking.find_unasked():
        enqueue(request_id)
