"""Any reply of a model server, by every provider: over shortly after its deadline, within 64 MB, from nowhere else."""

from __future__ import annotations

import itertools
import re
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import pytest

from app.llm import wire
from app.llm.client import ModelError, ModelErrorKind
from app.llm.litellm import LiteLLMClients, load_litellm
from tests.llm.test_own_address import KNOWN_MODELS, left_open, providers
from tests.support.hostile_server import ATTACKS, HostileServer

__all__ = ["left_open"]
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*ReadOnly:UserWarning"),
]

SECONDS = 0.5
OVER_AFTER = SECONDS + 2
MEGABYTES = 64
SLOW = ("slow headers", "drip", "endless chunks")
SWIFT = ("200 MB", "redirect", "gzip, gzip")
FEW_WILL_DO = tuple(name for name in ATTACKS if name not in SLOW + SWIFT)
"""What depends on who reads the reply more than on who fetches it, or is like another attack."""

OTHER_WAYS = (
    "azure/responses/gpt-4o",
    "azure_ai/agents/some-agent",
    "bedrock/amazon.titan-text-express-v1",
    "bedrock/converse/anthropic.claude-3-haiku-20240307-v1:0",
    "bedrock/invoke/anthropic.claude-3-haiku-20240307-v1:0",
    "bedrock/agent/SOME/AGENT",
    "gemini/gemini-2.0-flash",
    "ollama/llama3",
    "openai/gpt-5-pro",
    "openai/responses/gpt-4o",
)
"""Providers ask in more than one way; the model's name decides."""

ONE_OF_EACH_KIND = tuple(
    f"{provider}/some-model"
    for provider in ("anthropic", "azure", "cohere", "hosted_vllm", "lm_studio", "ollama_chat", "openai", "perplexity")
)


@dataclass(frozen=True)
class Ended:
    """How one attack on one provider ended."""

    model: str
    seconds: float
    error: ModelError | None
    was_sent: bool

    @property
    def is_in_time(self) -> bool:
        return self.seconds <= OVER_AFTER and self.error is not None and self.error.kind is ModelErrorKind.TIMEOUT


@pytest.fixture(scope="module")
def server() -> Iterator[HostileServer]:
    with HostileServer() as running:
        yield running


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them some providers ask nobody."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    monkeypatch.setenv("AWS_REGION", "us-east-1")


@pytest.fixture(scope="module", autouse=True)
def reached(server: HostileServer) -> set[str]:
    """Who asks at an own address at all. The first call of each loads modules, which no server is to blame for."""
    server.attack = "redirect"
    return {model for model in models() if attack(model, server, seconds=5).was_sent}


def test_the_sweep_reaches_providers_of_every_kind(reached: set[str]) -> None:
    assert len(reached) > 100
    assert reached >= {*ONE_OF_EACH_KIND, *OTHER_WAYS}


@pytest.mark.parametrize("name", SLOW)
def test_every_provider_is_over_shortly_after_its_deadline(server: HostileServer, reached: set[str], name: str) -> None:
    """Several at a time; who was late then is asked again alone, because a busy machine is no fault of a provider's."""
    server.attack = name
    with ThreadPoolExecutor(8) as pool:
        ended = list(pool.map(lambda model: attack(model, server), sorted(reached)))
    again = [attack(each.model, server) for each in ended if not each.is_in_time]
    assert [each for each in again if not each.is_in_time] == []
    assert len(again) < len(reached) / 10


@pytest.mark.parametrize("name", SWIFT)
def test_no_reply_to_any_provider_takes_much_memory_or_leads_elsewhere(
    server: HostileServer, reached: set[str], name: str
) -> None:
    endure(server, name, reached)


@pytest.mark.parametrize("name", FEW_WILL_DO)
def test_no_reply_to_any_kind_of_provider_does_either(server: HostileServer, name: str) -> None:
    endure(server, name, ONE_OF_EACH_KIND)


def endure(server: HostileServer, name: str, asked: Iterable[str]) -> None:
    """One after another, so that what is measured is of one call."""
    server.attack, server.lured = name, 0
    grown: dict[str, float] = {}
    ended = []
    for model in sorted(asked):
        before = start_measuring()
        ended.append(attack(model, server))
        grown[model] = peak() - before
    assert {model: more for model, more in grown.items() if more > MEGABYTES} == {}
    assert [each for each in ended if each.seconds > OVER_AFTER] == []
    assert server.lured == 0


def test_every_connection_that_a_provider_makes_is_a_bounded_one(
    server: HostileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when httpx sends by another method, or a provider by something else: bound that, or refuse it there."""
    server.attack = "redirect"
    load_litellm().in_memory_llm_clients_cache.flush_cache()
    connect, made = socket.socket.connect, {True: 0, False: 0}

    def spy(self: socket.socket, address: object) -> None:
        made[_is_bounded()] += 1
        connect(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", spy)
    for model in models():
        attack(model, server)
    assert made[True] > 10, "the sweep connects to no listener any more"
    assert made[False] == 0


def models() -> list[str]:
    return [*(f"{each}/{KNOWN_MODELS.get(each, 'some-model')}" for each in providers()), *OTHER_WAYS]


def attack(model: str, server: HostileServer, seconds: float = SECONDS) -> Ended:
    """Ask once, at an address of its own by which the server knows the call again."""
    mark = f"call-{next(_calls)}"
    client = LiteLLMClients().for_model(model, api_base=f"{server.base_url}/{mark}")
    began, error = time.monotonic(), None
    try:
        client.complete([{"role": "user", "content": "?"}], timeout=seconds)
    except ModelError as raised:
        error = raised
    finally:
        client.close()
    took = time.monotonic() - began
    return Ended(model, took, error, any(mark in path for path in list(server.paths)))


def start_measuring() -> float:
    """Megabytes in use now; `peak` then tells the most since. Linux alone can tell."""
    if not sys.platform.startswith("linux"):
        pytest.skip("Only Linux tells the peak of a process's memory since a moment.")
    Path("/proc/self/clear_refs").write_text("5")
    return _memory("VmRSS")


def peak() -> float:
    return _memory("VmHWM")


_calls = itertools.count(1)


def _memory(field: str) -> float:
    found = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) / 1024


def _is_bounded() -> bool:
    """Whether the connection that is being made is made by `app/llm/wire.py`."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename == wire.__file__:
            return True
        frame = frame.f_back
    return False
