"""What LiteLLM does unasked, switched off once it is loaded: logs, and work whose results nobody reads."""

from __future__ import annotations

import functools
import importlib
import logging
import operator
import threading
from collections.abc import Mapping
from typing import Any

_PROMPTS_IN_LOGS = ("LiteLLM", "LiteLLM Proxy", "LiteLLM Router", "openai")
_ADDRESSES_IN_LOGS = ("httpx", "httpcore", "botocore", "boto3", "urllib3")

_BRIDGE = "litellm.completion_extras.litellm_responses_transformation.handler"
_OF_THE_BRIDGE = (
    "litellm.proxy.openai_files_endpoints.common_utils",
    "litellm.responses.mcp.litellm_proxy_mcp_handler",
)

_LONGEST_NAME, _MOST_UNKNOWN = 200, 1_000
"""Of models without a price that are remembered."""


def break_habits(litellm: Any) -> None:
    """Of the library, which only `litellm.py` imports."""
    _leave_arguments_alone(litellm)
    _leave_out_what_nobody_reads(litellm)
    _leave_out_what_never_comes(litellm)
    _read_names_of_providers_at_once(litellm)
    _load_the_bridge_by_one_thread()
    _silence_logs(litellm)


def _leave_arguments_alone(litellm: Any) -> None:
    """LiteLLM reads the arguments of calls as JSON, and fails where they nest too deep or hold too many digits.

    The Knife refuses those in words that the model can read.
    """
    made = litellm.litellm_core_utils.llm_response_utils.convert_dict_to_response
    for name in ("handle_invalid_parallel_tool_calls", "_handle_invalid_parallel_tool_calls"):
        setattr(made, name, lambda tool_calls: tool_calls)


def _leave_out_what_nobody_reads(litellm: Any) -> None:
    """The event loop that LiteLLM makes in each call to time it, and its search for why a call cost nothing.

    And a model without a price is looked for in the list of prices once, no more eleven times a call.
    """
    service, logging_of_calls = litellm._service_logger.ServiceLogging, litellm.litellm_core_utils.litellm_logging
    service.service_success_hook = service.service_failure_hook = lambda *_, **__: None
    logging_of_calls.Logging._record_zero_cost_diagnostic = lambda *_, **__: None
    look_up = _remember_unknown(litellm.utils.get_model_info_helper, litellm.utils.ModelNotMappedError)
    litellm.main.get_model_info_helper = litellm.utils.get_model_info_helper = look_up


def _leave_out_what_never_comes(litellm: Any) -> None:
    """Each of these loads a web framework, or walks through what is asked, for what we never send.

    Files of LiteLLM's proxy in messages, its guardrails, patterns in the parameters of tools. And the tokens of Claude
    2 are kept once: as the text that a tokenizer is made of, not as a dictionary of it too.
    """
    litellm.main.update_messages_with_model_file_ids = lambda messages, *_, **__: messages
    litellm.litellm_core_utils.exception_mapping_utils._is_guardrail_block = lambda _: False
    requests = litellm.llms.openai.chat.gpt_transformation.OpenAIGPTConfig
    requests._sanitized_tools_update_for_openai = _add_nothing
    del litellm.utils.json_data


def _add_nothing(*_: object) -> Mapping[str, object]:
    return {}


def _read_names_of_providers_at_once(litellm: Any) -> None:
    """Each call reads all 169 of them twice, each through a descriptor in Python of the standard library's."""
    litellm.types.utils.LlmProviders.value = property(operator.attrgetter("_value_"))


def _load_the_bridge_by_one_thread() -> None:
    """Models that are asked by OpenAI's newer protocol load 270 modules at their first call, MCP's among them."""
    bridge, loading = importlib.import_module(_BRIDGE).ResponsesToCompletionBridgeHandler, threading.Lock()
    complete = bridge.completion

    @functools.wraps(complete)
    def complete_once_loaded(*given: Any, **named: Any) -> Any:
        with loading:
            for name in _OF_THE_BRIDGE:
                importlib.import_module(name)
        return complete(*given, **named)

    bridge.completion = complete_once_loaded


def _remember_unknown(look_up: Any, not_found: type[Exception]) -> Any:
    """Names that OpenAI's list does not have. LiteLLM remembers only what it found; other providers may be asked."""
    unknown = set[str]()

    @functools.wraps(look_up)
    def look_up_once(model: str, custom_llm_provider: str | None = None, **more: Any) -> Any:
        if custom_llm_provider != "openai":
            return look_up(model, custom_llm_provider, **more)
        if model in unknown:
            raise not_found(model)
        try:
            return look_up(model, custom_llm_provider, **more)
        except not_found:
            if len(model) <= _LONGEST_NAME and len(unknown) < _MOST_UNKNOWN:  # servers name models as they like
                unknown.add(model)
            raise

    return look_up_once


def _silence_logs(litellm: Any) -> None:
    """No prompt and no reply may reach a log or a terminal, at any level."""
    litellm.telemetry = False
    litellm.set_verbose = False
    litellm.suppress_debug_info = True
    litellm.turn_off_message_logging = True
    for name in _PROMPTS_IN_LOGS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    for name in _ADDRESSES_IN_LOGS:
        logging.getLogger(name).setLevel(logging.WARNING)
