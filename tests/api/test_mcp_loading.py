"""The SDK of MCP loads beside the first pages, and a call that comes before it is there waits."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import suppress

import httpx2
import pytest
from flask import Flask

from app.api.mcp_endpoint import McpEndpoint
from app.config import ROOT
from tests.api.conftest import Door

LIST_TOOLS = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


def client_of(endpoint: McpEndpoint, token: str) -> httpx2.AsyncClient:
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    transport = httpx2.ASGITransport(endpoint, raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, headers=headers, base_url="http://whetstone", timeout=30)


def test_a_call_that_comes_before_the_tools_are_there_waits_and_is_answered(web: Flask, door: Door) -> None:
    async def call() -> httpx2.Response:
        endpoint = McpEndpoint(web)
        async with client_of(endpoint, door.token) as client:
            asking = asyncio.create_task(client.post("/mcp", json=LIST_TOOLS))
            done, _ = await asyncio.wait({asking}, timeout=0.3)
            assert not done
            running = asyncio.create_task(endpoint.run())
            answer = await asking
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            return answer

    answer = asyncio.run(call())

    assert answer.status_code == 200, answer.text
    assert "save_memory" in answer.text


def test_a_call_is_answered_where_the_tools_can_t_be_loaded(
    web: Flask, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(flask: Flask) -> None:
        raise ImportError

    monkeypatch.setattr("app.api.mcp_endpoint._load_tools", fail)

    async def call() -> int:
        endpoint = McpEndpoint(web)
        with pytest.raises(ImportError):
            await endpoint.run()
        async with client_of(endpoint, door.token) as client:
            return (await client.post("/mcp", json=LIST_TOOLS)).status_code

    assert asyncio.run(call()) == 500


def test_the_web_process_begins_without_the_sdk() -> None:
    code = "import sys, app.processes.asgi; print(sorted({'mcp', 'mcp_types', 'tasks.refinement'} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert loaded.stdout == "['tasks.refinement']\n"
