"""Model servers that mean harm, against every kind of provider: seconds until the call is over, and memory it took.

A call may take 64 MB more, and must be over 2 seconds after its deadline. The server runs in this process, too.
Usage: python -m benchmarks.hostile_models [MODEL …]
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.llm.client import ModelError
from app.llm.litellm import LiteLLMClients, load_litellm
from tests.support.hostile_server import ATTACKS, HostileServer

SECONDS = 2.0
MEGABYTES = 64
MODELS = (
    "openai/m",
    "anthropic/m",
    "ollama_chat/m",
    "lm_studio/m",
    "azure/m",
    "azure_ai/agents/m",
    "perplexity/m",
    "cohere/m",
)


@dataclass(frozen=True)
class Measured:
    """One attack on one provider."""

    model: str
    attack: str
    seconds: float
    megabytes: float
    was_lured: bool
    said: str

    @property
    def is_held(self) -> bool:
        return self.seconds <= SECONDS + 2 and self.megabytes <= MEGABYTES and not self.was_lured

    def as_line(self) -> str:
        verdict = "held" if self.is_held else "NOT HELD"
        return f"{self.model:20}{self.attack:26}{self.seconds:7.2f}{self.megabytes:9.0f}  {verdict:10}{self.said}"


def main() -> None:
    if not sys.platform.startswith("linux"):
        raise SystemExit("Only Linux tells the peak of a process's memory since a moment.")
    load_litellm()
    print(f"{'provider':20}{'attack':26}{'over, s':>7}{'more MB':>9}  verdict   said", flush=True)
    measured = []
    for each in _measure(tuple(sys.argv[1:]) or MODELS):
        measured.append(each)
        print(each.as_line(), flush=True)
    held = sum(each.is_held for each in measured)
    print(f"held: {held} of {len(measured)}; the deadline is {SECONDS:g} s")


def _measure(models: tuple[str, ...]) -> Iterator[Measured]:
    with HostileServer() as server:
        for model in models:
            server.attack = "redirect"
            _ask(model, server)  # its own modules are no server's fault
            for attack in ATTACKS:
                server.attack, server.lured = attack, 0
                Path("/proc/self/clear_refs").write_text("5")
                before, began = _memory("VmRSS"), time.monotonic()
                said = _ask(model, server)
                took, more = time.monotonic() - began, max(0.0, _memory("VmHWM") - before)
                yield Measured(model, attack, took, more, server.lured > 0, said)


def _ask(model: str, server: HostileServer) -> str:
    client = LiteLLMClients().for_model(model, api_base=server.base_url)
    try:
        client.complete([{"role": "user", "content": "?"}], timeout=SECONDS)
    except ModelError as error:
        return str(error.kind)
    else:
        return "a reply"
    finally:
        client.close()


def _memory(field: str) -> float:
    found = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


if __name__ == "__main__":
    main()
