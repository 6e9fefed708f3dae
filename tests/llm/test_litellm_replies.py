"""What models answer, through LiteLLM and real HTTP, as one Reply."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from app.llm.client import ModelError, ModelErrorKind, Usage
from app.llm.litellm import PLACEHOLDER_KEY, LiteLLMClients
from tests.llm.conftest import DELETE, Ask
from tests.support.model_server import ModelServer, ServerReply, completion, recorded, text, tool_calls


def test_it_hands_on_the_text_the_usage_and_the_finish_reason(ask: Ask) -> None:
    reply = ask(text("YES, gladly.", finish_reason="length"))
    assert (reply.text, reply.finish_reason, reply.tool_calls) == ("YES, gladly.", "length", ())
    assert reply.usage == Usage(prompt_tokens=12, completion_tokens=3)


def test_it_asks_once_with_the_messages_and_the_tools_as_they_were_given(server: ModelServer, ask: Ask) -> None:
    messages = [{"role": "system", "content": "You are Ada."}, {"role": "user", "content": "Begin."}]
    ask(text("No."), messages=messages, tools=[DELETE])
    (request,) = server.requests
    assert request.path == "/v1/chat/completions"
    assert request.body == {"model": "scripted", "messages": messages, "tools": [DELETE]}


def test_it_sends_no_tools_where_none_are_given(server: ModelServer, ask: Ask) -> None:
    ask(text("YES"))
    assert "tools" not in server.requests[0].body


def test_parallel_calls_keep_their_order_ids_and_raw_arguments(ask: Ask) -> None:
    reply = ask(tool_calls(("delete_memory", {"id": 3}), ("search_memories", '{"query": "sea'), ("delete_memory", "")))
    assert [call.name for call in reply.tool_calls] == ["delete_memory", "search_memories", "delete_memory"]
    assert [call.arguments for call in reply.tool_calls] == ['{"id": 3}', '{"query": "sea', ""]
    assert len({call.id for call in reply.tool_calls}) == 3
    assert reply.finish_reason == "tool_calls"


def test_a_conversation_with_calls_and_results_goes_back_to_the_server(server: ModelServer, ask: Ask) -> None:
    reply = ask(tool_calls(("delete_memory", {"id": 3}), content="One is redundant."), tools=[DELETE])
    result = {"role": "tool", "tool_call_id": reply.tool_calls[0].id, "content": '{"type": "deleted"}'}
    ask(text("Done."), messages=[{"role": "user", "content": "Begin."}, reply.as_message(), result], tools=[DELETE])
    assert server.requests[1].messages[1:] == [reply.as_message(), result]


def test_arguments_sent_as_an_object_become_their_json_text(ask: Ask) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "delete_memory", "arguments": {"id": 3}}}
    reply = ask(completion({"content": None, "tool_calls": [call]}, finish_reason="tool_calls"))
    assert json.loads(reply.tool_calls[0].arguments) == {"id": 3}


@pytest.mark.parametrize("claimed", [3 * 10**9, 10**30])
def test_a_count_of_tokens_beyond_belief_is_taken_for_ten_million(ask: Ask, claimed: int) -> None:
    usage = {"prompt_tokens": claimed, "completion_tokens": claimed, "total_tokens": claimed}
    reply = ask(completion({"content": "YES"}, usage=usage))
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (10_000_000, 10_000_000)
    assert reply.usage.cost_usd <= 10_000


def test_half_a_character_in_the_id_of_a_call_goes_back_as_a_question_mark(server: ModelServer, ask: Ask) -> None:
    call = {"id": "c\ud800", "type": "function", "function": {"name": "delete_memory", "arguments": '{"id": 3}'}}
    reply = ask(completion({"content": None, "tool_calls": [call]}, finish_reason="tool_calls"))
    assert reply.tool_calls[0].id == "c?"
    result = {"role": "tool", "tool_call_id": reply.tool_calls[0].id, "content": "{}"}
    ask(text("Done."), messages=[{"role": "user", "content": "Begin."}, reply.as_message(), result], tools=[DELETE])
    assert server.requests[1].messages[1]["tool_calls"][0]["id"] == "c?"


@pytest.mark.parametrize("reason", ["", None])
def test_an_empty_finish_reason_with_calls_is_a_good_reply(ask: Ask, reason: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "delete_memory", "arguments": '{"id": 3}'}}
    reply = ask(completion({"content": None, "tool_calls": [call]}, finish_reason=reason))
    assert [each.arguments for each in reply.tool_calls] == ['{"id": 3}']


@pytest.mark.parametrize(
    "arguments", ['{"id": ' + "9" * 5000 + "}", "[" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000]
)
def test_arguments_that_no_reader_of_json_takes_still_reach_the_loop(ask: Ask, arguments: str) -> None:
    reply = ask(tool_calls(("delete_memory", arguments)), tools=[DELETE])
    assert [call.arguments == arguments for call in reply.tool_calls] == [True]
    assert reply.as_message()["tool_calls"][0]["function"]["arguments"] == "{}"


def test_a_call_without_id_or_name_still_reaches_the_loop(ask: Ask) -> None:
    call = {"id": None, "type": "function", "function": {"name": None, "arguments": "{}"}}
    reply = ask(completion({"content": None, "tool_calls": [call]}))
    assert reply.tool_calls[0].name == ""
    assert reply.tool_calls[0].id


@pytest.mark.parametrize(
    ("message", "visible"),
    [
        ({"content": None}, ""),
        ({"content": ""}, ""),
        ({"content": None, "refusal": "I will not."}, ""),
        ({"content": "YES", "reasoning_content": "hidden"}, "YES"),
        ({"content": "YES", "reasoning": "hidden"}, "YES"),
        ({"content": [{"type": "text", "text": "YES, "}, {"type": "text", "text": "I do."}]}, "YES, I do."),
        ({"content": [{"type": "thinking", "thinking": "hidden"}, {"type": "text", "text": "NO"}]}, "NO"),
        ({"content": []}, ""),
    ],
)
def test_only_the_visible_text_counts(ask: Ask, message: dict[str, Any], visible: str) -> None:
    assert ask(completion(message)).text == visible


@pytest.mark.parametrize("usage", [{}, {"prompt_tokens": None, "completion_tokens": None}, {"prompt_tokens": -5}])
def test_odd_usage_counts_as_nothing(ask: Ask, usage: dict[str, Any]) -> None:
    assert ask(completion({"content": "YES"}, usage=usage)).usage == Usage()


def test_the_cost_is_exact_where_the_price_is_known(ask: Ask) -> None:
    reply = ask(text("YES"), model="openai/gpt-4o")
    assert reply.usage.cost_usd == Decimal("0.00006")


def test_an_unknown_name_at_an_own_address_is_taken_for_a_compatible_server(server: ModelServer, ask: Ask) -> None:
    assert ask(text("YES"), model="qwen/qwen3").text == "YES"
    assert server.requests[0].body["model"] == "qwen/qwen3"


ANTHROPIC_REPLY = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-5",
    "content": [
        {"type": "thinking", "thinking": "hidden", "signature": "s"},
        {"type": "text", "text": "One is redundant."},
        {"type": "tool_use", "id": "toolu_1", "name": "delete_memory", "input": {"id": 3}},
        {"type": "tool_use", "id": "toolu_2", "name": "delete_memory", "input": {}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 500, "output_tokens": 20},
}


def test_an_anthropic_model_answers_in_the_same_form(server: ModelServer, ask: Ask) -> None:
    base = server.base_url.removesuffix("/v1")
    reply = ask(recorded(ANTHROPIC_REPLY), model="anthropic/claude-sonnet-4-5", api_base=base, tools=[DELETE])
    assert reply.text == "One is redundant."
    assert [(call.id, call.arguments) for call in reply.tool_calls] == [("toolu_1", '{"id": 3}'), ("toolu_2", "{}")]
    assert reply.finish_reason == "tool_calls"
    assert reply.usage.total_tokens == 520
    assert reply.usage.cost_usd > 0
    assert server.requests[0].path == "/v1/messages"


def test_a_compressed_reply_is_read(ask: Ask) -> None:
    import gzip

    plain = text("YES")
    packed = ServerReply(gzip.compress(plain.body), 200, {**plain.headers, "Content-Encoding": "gzip"})
    assert ask(packed).text == "YES"


def test_the_named_variable_holds_the_key(server: ModelServer, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADA_KEY", " sk-of-ada\n")
    ask(text("YES"), api_key_env="ADA_KEY")
    assert server.requests[0].headers["authorization"] == "Bearer sk-of-ada"


@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_named_variable_that_is_not_set_is_said_before_anything_is_asked(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ADA_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("ADA_KEY", value)
    with pytest.raises(ModelError, match="ADA_KEY") as caught:
        LiteLLMClients().for_model("openai/scripted", api_key_env="ADA_KEY")
    assert caught.value.kind is ModelErrorKind.NO_KEY


@pytest.mark.parametrize("name", ["WHETSTONE_MASTER_KEY_FILE", "DATABASE_URL", "REDIS_URL", "A B", "$(id)"])
def test_a_secret_of_whetstone_itself_never_serves_as_a_models_key(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("os").environ, name, "postgresql://user:password@db")
    with pytest.raises(ModelError) as caught:
        LiteLLMClients().for_model("openai/scripted", api_base="http://127.0.0.1:1", api_key_env=name)
    assert caught.value.kind is ModelErrorKind.NO_KEY
    assert "password" not in str(caught.value)


@pytest.mark.parametrize(("model", "header"), [("openai/x", "authorization"), ("anthropic/claude-x", "x-api-key")])
def test_the_operators_usual_key_never_goes_to_an_own_address_unasked(
    server: ModelServer, ask: Ask, monkeypatch: pytest.MonkeyPatch, model: str, header: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-operator")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-operator")
    reply = recorded(ANTHROPIC_REPLY) if model.startswith("anthropic") else text("YES")
    ask(reply, model=model)
    assert server.requests[0].headers[header].removeprefix("Bearer ") == PLACEHOLDER_KEY


def test_without_address_and_key_it_says_that_a_key_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ModelError) as caught:
        LiteLLMClients().for_model("openai/gpt-4o").complete([{"role": "user", "content": "?"}], timeout=5)
    assert caught.value.kind is ModelErrorKind.NO_KEY


@pytest.mark.parametrize("model", ["no-such-model", "nobody/knows", "whetstone/online", ""])
def test_a_name_that_nobody_knows_is_said_so(model: str) -> None:
    with pytest.raises(ModelError) as caught:
        LiteLLMClients().for_model(model).complete([{"role": "user", "content": "?"}], timeout=5)
    assert caught.value.kind is ModelErrorKind.NOT_FOUND
    assert not caught.value.worth_retrying


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("openai/gpt-4o", 128_000),
        ("gpt-4o", 128_000),
        ("anthropic/claude-sonnet-4-5", 200_000),
        ("openai/scripted", None),
        ("groq/gpt-4o", None),
    ],
)
def test_the_context_window_is_told_where_it_is_known(model: str, window: int | None) -> None:
    assert LiteLLMClients().for_model(model).context_window() == window


def test_the_offline_model_answers_by_the_same_path_and_costs_nothing() -> None:
    client = LiteLLMClients().for_model("whetstone/offline")
    reply = client.complete([{"role": "user", "content": "Question: refinement\nDo you want to?"}], timeout=5)
    assert reply.text.startswith("YES.")
    assert reply.usage == Usage()
    call = client.complete([{"role": "user", "content": "<ledger>\n</ledger>"}], [DELETE], timeout=5).tool_calls[0]
    assert call.name == "complete_refinement"


def test_a_client_can_be_closed_twice_and_before_it_was_used() -> None:
    client = LiteLLMClients().for_model("openai/scripted", api_base="http://127.0.0.1:1/v1")
    client.close()
    client.close()


def test_clients_share_one_tls_context(ask: Ask) -> None:
    from app.llm.wire import own_connections, shared_tls_context

    ask(text("YES"))
    with own_connections() as first, own_connections() as second:
        contexts = [wire._transport._pool._ssl_context for wire in (first, second)]  # type: ignore[attr-defined]
    assert contexts == [shared_tls_context()] * 2


def test_the_first_calls_of_many_threads_make_one_tls_context(monkeypatch: pytest.MonkeyPatch) -> None:
    from app.llm import wire

    made, real = list[int](), wire._make_tls_context.__wrapped__
    slow = functools.cache(lambda: (time.sleep(0.05), made.append(1), real())[-1])
    monkeypatch.setattr(wire, "_make_tls_context", slow)
    with ThreadPoolExecutor(8) as pool:
        contexts = [each.result() for each in [pool.submit(wire.shared_tls_context) for _ in range(8)]]
    assert (len(made), len(set(map(id, contexts)))) == (1, 1)


def test_importing_the_adapter_imports_neither_litellm_nor_httpx() -> None:
    code = "import sys, app.llm.litellm, app.llm.retry; print({'litellm', 'httpx', 'openai'} & set(sys.modules))"
    root = Path(__file__).resolve().parents[2]
    ran = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"
