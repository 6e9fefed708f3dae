"""MCP, spoken by the official client: over HTTP to a real server, and over stdio to a real process."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest
from flask import Flask
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from app.api.operations import OPERATIONS
from app.config import ROOT, Settings
from app.extensions import writing
from app.keys.tokens import revoke_token
from app.models import Agent
from app.values.actor import COMMAND_LINE
from tests.api.conftest import Door, issue
from tests.api.telling import ask_for_change, ask_for_token, ask_to_look, everything, prove_statement
from tests.support.pages import Site, serving

pytestmark = pytest.mark.once

Connect = Callable[[str], Any]


@pytest.fixture
def site(web: Flask) -> Iterator[Site]:
    with serving(web) as made:
        yield made


@pytest.fixture(params=["http", "stdio"])
def connect(request: pytest.FixtureRequest, site: Site, settings: Settings) -> Connect:
    """Opens a client that came with a token."""
    return over_http(site) if request.param == "http" else over_stdio(settings)


def over_http(site: Site) -> Connect:
    @asynccontextmanager
    async def open_client(token: str) -> AsyncIterator[Client]:
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=30) as http,
            Client(streamable_http_client(f"{site.url}/mcp", http_client=http)) as client,
        ):
            yield client

    return open_client


def over_stdio(settings: Settings) -> Connect:
    @asynccontextmanager
    async def open_client(token: str) -> AsyncIterator[Client]:
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "WHETSTONE_DATA_DIR": str(settings.data),
            "DATABASE_URL": settings.database_url,
            "WHETSTONE_TOKEN": token,
        }
        server = StdioServerParameters(command=sys.executable, args=["-m", "app", "mcp"], env=environment)
        async with Client(stdio_client(server)) as client:
            yield client

    return open_client


def speak(connect: Connect, token: str, talk: Callable[[Client], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with connect(token) as client:
            return await talk(client)

    return anyio.run(main)


def test_a_client_finds_every_operation_with_a_description_and_can_do_each(connect: Connect, door: Door) -> None:
    asked = ask_to_look(door.agent), ask_for_token(door.agent), ask_for_change(door.agent), prove_statement(door.agent)

    async def talk(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {operation.name for operation in OPERATIONS}
        for tool in tools.values():
            assert len(tool.description or "") > 25
            takes = tool.input_schema
            assert takes["additionalProperties"] is False
            assert set(list(takes["properties"])[: len(takes["required"])]) == set(takes["required"]), tool.name
            assert all(each.get("description") for each in takes["properties"].values()), tool.name
        done = set()
        async for name, arguments in everything(client, *asked):
            result = await client.call_tool(name, arguments)
            assert not result.is_error, (name, result.content)
            assert result.structured_content is not None
            done.add(name)
        assert done == set(tools)

    speak(connect, door.token, talk)


def test_what_it_says_is_what_rest_says(site: Site, door: Door) -> None:
    door.save("The kettle is blue.")
    result = speak(over_http(site), door.token, lambda client: client.call_tool("get_context", {}))

    assert result.structured_content == door.get("/context")


def test_a_refusal_is_a_result_that_a_model_can_act_on(connect: Connect, door: Door) -> None:
    async def talk(client: Client) -> list[Any]:
        return [
            await client.call_tool("update_setting", {"field": "refinement_threshold", "value": "0.9 please"}),
            await client.call_tool("get_memory", {"memory_id": 4711}),
            await client.call_tool("save_memory", {"content": " "}),
        ]

    threshold, unknown, blank = speak(connect, door.token, talk)
    assert all(each.is_error for each in (threshold, unknown, blank))
    assert "0.50 to 1.00" in threshold.content[0].text
    assert unknown.content[0].text == "not_found: You have no active memory 4711."
    assert "blank" in blank.content[0].text


@pytest.mark.parametrize(
    ("tool", "given", "said"),
    [
        ("save_memory", {}, "content: it is missing. Nothing was written."),
        ("save_memory", {"content": 5}, "content: it must be text. Nothing was written."),
        (
            "save_memory",
            {"content": "s3cret", "type": "cor"},
            "type: it must be 'core' or 'journal'. Nothing was written.",
        ),
        (
            "save_memory",
            {"content": "x", "constitutional": True},
            "constitutional: unknown; there may be content, type, tags. Nothing was written.",
        ),
        ("save_memory", {"content": "x", "tags": "vow"}, "tags: it must be a list. Nothing was written."),
        ("get_memory", {"id": 1}, "memory_id: it is missing; id: unknown; there may be memory_id."),
        ("get_memory", {"memory_id": "one"}, "memory_id: it must be a whole number."),
        ("list_memories", {"limit": 0}, "limit: it must be greater than or equal to 1."),
        ("list_memories", {"limit": True}, "limit: it must be a whole number."),
        ("whoami", {"name": "wren"}, "name: unknown; there may be nothing."),
        (
            "update_setting",
            {"field": "system_prompt", "value": "  "},
            "The system_prompt is blank. Reset it to use the default again. Nothing was changed.",
        ),
    ],
)
def test_what_a_model_gets_wrong_is_refused_in_rest_s_own_words(
    site: Site, door: Door, tool: str, given: dict[str, Any], said: str
) -> None:
    refused = speak(over_http(site), door.token, lambda client: client.call_tool(tool, given))

    assert refused.is_error
    assert refused.content[0].text == f"invalid: {said}"
    assert door.get("/memories")["memories"] == []


def test_a_tool_takes_what_models_send_instead_of_a_list_or_of_nothing(site: Site, door: Door) -> None:
    async def talk(client: Client) -> list[Any]:
        return [
            await client.call_tool("save_memory", {"content": "tea", "type": None, "tags": '["vow"]'}),
            await client.call_tool("list_memories", {"type": None, "after": None, "limit": "5"}),
            await client.call_tool("update_setting", {"field": "system_prompt", "value": '{"I am": "Ezra"}'}),
        ]

    saved, listed, written = (each.structured_content for each in speak(over_http(site), door.token, talk))
    assert (saved["type"], saved["tags"]) == ("core", ["vow"])
    assert [each["id"] for each in listed["memories"]] == [saved["id"]]
    assert written["effective"] == '{"I am": "Ezra"}'


def test_a_token_without_the_scope_is_told_which_one_it_lacks(site: Site, door: Door) -> None:
    token = issue(door.agent, ("read",))
    result = speak(over_http(site), token, lambda client: client.call_tool("save_memory", {"content": "tea"}))

    assert result.is_error
    assert result.content[0].text.startswith("scope_missing: This needs the scope write; this token has read.")


@pytest.mark.parametrize("token", ["x", "nonsense", "whet_0123456789abcdef_" + "a" * 43])
def test_without_a_live_token_nothing_is_said_at_all(site: Site, token: str, capfd: pytest.CaptureFixture[str]) -> None:
    said = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    answer = httpx2.post(f"{site.url}/mcp", json=said, headers=headers)

    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="whetstone"'
    assert answer.json()["code"] == "unauthorized"
    captured = capfd.readouterr()
    assert not token or token not in captured.out + captured.err


def test_a_revoked_token_is_refused_from_the_next_call_on(site: Site, door: Door) -> None:
    async def talk(client: Client) -> Any:
        await client.call_tool("whoami", {})
        await anyio.to_thread.run_sync(lambda: _revoke(site.flask, door))
        return await client.call_tool("whoami", {})

    with pytest.raises(Exception, match=r"401|nauthorized|failed|error"):
        speak(over_http(site), door.token, talk)


def test_stdio_says_in_a_sentence_that_it_has_no_token(settings: Settings) -> None:
    import subprocess

    environment = {**os.environ, "PYTHONPATH": str(ROOT), "WHETSTONE_DATA_DIR": str(settings.data)}
    environment.pop("WHETSTONE_TOKEN", None)
    done = subprocess.run(
        [sys.executable, "-m", "app", "mcp"], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "WHETSTONE_TOKEN" in done.stderr
    assert done.stdout == ""


def _revoke(flask: Flask, door: Door) -> None:
    public_id = door.token.split("_")[1]
    with flask.app_context(), writing():
        agent = Agent.lock(door.agent.id)
        revoke_token(agent, public_id, by=COMMAND_LINE)
