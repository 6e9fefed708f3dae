"""Tests of models that somebody waits for on a page. Ids only go over the broker."""

from __future__ import annotations

from app.asking.calls import Dependencies
from app.asking.model_test import answer_model_test
from app.llm.litellm import LiteLLMClients
from tasks.celery import task
from tasks.queue import send_task


def enqueue(agent_id: int) -> bool:
    """Let a worker ask the agent's model, once the wish is committed. Never raises; see `send_task`."""
    return send_task(test, agent_id)


@task
def test(agent_id: int) -> None:
    answer_model_test(agent_id, Dependencies(LiteLLMClients()))
