"""What asks an agent's model about its days: a conversation that it handed in, and what of its journal is to stay."""

from __future__ import annotations

from app.asking.calls import Dependencies
from app.extensions import now
from app.llm.litellm import LiteLLMClients
from app.reflection import conversation, promotion
from tasks.celery import task
from tasks.queue import send_task


def enqueue(intake_id: str) -> bool:
    """Let a worker hear a conversation, once its row is committed. Never raises; see `send_task`."""
    return send_task(hear, intake_id)


@task
def hear(intake_id: str) -> None:
    conversation.reflect_on_conversation(intake_id, Dependencies(LiteLLMClients()))


@task
def promote(agent_id: int) -> None:
    promotion.run_promotion(agent_id, Dependencies(LiteLLMClients()))


@task
def start_due() -> None:
    """Beat says "look" every hour; the database decides whose day it is."""
    for agent_id in promotion.find_due(now()):
        send_task(promote, agent_id)
