"""Which model is asked, and where: a model's name, an address, and the variable that holds its key.

The operator's note on where this runs (a copy, a staging system) is told with every question to every model: it is
added where clients are made, so that no question can go without it. It ends the system message, quoted as data.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.asking.rendering import encode_json, render_prompt
from app.keynames import may_hold_a_key
from app.llm.client import Message, Messages, ModelClient, ModelClients, ModelError, ModelErrorKind, Reply, Tools
from app.models import Agent
from app.models.agent_settings import NOT_A_KEY, NOT_LISTED, is_listed_model, operator_settings


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
        """To ask it with. Raises ModelError: NO_KEY, NOT_LISTED, also for what is allowed no more."""
        if not self.is_operators and not is_listed_model(self.model_id, self.api_base):
            raise ModelError(
                ModelErrorKind.NOT_LISTED,
                f"{NOT_LISTED} Nothing was asked.",
                summary="The operator does not allow this model at this address",
            )
        if (
            self.api_key_env
            and not self.is_operators
            and not may_hold_a_key(self.api_key_env, operator_settings().api_key_envs)
        ):
            raise ModelError(
                ModelErrorKind.NO_KEY,
                f"{NOT_A_KEY} Nothing was asked.",
                summary="The variable that is named for the API key may not be used for one",
            )
        client = clients.for_model(self.model_id, api_base=self.api_base, api_key_env=self.api_key_env)
        note = operator_settings().environment_note
        return NotedClient(client, note) if note else client


@dataclass(frozen=True)
class NotedClient:
    """A client whose model is told the note first, whatever it is asked."""

    client: ModelClient
    note: str

    def complete(self, messages: Messages, tools: Tools = (), *, timeout: float) -> Reply:
        return self.client.complete(with_note(messages, self.note), tools, timeout=timeout)

    def context_window(self) -> int | None:
        return self.client.context_window()

    def close(self) -> None:
        self.client.close()


def with_note(messages: Messages, note: str) -> list[Message]:
    """The same messages, the note at the end of the system message, which is made where there is none."""
    said = render_prompt("environment_note.txt", note=encode_json(note))
    first = dict(messages[0]) if messages else {}
    if first.get("role") != "system":
        return [{"role": "system", "content": said}, *messages]
    return [first | {"content": f"{first['content']}\n\n{said}"}, *messages[1:]]
