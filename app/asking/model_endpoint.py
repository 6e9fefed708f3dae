"""Which model is asked, and where: a model's name, an address, and the variable that holds its key."""

from __future__ import annotations

from dataclasses import dataclass

from app.asking.environment_note import NotedClient
from app.keynames import may_hold_a_key
from app.llm.client import ModelClient, ModelClients, ModelError, ModelErrorKind
from app.models import Agent
from app.models.agent_settings import NOT_A_KEY, operator_settings


@dataclass(frozen=True)
class ModelEndpoint:
    """Which model is asked, and where. `is_operators`: the operator's settings named it, no admin of an account."""

    model_id: str
    api_base: str | None
    api_key_env: str | None
    is_operators: bool = False

    @classmethod
    def of(cls, agent: Agent) -> ModelEndpoint:
        """The agent's own."""
        return cls(agent.model_id, agent.api_base, agent.api_key_env)

    def client(self, clients: ModelClients) -> ModelClient:
        """To ask it with. Raises ModelError (NO_KEY), also for a variable that the operator does not allow any more."""
        if (
            self.api_key_env
            and not self.is_operators
            and not may_hold_a_key(self.api_key_env, operator_settings().api_key_envs)
        ):
            raise ModelError(ModelErrorKind.NO_KEY, f"{NOT_A_KEY} Nothing was asked.")
        client = clients.for_model(self.model_id, api_base=self.api_base, api_key_env=self.api_key_env)
        note = operator_settings().environment_note
        return NotedClient(client, note) if note else client
