"""What is switched off in LiteLLM: nothing that we ask, get or pay changes by it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from app.llm.litellm import load_litellm
from app.refinement.functions import specifications
from tests.llm.conftest import DELETE
from tests.support.model_server import ModelServer, recorded


@pytest.mark.parametrize(
    "cleaning", ["flatten_combinators_and_drop_non_python_regex_patterns", "drop_non_python_regex_patterns"]
)
def test_litellm_would_leave_our_tools_as_they_are(cleaning: str) -> None:
    from litellm.llms.openai.chat import gpt_transformation as module

    for tool in specifications():
        assert module.tool_with_sanitized_parameters(tool, getattr(module, cleaning)) == tool


def test_names_of_providers_are_read_as_before() -> None:
    providers = load_litellm().types.utils.LlmProviders
    assert [each.value for each in providers] == [str.__str__(each) for each in providers]
    assert (providers.OPENAI.value, providers("openai")) == ("openai", providers.OPENAI)


def test_a_worker_loads_no_web_framework_and_not_all_of_the_sdk() -> None:
    """70 MB of each worker process."""
    code = """
        from app.llm.litellm import load_litellm
        litellm = load_litellm()
        never = {"mcp", "fastapi", "starlette.applications", "openai.resources", "litellm.proxy._types"}
        print(never & set(sys.modules), hasattr(litellm.utils, "json_data"))
    """
    assert _run(code) == "set() False"


def test_threads_that_ask_by_the_newer_protocol_at_once_all_get_their_answer(server: ModelServer) -> None:
    """Its first call loads hundreds of modules: none may meet them half loaded."""
    server.always(recorded(RESPONSE))
    code = f"""
        from concurrent.futures import ThreadPoolExecutor
        from app.llm.litellm import LiteLLMClients, load_litellm
        load_litellm()
        def ask(_):
            client = LiteLLMClients().for_model("openai/gpt-5-pro", api_base={server.base_url!r})
            return client.complete([dict(role="user", content="Do you want to?")], [{DELETE!r}], timeout=60).text
        with ThreadPoolExecutor(12) as pool:
            print(set(pool.map(ask, range(24))))
    """
    assert _run(code) == "{'YES'}"
    assert {request.path for request in server.requests} == {"/v1/responses"}


RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1772272944,
    "status": "completed",
    "model": "gpt-5-pro",
    "output": [
        {
            "type": "message",
            "id": "msg_1",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "YES", "annotations": []}],
        }
    ],
    "usage": {"input_tokens": 12, "output_tokens": 3, "total_tokens": 15},
    "parallel_tool_calls": True,
    "tools": [],
    "tool_choice": "auto",
}


def _run(code: str) -> str:
    """In a process of its own, where nothing is loaded yet."""
    lines = ["import sys", *(line.removeprefix("        ") for line in code.splitlines())]
    root = Path(__file__).resolve().parents[2]
    ran = subprocess.run([sys.executable, "-c", "\n".join(lines)], cwd=root, capture_output=True, text=True, check=True)
    return ran.stdout.strip()
