"""The silo at the agents' door: whatever is sent, well or badly, stands unsealed in no table, file, log or queue."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from flask import Flask
from redis import Redis

from app import Part, create_app
from app.config import Settings
from app.extensions import db
from app.processes.broker import EmbeddedBroker
from tests.api.conftest import Door, open_door
from tests.api.telling import ask_to_look
from tests.support.canary import assert_nowhere, assert_nowhere_at_rest, canary
from tests.support.clock import FakeClock
from tests.support.pages import serving
from tests.support.workers import broker_of

Heard = Callable[[], bytes]


@pytest.fixture
def heard(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Heard:
    """Everything that was logged and printed so far, at any level."""
    caplog.set_level(logging.DEBUG)
    return lambda: (caplog.text + "".join(capfd.readouterr())).encode()


def right(request_id: str) -> Iterator[tuple[str, str, Any]]:
    """Every call that takes content, done well; a bundle and a file of memories among them."""
    said = canary("sent")
    yield "POST", "/memories", {"content": said}
    yield "POST", "/memories", {"content": f"{said} in the journal", "type": "journal"}
    yield "POST", "/memories", {"content": said}
    yield "POST", "/conversations", {"messages": [{"role": "user", "content": said}]}
    yield "POST", "/imports", {"data": said, "format": "text"}
    yield "POST", "/imports", {"data": json.dumps({"content": said}), "format": "jsonl"}
    memories = [{"content": said, "type": "core"}]
    yield "POST", "/imports", {"data": json.dumps({"format": "whetstone-bundle/1", "memories": memories})}
    yield "POST", f"/access-requests/{request_id}/decision", {"decision": "deny", "reason": said}
    yield "POST", "/refinements", {}


def wrong(request_id: str) -> Iterator[tuple[str, str, Any]]:
    """The same done badly: content where it does not belong."""
    said = canary("sent")
    yield "POST", "/memories", {"content": said, said: said}
    yield "POST", "/memories", {"content": said * 500}
    yield "POST", "/memories", {"content": f"{said}\x00"}
    yield "POST", "/memories", {"content": said, "type": said}
    yield "POST", "/memories", {"content": said, "tags": said}
    yield "POST", "/memories", {"content": said, "tags": [{said: said}]}
    yield "POST", "/memories", {"content": [said]}
    yield "POST", "/conversations", {"messages": said}
    yield "POST", "/conversations", {"messages": [{"role": said, "content": said}]}
    yield "POST", "/conversations", {"messages": [{"role": "user", "content": said, said: said}]}
    yield "POST", "/imports", {"data": f'{{"content": "{said}', "format": "jsonl"}
    yield "POST", "/imports", {"data": json.dumps({"content": said, said: said}), "format": "jsonl"}
    yield "POST", "/imports", {"data": said, "format": said}
    yield "POST", "/imports", {"data": said}
    yield "POST", f"/access-requests/{request_id}/decision", {"decision": said, "reason": said}
    yield "POST", f"/access-requests/{request_id}/decision", {"decision": "deny", "reason": said * 200}
    yield "POST", f"/access-requests/{said}/decision", {"decision": "deny", "reason": said}
    yield "POST", "/refinements", {"mode": said}
    yield "PUT", f"/settings/{said}", {"value": said}
    yield "PUT", "/settings/refinement_threshold", {"value": said}
    yield "PUT", "/settings/system_prompt", {"value": said * 500}
    yield "PUT", "/settings/name", {"value": said * 5}
    yield "GET", "/memories", {said: said}
    yield "GET", "/memories", {"after": said}
    yield "GET", "/memories", {"type": said}
    yield "GET", "/refinements", {"before": said}
    yield "GET", "/access-log", {"before": said}


def send(door: Door, method: str, path: str, said: Any, **more: Any) -> Any:
    if method == "GET":
        return door(method, path, query_string=said, **more)
    return door(method, path, data=json.dumps(said, ensure_ascii=False).encode(), **more)


def test_nothing_that_an_agent_sends_lies_about_unsealed(app: Flask, door: Door, heard: Heard) -> None:
    request_id = ask_to_look(door.agent)
    for number, (method, path, said) in enumerate(wrong(request_id)):
        answer = send(door, method, path, said, headers={"Idempotency-Key": f"wrong {number}"})
        assert 400 <= answer.status_code < 500, (path, said)
        assert answer.content_type == "application/problem+json"
        assert_nowhere(answer.data + str(answer.headers).encode(), f"the refusal of {method} {number}")
    for number, (method, path, said) in enumerate(right(request_id)):
        answer = send(door, method, path, said, headers={"Idempotency-Key": f"right {number}"})
        assert answer.status_code in (200, 201, 202), (path, answer.text)
        if path != "/memories":
            assert_nowhere(answer.data, path)
    assert canary("sent") in door.get("/context")["core"][0]["content"]
    assert door.get("/memories/search", query_string={"query": canary("sent")})["count"] == 2

    assert_nowhere(heard(), "what was logged and printed")
    assert_nowhere_at_rest(app)


def test_no_other_agent_is_answered_with_any_of_it(door: Door) -> None:
    for method, path, said in right(ask_to_look(door.agent)):
        send(door, method, path, said)
    other = open_door(door.client, "wren")
    for path in ("/me", "/memories", "/context", "/settings", "/refinements", "/access-requests?status=all", "/export"):
        assert_nowhere(other("GET", path).data, path)
    before = other("GET", "/memories/search", query_string={"query": canary("sent")})
    assert before.json["count"] == 0


@pytest.fixture
def broker(settings: Settings) -> Iterator[EmbeddedBroker]:
    with broker_of(settings) as running:
        yield running


def test_the_broker_is_told_ids_and_the_server_logs_no_word(
    app: Flask, settings: Settings, broker: EmbeddedBroker, clock: FakeClock, heard: Heard
) -> None:
    """Through a real server, by REST and by tools, with a real broker that no worker empties."""
    web = create_app(settings, part=Part.WEB)
    web.extensions["clock"] = clock
    made = open_door(web.test_client(), "ezra")
    headers = {"Authorization": f"Bearer {made.token}", "Accept": "application/json, text/event-stream"}
    request_id = ask_to_look(made.agent)
    with serving(web) as site:
        for method, path, said in (*wrong(request_id), *right(request_id)):
            more = {"params": said} if method == "GET" else {"json": said}
            answer = httpx.request(method, f"{site.url}/api/v1{path}", headers=headers, **more)
            assert answer.status_code < 500, path
        for name, given in tools():
            call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": given}}
            answer = httpx.post(f"{site.url}/mcp", json=call, headers=headers)
            assert answer.status_code < 500, name
    with web.app_context():
        db.engine.dispose()
    with Redis.from_url(broker.url) as client:
        keys = [bytes(key) for key in client.scan_iter()]
        held = b"\n".join(key + b" " + (client.dump(key) or b"") for key in keys)
        waiting = [client.lrange(key, 0, -1) for key in keys if client.type(key) == b"list"]
    assert sum(map(len, waiting)) >= 5
    assert_nowhere(held + repr(waiting).encode(), "the broker")
    assert_nowhere(heard(), "what was logged and printed")
    assert_nowhere_at_rest(app)


def tools() -> Iterator[tuple[str, Any]]:
    """Calls of tools, right ones and wrong ones."""
    said = canary("sent")
    yield "save_memory", {"content": f"{said} by a tool"}
    yield "save_memory", {"content": [said], said: said}
    yield "save_memory", {said: said}
    yield "search_memories", {"query": said}
    yield "search_memories", {"query": said, "limit": said}
    yield "hand_in_conversation", {"messages": [{"role": "user", "content": said}]}
    yield "hand_in_conversation", {"messages": [{said: said}]}
    yield "get_memory", {"memory_id": said}
    yield "get_refinement", {"refinement_id": said}
    yield "import_memories", {"data": said, "format": "text"}
    yield "import_memories", {"data": said, "format": said}
    yield said, {said: said}
