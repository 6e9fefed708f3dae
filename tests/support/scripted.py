"""A client that says what a test wrote down, and remembers what it was asked.

client = ScriptedClient(say("YES"), call("delete_memory", id=3, carried_by=4), ModelError(...), lambda _: say("Hm"))
"""

from __future__ import annotations

import itertools
import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.llm.client import Message, Messages, ModelError, Reply, ToolCall, Tools, Usage

Scripted = Reply | ModelError | Callable[[Messages], Reply]

_USAGE = Usage(prompt_tokens=100, completion_tokens=10)
_numbers = itertools.count(1)


class ScriptEmpty(AssertionError):
    """The model was asked more often than the test wrote replies for."""


@dataclass(frozen=True)
class RecordedRequest:
    """One question as it was at that moment. Its content stays out of a printed form."""

    messages: tuple[Message, ...] = field(repr=False)
    tools: tuple[Mapping[str, Any], ...] = field(repr=False)
    timeout: float


class ScriptedClient:
    """Implements ModelClient with a queue of replies, each used once."""

    def __init__(self, *replies: Scripted, context_window: int | None = None) -> None:
        self.asked: list[RecordedRequest] = []
        self.is_closed = False
        self._window = context_window
        self._queue: deque[Scripted] = deque(replies)

    def complete(self, messages: Messages, tools: Tools = (), *, timeout: float) -> Reply:
        self.asked.append(RecordedRequest(tuple(dict(message) for message in messages), tuple(tools), timeout))
        if not self._queue:
            raise ScriptEmpty(f"The model was asked {len(self.asked)} times; its script has no reply left.")
        scripted = self._queue.popleft()
        if isinstance(scripted, ModelError):
            raise scripted
        return scripted if isinstance(scripted, Reply) else scripted(messages)

    def context_window(self) -> int | None:
        return self._window

    def close(self) -> None:
        self.is_closed = True

    @property
    def replies_left(self) -> int:
        return len(self._queue)


class ScriptedClients:
    """Implements ModelClients: one client for every model."""

    def __init__(self, client: ScriptedClient | None = None) -> None:
        self.made: list[str] = []
        self._client = client

    def for_model(
        self, model_id: str, *, api_base: str | None = None, api_key_env: str | None = None
    ) -> ScriptedClient:
        if self._client is None:
            raise ScriptEmpty(f"No client was scripted for {model_id}.")
        self.made.append(model_id)
        return self._client


def say(text: str, *, finish_reason: str = "stop") -> Reply:
    """A reply in words."""
    return Reply(text, usage=_USAGE, finish_reason=finish_reason)


def call(name: str, **arguments: Any) -> Reply:
    """A reply that calls one function."""
    return calls((name, arguments))


def calls(*wanted: tuple[str, Mapping[str, Any] | str], text: str = "") -> Reply:
    """A reply that calls several. A string instead of arguments stands for their raw text, malformed as it may be."""
    return Reply(text, tuple(_make_call(*one) for one in wanted), usage=_USAGE, finish_reason="tool_calls")


def _make_call(name: str, arguments: Mapping[str, Any] | str) -> ToolCall:
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return ToolCall(f"call_{next(_numbers)}", name, raw)
