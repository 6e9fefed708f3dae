"""Every model that LiteLLM reaches, and `whetstone/offline` by the same path: one call in, one Reply or ModelError out.

The only module that imports LiteLLM: on first use, in workers and the command line, never in the web process.
LiteLLM's own retries, logs, telemetry and price downloads are off; its exceptions carry prompts and stay in here.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import threading
import warnings
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from app.config import OFFLINE_MODEL
from app.keynames import is_possible
from app.llm import failures, offline
from app.llm.body import visible_text
from app.llm.client import Messages, ModelError, ModelErrorKind, Reply, ToolCall, Tools, Usage
from app.llm.exchange import Exchange, LeftBehind, in_time
from app.llm.habits import break_habits
from app.loading import nothing_collected

if TYPE_CHECKING:
    from httpx import Client

    from app.llm.connections import Reached

PLACEHOLDER_KEY = "no-key"
"""Sent to an address of one's own that names no key: the operator's usual keys never go there unasked."""

_WITH_HTTP_HANDLER = {
    *("anthropic", "deepseek", "fireworks_ai", "gemini", "groq", "hosted_vllm", "mistral", "ollama_chat"),
    *("openrouter", "together_ai", "xai"),
}
"""Providers that LiteLLM asks through an HTTPHandler of ours. The rest gets LiteLLM's default client."""

_ASKED_WITH_MORE_THAN_A_KEY = {
    *("gdc", "gigachat", "oci", "predibase", "sagemaker", "sagemaker_chat", "sagemaker_nova", "sap", "snowflake"),
    *("vertex_ai", "vertex_ai_beta", "watsonx", "watsonx_text"),
}
"""Providers to which LiteLLM sends credentials of the worker's machine whatever key it is given."""

_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_LOG": "ERROR",
    "LITELLM_DISABLE_REDACT_SECRETS": "true",
}
"""No download of prices, no reading of a .env file, no debug output whatever the operator's environment says."""

_MOST_TOKENS = 10_000_000
_MOST_COST = Decimal(10_000)
"""Of one reply, whatever a server claims: what is beyond is no count, and fits no column."""

_COST_DIGITS = 12
"""LiteLLM multiplies prices as floats; what stands behind is noise."""

_one_at_a_time = threading.Lock()


class LiteLLMClients:
    """Makes a client for any model name that LiteLLM knows."""

    def for_model(self, model_id: str, *, api_base: str | None = None, api_key_env: str | None = None) -> LiteLLMClient:
        """Raises ModelError (NO_KEY) when the named variable is not set. LiteLLM loads at the first call, not here."""
        return LiteLLMClient(model_id, api_base or None, _key_in(api_key_env) if api_key_env else None)


class LiteLLMClient:
    """One model, over connections that nobody else has meanwhile."""

    def __init__(self, model_id: str, api_base: str | None, api_key: str | None) -> None:
        self._model_id = model_id
        self._make_line = functools.partial(_Line, model_id, api_base, api_key)
        self._line = self._make_line()

    def complete(self, messages: Messages, tools: Tools = (), *, timeout: float) -> Reply:
        """One attempt, over a second after `timeout` at the latest, whatever the provider and its server do."""
        load_litellm()
        line, exchange = self._line, Exchange.within(timeout)
        try:
            return in_time(exchange, lambda: line.ask(messages, tools, exchange))
        except ModelError as error:
            failed = error
        except LeftBehind as late:
            late.then(line.discard)
            self._line = self._make_line()  # this one's thread is left behind
            failed = failures.sentence_for(self._model_id, ModelErrorKind.TIMEOUT)
        except Exception as error:  # noqa: BLE001  LiteLLM lets any exception through
            failed = failures.as_model_error(self._model_id, error, exchange)
        raise failed  # out here, so that the provider's exception, which may quote the prompt, is no context of it

    def context_window(self) -> int | None:
        if self._model_id == OFFLINE_MODEL:
            return offline.CONTEXT_WINDOW
        prices = load_litellm().model_cost
        provider, _, name = self._model_id.partition("/")
        known = prices.get(self._model_id) or prices.get(name) or {}
        same = self._model_id in prices or known.get("litellm_provider") == provider
        window = known.get("max_input_tokens")
        return window if same and isinstance(window, int) else None

    def close(self) -> None:
        self._line.close()


