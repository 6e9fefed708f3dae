"""A model server over real HTTP, and the adapter in front of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from app.llm.client import Reply
from app.llm.litellm import LiteLLMClients, load_litellm
from tests.support.model_server import ModelServer, ServerReply

Ask = Callable[..., Reply]
DELETE = {
    "type": "function",
    "function": {
        "name": "delete_memory",
        "description": "Remove one memory.",
        "parameters": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]},
    },
}


@pytest.fixture(autouse=True, scope="session")
def _loaded() -> None:
    """LiteLLM takes seconds to load; not at the cost of a test's own time-outs."""
    load_litellm()


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture
def ask(server: ModelServer) -> Ask:
    """Script the server, ask it once through LiteLLM, and close the client."""

    def ask_once(
        *scripted: ServerReply,
        model: str = "openai/scripted",
        api_base: str | None = None,
        messages: Sequence[Mapping[str, Any]] = ({"role": "user", "content": "Do you want to?"},),
        tools: Sequence[Mapping[str, Any]] = (),
        timeout: float = 10,
        api_key_env: str | None = None,
    ) -> Reply:
        server.script(*scripted)
        client = LiteLLMClients().for_model(model, api_base=api_base or server.base_url, api_key_env=api_key_env)
        try:
            return client.complete(messages, tools, timeout=timeout)
        finally:
            client.close()

    return ask_once
