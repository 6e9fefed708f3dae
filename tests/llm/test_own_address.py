"""An address of one's own gets no secret that nobody named: whatever provider the model's name claims to be of."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.llm.client import ModelError, ModelErrorKind
from app.llm.litellm import _ASKED_WITH_MORE_THAN_A_KEY, LiteLLMClients, load_litellm
from tests.support.model_server import ModelServer, error

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
SECRET = "planted-secret-of-"
_READ = re.compile(r"""["']([A-Z][A-Z0-9_]*_(?:KEY|TOKEN|APIKEY|SECRET|CREDENTIALS|ID|JWT|PASSWORD))["']""")
KNOWN_MODELS = {"bedrock": "anthropic.claude-3-haiku-20240307-v1:0"}


@pytest.fixture(scope="module", autouse=True)
def left_open() -> Iterator[None]:
    """LiteLLM never closes some providers' clients: they are let go here, not in the middle of another test."""
    yield
    load_litellm().in_memory_llm_clients_cache.flush_cache()
    gc.collect()


@pytest.fixture(scope="module")
def variables() -> set[str]:
    """All that LiteLLM's providers might read of the environment, found in its source."""
    root = Path(load_litellm().__file__).parent
    sources = [*root.glob("*.py"), *(root / "llms").rglob("*.py"), *(root / "secret_managers").rglob("*.py")]
    found = {name for source in sources for name in _READ.findall(source.read_text(errors="replace"))}
    assert {"OPENAI_API_KEY", "AZURE_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY"} <= found
    return found - {"AZURE_TENANT_ID"}


@pytest.fixture
def planted(variables: set[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    for name in variables:
        monkeypatch.setenv(name, SECRET + name)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    yield variables


@pytest.fixture
def listener() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server.always(error(400, "No."))


def test_no_provider_sends_a_secret_of_the_machine_to_an_own_address(planted: set[str], listener: ModelServer) -> None:
    told: dict[str, set[str]] = {}
    reached = 0
    for provider in providers():
        before = len(listener.requests)
        model = f"{provider}/{KNOWN_MODELS.get(provider, 'some-model')}"
        client = LiteLLMClients().for_model(model, api_base=listener.base_url)
        with pytest.raises(ModelError):
            client.complete([{"role": "user", "content": "?"}], timeout=3)
        client.close()
        requests = listener.requests[before:]
        reached += bool(requests)
        leaked = {name for request in requests for name in re.findall(f"{SECRET}([A-Z0-9_]+)", str(vars(request)))}
        if leaked:
            told[provider] = leaked
    assert told == {}
    assert reached > 80, "the sweep reaches no listener any more"


def test_a_name_that_is_an_address_is_asked_nowhere(planted: set[str], listener: ModelServer) -> None:
    for provider in ("huggingface", "oobabooga", "openai", "azure"):
        client = LiteLLMClients().for_model(f"{provider}/{listener.base_url}")
        with pytest.raises(ModelError) as caught:
            client.complete([{"role": "user", "content": "?"}], timeout=3)
        assert caught.value.kind is ModelErrorKind.NOT_FOUND
    assert listener.requests == []


@pytest.mark.parametrize("provider", sorted(_ASKED_WITH_MORE_THAN_A_KEY))
def test_what_is_asked_with_more_than_a_key_takes_no_own_address(provider: str, listener: ModelServer) -> None:
    assert provider in providers()
    client = LiteLLMClients().for_model(f"{provider}/some-model", api_base=listener.base_url)
    with pytest.raises(ModelError, match="credentials of the worker's machine") as caught:
        client.complete([{"role": "user", "content": "?"}], timeout=3)
    assert not caught.value.worth_retrying
    assert listener.requests == []


def providers() -> list[str]:
    return sorted({str(getattr(each, "value", each)) for each in load_litellm().provider_list})
