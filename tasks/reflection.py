"""What asks an agent's model about its days: a conversation that it handed in, and what of its journal is to stay."""

from __future__ import annotations

from app.asking.dependencies import Dependencies
from app.extensions import now
from app.llm.litellm import LiteLLMClients
from app.reflection import conversation, promotion
from tasks.celery import task
from tasks.queue import send


def enqueue(intake_id: str) -> bool:
    """Let a worker hear a conversation, once its row is committed. Never raises; see `send`."""
    return send(hear, intake_id)


@task
def hear(intake_id: str) -> None:
    conversation.hear(intake_id, Dependencies(LiteLLMClients()))


@task
def promote(agent_id: int) -> None:
    promotion.promote(agent_id, Dependencies(LiteLLMClients()))


@task
def start_due() -> None:
    """Beat says "look" every hour; the database decides whose day it is."""
    for agent_id in promotion.find_due(now()):
        send(promote, agent_id)
