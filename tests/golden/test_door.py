"""The agents' door: the OpenAPI document, and what every operation answers over REST and as an MCP tool."""

from __future__ import annotations

import json
import re
from typing import Any

from flask import Flask
from flask.testing import FlaskClient
from mcp.client import Client

from app.api.operations import OPERATIONS
from tests.api.conftest import Door, client, door
from tests.api.telling import CONVERSATION, ask_for_change, ask_for_token, ask_to_look, everything, prove_statement
from tests.api.test_mcp import over_http, speak
from tests.golden.conftest import Compare
from tests.golden.replaced import replaced_in_text
from tests.golden.test_twins import form_of
from tests.support.pages import serving

__all__ = ["client", "door"]


def test_the_openapi_document(client: FlaskClient, as_json: Compare) -> None:
    as_json({"openapi": form_of(client.get("/api/v1/openapi.json"))})


def test_every_operation_as_a_tool(web: Flask, door: Door, as_json: Compare) -> None:
    asked = ask_to_look(door.agent), ask_for_token(door.agent), ask_for_change(door.agent), prove_statement(door.agent)

    async def talk(client: Client) -> dict[str, Any]:
        forms: dict[str, Any] = {}
        for tool in (await client.list_tools()).tools:
            forms[f"tool {tool.name}"] = tool.model_dump(mode="json", exclude_none=True)
        async for name, arguments in everything(client, *asked):
            result = await client.call_tool(name, arguments)
            alike = sum(form.startswith(f"answer {name}") for form in forms)
            text = [json.loads(part.text) for part in result.content]
            forms[f"answer {name} {alike + 1}"] = {"structured": result.structured_content, "text": text}
        for name, arguments in REFUSED.items():
            result = await client.call_tool(name, arguments)
            assert result.is_error, name
            forms[f"refusal {name}"] = [part.text for part in result.content]
        return forms

    with serving(web) as site:
        forms = speak(over_http(site), door.token, talk)
    for operation in OPERATIONS:
        assert {f"tool {operation.name}", f"answer {operation.name} 1"} <= forms.keys()
    as_json(forms)


REFUSED: dict[str, dict[str, Any]] = {
    "get_memory": {"memory_id": 4711},
    "save_memory": {"content": " "},
    "update_setting": {"field": "refinement_threshold", "value": "0.9 please"},
    "get_refinement": {"refinement_id": "nothing"},
    "import_memories": {"data": ""},
}


def test_every_operation_over_rest(door: Door, as_json: Compare) -> None:
    forms: dict[str, Any] = {}

    asked: list[str] = []

    def do(method: str, path: str, json: Any = None, **more: Any) -> Any:
        asked.append(f"{method} {path.partition('?')[0]}")
        answer = door(method, path, json, **more)
        name = f"{method} {re.sub('[^a-z-]+', ' ', replaced_in_text(path.partition('?')[0])).strip()}"
        alike = sum(form.startswith(name) for form in forms)
        forms[f"{name} {alike + 1}"] = form_of(answer)
        return answer.json if answer.is_json else None

    do("GET", "/me")
    memory = do("POST", "/memories", {"content": "I promised to write on Sundays.", "tags": ["vow"]})
    do("POST", "/memories", {"content": "It rained.", "type": "journal"})
    do("GET", "/memories?type=core")
    do("GET", f"/memories/{memory['id']}")
    do("GET", "/memories/search?query=SUNDAYS")
    do("GET", "/context")
    slip = do("POST", "/memories", {"content": "Never mind."})
    do("POST", f"/memories/{slip['id']}/erase", {"reason": "It was never meant to be kept."})
    do("GET", f"/memories/{slip['id']}")
    conversation = do("POST", "/conversations", {"messages": CONVERSATION})
    do("GET", f"/conversations/{conversation['id']}")
    do("GET", "/settings")
    do("PUT", "/settings/system_prompt", {"value": "I am Ezra."})
    do("GET", "/settings/system_prompt")
    do("GET", "/settings/system_prompt/versions")
    do("DELETE", "/settings/system_prompt")
    setting_request_id = ask_for_change(door.agent)
    do("GET", "/setting-requests")
    do("POST", f"/setting-requests/{setting_request_id}/decision", {"decision": "grant", "reason": "It does rhyme."})
    refinement = do("POST", "/refinements", {})
    do("POST", "/refinements", {})
    do("GET", "/refinements")
    do("GET", f"/refinements/{refinement['id']}")
    request_id = ask_to_look(door.agent)
    do("GET", "/access-requests")
    do("GET", f"/access-requests/{request_id}")
    do("POST", f"/access-requests/{request_id}/decision", {"decision": "grant", "reason": "You asked kindly."})
    do("POST", f"/access-requests/{request_id}/revocation", {})
    do("GET", "/access-log")
    token_request_id = ask_for_token(door.agent)
    do("GET", "/token-requests")
    do("POST", f"/token-requests/{token_request_id}/decision", {"decision": "grant", "reason": "Come in."})
    do("GET", "/tokens")
    made = do("POST", "/tokens", {"name": "spare", "scopes": ["read"]})
    do("POST", f"/tokens/{made['id']}/revocation", {})
    do("GET", "/receipts?limit=3")
    do("GET", f"/receipts/{prove_statement(door.agent)}")
    do("GET", f"/receipts/{request_id}")
    bundle = do("GET", "/export")
    taken = do("POST", "/imports", {"data": json.dumps(bundle)})
    do("GET", f"/imports/{taken['id']}")
    do("GET", "/memories/4711")
    do("POST", "/memories", {"content": 5})
    do("POST", "/memories", None, data="{", headers={"Content-Type": "application/json"})
    do("GET", "/nowhere")
    do("PUT", "/settings/refinement_threshold", {"value": 2})
    stranger = door.client.get("/api/v1/me")
    forms["a stranger"] = form_of(stranger)

    for operation in OPERATIONS:
        address = f"{operation.method} {re.sub('{[a-z_]+}', '[^/]+', operation.path)}"
        assert any(re.fullmatch(address, each) for each in asked), address
    as_json(forms)
