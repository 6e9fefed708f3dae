"""The demo's pace: `whetstone/offline` answers at once, and a refinement would be over before its page is open."""

from __future__ import annotations

import time
from collections.abc import Callable

from sqlalchemy import select

from app.config import OFFLINE_MODEL
from app.demo import CHARACTERS
from app.extensions import reading
from app.llm.client import Messages, ModelClient, ModelClients, Reply, Tools
from app.models import Agent, Refinement
from app.models.agent_settings import operator_settings


def clients_with_pace(
    clients: ModelClients, agent: Agent, seconds: float, sleep: Callable[[float], None] = time.sleep
) -> ModelClients:
    """These clients; for an agent as the demo made it, with so many seconds before each answer."""
    return _Paced(clients, seconds, sleep) if seconds and _is_of_the_demo(agent) else clients


def paced_clients(refinement_id: str, clients: ModelClients) -> ModelClients:
    """Of one refinement, as this installation's settings want it. Leaves no transaction open."""
    query = select(Agent).join(Refinement, Refinement.agent_id == Agent.id).where(Refinement.id == refinement_id)
    with reading() as session:
        agent = session.scalar(query)
        return clients_with_pace(clients, agent, operator_settings().demo_pace_seconds) if agent else clients


def _is_of_the_demo(agent: Agent) -> bool:
    made = {(each.name, each.system_prompt) for each in CHARACTERS}
    return agent.model_id == OFFLINE_MODEL and (agent.name, agent.system_prompt) in made


class _Paced:
    def __init__(self, clients: ModelClients, seconds: float, sleep: Callable[[float], None]) -> None:
        self._clients, self._seconds, self._sleep = clients, seconds, sleep

    def for_model(self, model_id: str, *, api_base: str | None = None, api_key_env: str | None = None) -> ModelClient:
        client = self._clients.for_model(model_id, api_base=api_base, api_key_env=api_key_env)
        return _PacedClient(client, self._seconds, self._sleep)


class _PacedClient:
    def __init__(self, client: ModelClient, seconds: float, sleep: Callable[[float], None]) -> None:
        self._client, self._seconds, self._sleep = client, seconds, sleep

    def complete(self, messages: Messages, tools: Tools = (), *, timeout: float) -> Reply:
        self._sleep(min(self._seconds, timeout))
        return self._client.complete(messages, tools, timeout=timeout)

    def context_window(self) -> int | None:
        return self._client.context_window()

    def close(self) -> None:
        self._client.close()
