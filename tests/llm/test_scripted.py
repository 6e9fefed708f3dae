"""The scripted client that other tests rely on."""

from __future__ import annotations

import pytest

from app.llm.client import ModelClient, ModelClients, ModelError, ModelErrorKind
from tests.support.scripted import ScriptedClient, ScriptedClients, ScriptEmpty, call, calls, say


def test_it_says_what_was_written_in_order_and_records_what_it_was_asked() -> None:
    scripted = ScriptedClient(say("YES"), call("delete_memory", id=3), context_window=8000)
    client: ModelClient = scripted
    question = {"role": "user", "content": "?"}
    assert client.complete([question], timeout=5).text == "YES"
    (made,) = client.complete([question], [{"type": "function"}], timeout=7).tool_calls
    assert (made.name, made.arguments) == ("delete_memory", '{"id": 3}')
    assert [(asked.timeout, len(asked.tools)) for asked in scripted.asked] == [(5, 0), (7, 1)]
    assert client.context_window() == 8000


def test_what_it_recorded_does_not_change_with_the_conversation() -> None:
    client, messages = ScriptedClient(say("YES")), [{"role": "user", "content": "?"}]
    client.complete(messages, timeout=5)
    messages.append({"role": "assistant", "content": "YES"})
    assert len(client.asked[0].messages) == 1


def test_errors_are_raised_and_functions_are_asked() -> None:
    client = ScriptedClient(ModelError(ModelErrorKind.TIMEOUT, "Late."), lambda messages: say(f"{len(messages)} seen"))
    with pytest.raises(ModelError, match="Late"):
        client.complete([], timeout=5)
    assert client.complete([{}, {}], timeout=5).text == "2 seen"


def test_an_empty_script_is_said_clearly() -> None:
    with pytest.raises(ScriptEmpty, match="was asked 1 times; its script has no reply left"):
        ScriptedClient().complete([], timeout=5)


def test_parallel_calls_have_ids_of_their_own_and_may_be_malformed() -> None:
    reply = calls(("delete_memory", {"id": 1}), ("delete_memory", "{not json"), text="Two.")
    assert [made.arguments for made in reply.tool_calls] == ['{"id": 1}', "{not json"]
    assert len({made.id for made in reply.tool_calls}) == 2
    assert reply.finish_reason == "tool_calls"


def test_all_models_have_one_client() -> None:
    client = ScriptedClient()
    clients: ModelClients = (scripted := ScriptedClients(client))
    assert clients.for_model("ada", api_base="http://x") is clients.for_model("openai/anything") is client
    assert scripted.made == ["ada", "openai/anything"]
    with pytest.raises(ScriptEmpty, match="grace"):
        ScriptedClients().for_model("grace")
