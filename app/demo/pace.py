"""The demo's pace: `whetstone/offline` answers at once, and a refinement would be over before its page is open."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

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
    made = {(each.name, OFFLINE_MODEL, each.system_prompt) for each in CHARACTERS}
    is_made = (agent.name, agent.model_id, agent.system_prompt) in made
    return _Paced(clients, seconds, sleep) if seconds and is_made else clients


def paced_clients(refinement_id: str, clients: ModelClients) -> ModelClients:
    """Of one refinement, as this installation's settings want it. Leaves no transaction open."""
    query = select(Agent).join(Refinement, Refinement.agent_id == Agent.id).where(Refinement.id == refinement_id)
    with reading() as session:
        agent = session.scalar(query)
        return clients_with_pace(clients, agent, operator_settings().demo_pace_seconds) if agent else clients


@dataclass(frozen=True)
class _Paced:
    clients: ModelClients
    seconds: float
    sleep: Callable[[float], None]

    def for_model(self, model_id: str, *, api_base: str | None = None, api_key_env: str | None = None) -> ModelClient:
        client = self.clients.for_model(model_id, api_base=api_base, api_key_env=api_key_env)
        return _PacedClient(client, self.seconds, self.sleep)


@dataclass(frozen=True)
class _PacedClient:
    client: ModelClient
    seconds: float
    sleep: Callable[[float], None]

    def complete(self, messages: Messages, tools: Tools = (), *, timeout: float) -> Reply:
        self.sleep(min(self.seconds, timeout))
        return self.client.complete(messages, tools, timeout=timeout)

    def context_window(self) -> int | None:
        return self.client.context_window()

    def close(self) -> None:
        self.client.close()
