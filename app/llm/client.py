"""The protocol between whoever asks and a model: what is asked, what comes back, what can go wrong.

Nothing here knows memories. Three clients implement it: LiteLLM, `whetstone/offline` and the scripted one of the tests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any, Protocol

from app.errors import WhetstoneError

Message = Mapping[str, Any]
"""One chat message in OpenAI's form: role, content, and where they apply tool_calls or tool_call_id."""

Messages = Sequence[Message]

Tools = Sequence[Mapping[str, Any]]
"""Functions that the model may call, in the form that chat completions take."""

_NO_NAME = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True)
class ToolCall:
    """A function that the model wants called. `arguments` is the raw JSON text, as malformed as it came."""

    id: str
    name: str
    arguments: str = field(repr=False)

    @property
    def sendable_name(self) -> str:
        """The name in the letters that providers take back; they refuse the whole chat for another one."""
        return _NO_NAME.sub("_", self.name)[:64] or "unnamed"

    def as_sent(self) -> dict[str, Any]:
        """The call as it goes back to the provider: what is no JSON object becomes an empty one."""
        arguments = self.arguments if _is_object(self.arguments) else "{}"
        return {"id": self.id, "type": "function", "function": {"name": self.sendable_name, "arguments": arguments}}


@dataclass(frozen=True)
class Usage:
    """Tokens that the provider counted, and the cost in US dollars where LiteLLM knows the price."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: Decimal = Decimal(0)

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def as_json(self) -> dict[str, Any]:
        """What it cost, for records."""
        return {"tokens": self.total_tokens, "cost_usd": float(self.cost_usd)}

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cost_usd + other.cost_usd,
        )


@dataclass(frozen=True)
class Reply:
    """One answer of the model. `finish_reason` is the provider's word ("stop", "tool_calls", "length", …)."""

    text: str = field(repr=False, default="")
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    finish_reason: str = "stop"

    def as_message(self) -> dict[str, Any]:
        """The assistant message to append before the tool results: always one that can be sent, whatever it was."""
        text = self.text.encode("utf-8", "replace").decode()
        if not self.tool_calls:
            return {"role": "assistant", "content": text}
        calls = [call.as_sent() for call in self.tool_calls]
        return {"role": "assistant", "content": text or None, "tool_calls": calls}


def _is_object(arguments: str) -> bool:
    try:
        arguments.encode()
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


class ModelErrorKind(StrEnum):
    """Why a model gave no answer."""

    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    SERVER_ERROR = "server_error"
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    UNAUTHORIZED = "unauthorized"
    NOT_FOUND = "not_found"
    CONTEXT_TOO_LONG = "context_too_long"
    BAD_REQUEST = "bad_request"
    NO_KEY = "no_key"
    NOT_LISTED = "not_listed"
    """The operator allows no such model at such an address. Nothing was sent."""


RETRIED = frozenset(
    {
        ModelErrorKind.RATE_LIMITED,
        ModelErrorKind.OVERLOADED,
        ModelErrorKind.SERVER_ERROR,
        ModelErrorKind.TIMEOUT,
        ModelErrorKind.UNREACHABLE,
    }
)
"""What is worth another try."""


class ModelError(WhetstoneError):
    """The agent's model gave no answer.

    The sentence is safe to log and to show: it never holds a prompt, a reply or a key.
    `status` is the HTTP status where there was one; `retry_after` is in seconds. `summary` is the sentence without
    advice and without what differs from one attempt to the next: the same for all that fail so.
    """

    code = "model_error"

    def __init__(
        self,
        kind: ModelErrorKind,
        message: str,
        *,
        summary: str = "",
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.summary = summary or message.removesuffix(".")
        self.kind = kind
        self.status = status
        self.retry_after = retry_after

    @property
    def worth_retrying(self) -> bool:
        return self.kind in RETRIED


class ModelClient(Protocol):
    """A connection to one model, for one refinement or one question. Not shared between threads; close it after."""

    def complete(self, messages: Messages, tools: Tools = (), *, timeout: float) -> Reply:
        """Ask once; one attempt, no retries. `timeout` in seconds. Raises ModelError."""

    def context_window(self) -> int | None:
        """Tokens that the model can read at once, where that is known."""

    def close(self) -> None:
        """Give back connections."""


class ModelClients(Protocol):
    """Makes clients; what a worker is given, so that a test can give it another one."""

    def for_model(self, model_id: str, *, api_base: str | None = None, api_key_env: str | None = None) -> ModelClient:
        """A client for LiteLLM's model name. Raises ModelError (NO_KEY) when the named variable is not set."""