class _Line:
    """The connections of one client, for one thread at a time; lent at its first call.

    Only after nothing but replies does anybody get them next.
    """

    def __init__(self, model_id: str, api_base: str | None, api_key: str | None) -> None:
        self._reaches = (model_id, api_base, api_key)
        self._route: _ModelRoute | None = None
        self._had_trouble = False

    def close(self) -> None:
        route, self._route = self._route, None
        if route is not None:
            route.give_back(is_sound=not self._had_trouble)

    def discard(self) -> None:
        self._had_trouble = True
        self.close()

    def ask(self, messages: Messages, tools: Tools, exchange: Exchange) -> Reply:
        try:
            return self._ask(messages, tools, exchange)
        except BaseException:
            self._had_trouble = True
            raise

    def _ask(self, messages: Messages, tools: Tools, exchange: Exchange) -> Reply:
        litellm = load_litellm()
        route = self._route = self._route or _make_route(litellm, *self._reaches)
        litellm._internal_context.is_internal_call.set(True)  # no success callbacks in its own threads: 20 % of the CPU
        raw = litellm.completion(
            messages=[dict(message) for message in messages],
            timeout=exchange.seconds_left(),
            max_retries=0,
            num_retries=0,
            _skip_mcp_handler=True,
            **({"tools": [dict(tool) for tool in tools]} if tools else {}),
            **route.arguments,
        )
        if exchange.problem:
            raise ValueError("LiteLLM made a reply of what was not taken for one.")
        return _parse_reply(raw)


@dataclass(frozen=True)
class _ModelRoute:
    """How LiteLLM reaches one model: its arguments, and our connections where it takes some."""

    arguments: dict[str, Any]
    reached: Reached | None = None
    wire: Client | None = None

    def give_back(self, *, is_sound: bool) -> None:
        from app.llm.connections import LENDING

        if self.wire is None or self.reached is None:
            return
        if is_sound:
            LENDING.take_back(self.reached, self.wire)
        else:
            self.wire.close()


def _make_route(litellm: Any, model_id: str, api_base: str | None, api_key: str | None) -> _ModelRoute:
    if model_id == OFFLINE_MODEL:
        return _ModelRoute({"model": model_id})
    provider, known_as = _find_provider(litellm, model_id, api_base)
    if api_base:
        if provider in _ASKED_WITH_MORE_THAN_A_KEY:
            summary = f"The model {model_id} can't be asked at an address of one's own"
            why = "credentials of the worker's machine would go there. Leave the API base empty."
            raise ModelError(ModelErrorKind.NO_KEY, f"{summary}: {why}", summary=summary)
        api_key = api_key or PLACEHOLDER_KEY
    arguments = {"model": known_as, "api_base": api_base, "api_key": api_key}
    if provider == "openai":
        return _through_openai(model_id, arguments)
    if provider in _WITH_HTTP_HANDLER:
        return _through_http_handler(provider, arguments)
    return _through_default_client(arguments)


def _find_provider(litellm: Any, model_id: str, api_base: str | None) -> tuple[str, str]:
    """LiteLLM's provider and its name for the model. An unknown name at an own address is OpenAI-compatible.

    A name that is an address is refused: some providers would be asked there, with the operator's usual key.
    """
    if model_id.startswith(f"{offline.PROVIDER}/") or "://" in model_id:
        raise failures.sentence_for(model_id, ModelErrorKind.NOT_FOUND)
    try:
        return str(litellm.get_llm_provider(model_id, api_base=api_base)[1]), model_id
    except litellm.BadRequestError:
        if api_base:
            return "openai", f"openai/{model_id}"
    raise failures.sentence_for(model_id, ModelErrorKind.NOT_FOUND)


def _through_openai(model_id: str, arguments: dict[str, Any]) -> _ModelRoute:
    from openai import OpenAI

    from app.llm.openai_chat import ChatClient

    key = arguments["api_key"] or os.environ.get("OPENAI_API_KEY")
    if not key:
        raise failures.sentence_for(model_id, ModelErrorKind.NO_KEY)
    base = arguments["api_base"] or os.environ.get("OPENAI_API_BASE") or None
    reached, wire = _lend("openai", base, key)
    client = ChatClient(OpenAI(api_key=key, base_url=base, max_retries=0, http_client=wire))
    return _ModelRoute({**arguments, "api_key": key, "client": client}, reached, wire)


def _through_http_handler(provider: str, arguments: dict[str, Any]) -> _ModelRoute:
    from litellm.llms.custom_httpx.http_handler import HTTPHandler

    reached, wire = _lend(provider, arguments["api_base"], arguments["api_key"])
    return _ModelRoute({**arguments, "client": HTTPHandler(client=wire)}, reached, wire)


def _through_default_client(arguments: dict[str, Any]) -> _ModelRoute:
    """By a client that LiteLLM makes: for many providers OpenAI's, whose first use loads 450 modules, by one thread."""
    with _one_at_a_time:
        importlib.import_module("openai.resources")
    return _ModelRoute(arguments)


def _lend(provider: str, base: str | None, key: str | None) -> tuple[Reached, Client]:
    from app.llm.connections import LENDING, Reached

    reached = Reached(provider, base, key)
    return reached, LENDING.lend(reached)


def _parse_reply(raw: Any) -> Reply:
    choice = raw.choices[0]
    return Reply(
        text=visible_text(choice.message.content),
        tool_calls=tuple(_tool_call(index, call) for index, call in enumerate(choice.message.tool_calls or ())),
        usage=_parse_usage(raw),
        finish_reason=str(choice.finish_reason or "stop"),
    )


def _tool_call(index: int, call: Any) -> ToolCall:
    number = str(call.id or f"call_{index}").encode("utf-8", "replace").decode()
    return ToolCall(number, str(call.function.name or ""), str(call.function.arguments or ""))


def _parse_usage(raw: Any) -> Usage:
    counted = getattr(raw, "usage", None)
    cost = Decimal(str(raw._hidden_params.get("response_cost") or 0))
    cost = round(min(cost, _MOST_COST), _COST_DIGITS) if cost.is_finite() else Decimal(0)
    return Usage(
        prompt_tokens=_bounded_count(getattr(counted, "prompt_tokens", 0)),
        completion_tokens=_bounded_count(getattr(counted, "completion_tokens", 0)),
        cost_usd=max(cost, Decimal(0)),
    )


def _bounded_count(tokens: object) -> int:
    return min(max(0, tokens), _MOST_TOKENS) if isinstance(tokens, int) else 0


def _key_in(variable: str) -> str:
    if not is_possible(variable):
        raise ModelError(ModelErrorKind.NO_KEY, f"{variable!r} can't be the environment variable of a model's key.")
    key = os.environ.get(variable, "").strip()
    if not key:
        sentence = f"The environment variable {variable}, which should hold the model's key, is not set."
        raise ModelError(ModelErrorKind.NO_KEY, sentence)
    return key


def load_litellm() -> Any:
    """LiteLLM, loaded at the first call (6 s of CPU, 200 MB); at a worker's start, so that no refinement waits."""
    with _one_at_a_time:
        return _import_litellm()


@functools.cache
def _import_litellm() -> Any:
    os.environ.update(_ENVIRONMENT)
    with nothing_collected(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # LiteLLM's and its typed dicts' own; a worker's operator can't act on them
        from app.llm.wire import bound_every_client

        bound_every_client()
        import litellm

        break_habits(litellm)
        _register_offline(litellm)
        _make_first_calls(litellm)
    warnings.filterwarnings("ignore", "Pydantic serializer warnings", UserWarning)  # they quote what the model said
    return litellm


def _make_first_calls(litellm: Any) -> None:
    """Two calls to nobody, one of which fails, to load the hundreds of modules that LiteLLM leaves for its first.

    Threads that load them at once meet half-imported ones (httpx2, by way of tools): 64 of 800 calls failed so.
    """
    import httpx
    from openai import OpenAI

    from app.llm.openai_chat import ChatClient

    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": ""}}
    body = {"id": "", "object": "chat.completion", "created": 0, "model": "", "choices": [choice]}
    answers = iter([httpx.Response(200, json=body), httpx.Response(500)])
    nobody = httpx.Client(transport=httpx.MockTransport(lambda _: next(answers)))
    tool = {"type": "function", "function": {"name": "nothing", "parameters": {"type": "object", "properties": {}}}}
    asked: dict[str, Any] = {
        "messages": [{"role": "user", "content": ""}],
        "tools": [tool],
        "max_retries": 0,
        "_skip_mcp_handler": True,
    }
    with OpenAI(api_key=PLACEHOLDER_KEY, base_url="http://127.0.0.1", http_client=nobody, max_retries=0) as plain:
        client = ChatClient(plain)
        litellm.completion(model="openai/gpt-4o", client=client, **asked)
        with contextlib.suppress(litellm.InternalServerError):
            litellm.completion(model="openai/gpt-4o", client=client, **asked)


def _register_offline(litellm: Any) -> None:
    class Offline(litellm.CustomLLM):  # type: ignore[misc]
        """Answers LiteLLM's custom-provider call by rule."""

        def completion(self, messages: list[dict[str, Any]], optional_params: dict[str, Any], **_: Any) -> Any:
            reply = offline.answer(messages, optional_params.get("tools") or ())
            choice = litellm.Choices(finish_reason=reply.finish_reason, message=litellm.Message(**reply.as_message()))
            return litellm.ModelResponse(model=OFFLINE_MODEL, choices=[choice], usage=litellm.Usage())

    litellm.custom_provider_map.append({"provider": offline.PROVIDER, "custom_handler": Offline()})
