"""Who may not: other agents, dead and odd tokens, tokens without the scope, people with their cookies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.routing import Rule

from app.api.operation import Operation
from app.api.operations import OPERATIONS
from app.extensions import writing
from app.keys.forgetting import forget_agent
from app.keys.tokens import issue_token, revoke_token
from app.models import COMMAND_LINE, Account, Agent
from app.models.key import SCOPES
from app.models.user import ADMIN, AUDITOR, OWNER, SITE_ADMIN
from tests.api.conftest import Door, issue, open_door
from tests.api.looking import NOBODY, assert_refused, unchanged
from tests.api.telling import CONVERSATION, ask_for_change, ask_for_token, ask_to_look, prove_statement
from tests.support.factories import HOME, make_agent
from tests.support.pages import Site, serving
from tests.views.conftest import Browser, browser
from tests.views.test_hardening import assert_closed

pytestmark = pytest.mark.once

NEEDED = {
    "whoami": "read",
    "save_memory": "write",
    "list_memories": "read",
    "search_memories": "read",
    "get_memory": "read",
    "erase_memory": "decide",
    "get_context": "read",
    "hand_in_conversation": "write",
    "get_conversation": "read",
    "list_settings": "read",
    "get_setting": "read",
    "get_setting_versions": "read",
    "update_setting": "author",
    "reset_setting": "author",
    "list_setting_requests": "read",
    "decide_setting_request": "decide",
    "request_refinement": "decide",
    "list_refinements": "read",
    "get_refinement": "read",
    "list_access_requests": "read",
    "get_access_request": "read",
    "decide_access_request": "decide",
    "revoke_access": "decide",
    "get_access_log": "read",
    "list_token_requests": "read",
    "decide_on_token_request": "decide",
    "list_tokens": "read",
    "make_token": "decide",
    "revoke_own_token": "decide",
    "list_own_receipts": "read",
    "get_receipt": "read",
    "export_bundle": "read",
    "import_memories": "write",
    "get_import": "read",
}
"""Written down once more, apart from the product."""

BODIES: dict[str, Any] = {
    "save_memory": {"content": "Of a stranger."},
    "hand_in_conversation": {"messages": CONVERSATION},
    "update_setting": {"value": "Of a stranger."},
    "decide_access_request": {"decision": "grant", "reason": "Why not."},
    "decide_on_token_request": {"decision": "grant", "reason": "Why not."},
    "decide_setting_request": {"decision": "grant", "reason": "Why not."},
    "make_token": {"name": "of a stranger", "scopes": ["decide"]},
    "import_memories": {"data": '{"content": "Of a stranger."}', "format": "jsonl"},
}

QUERIES = {
    "search_memories": {"query": "Ezra"},
    "list_access_requests": {"status": "all"},
    "list_token_requests": {"status": "all"},
    "list_setting_requests": {"status": "all"},
}

SECRET = "Ezra hides the key under the blue stone."


@pytest.fixture
def known(door: Door) -> dict[str, object]:
    return something_of_each_kind(door)


def something_of_each_kind(door: Door) -> dict[str, object]:
    """That an address can name, all of one agent."""
    request_id = ask_to_look(door.agent)
    memory = door.save(SECRET)["id"]
    refinement = door("POST", "/refinements", {}).json["id"]
    conversation = door("POST", "/conversations", {"messages": CONVERSATION}).json["id"]
    brought = door("POST", "/imports", {"data": SECRET, "format": "text"}).json["id"]
    return {
        "memory_id": memory,
        "refinement_id": refinement,
        "request_id": request_id,
        "token_request_id": ask_for_token(door.agent, "decide"),
        "setting_request_id": ask_for_change(door.agent),
        "public_id": issue(door.agent).split("_")[1],
        "receipt_id": prove_statement(door.agent),
        "conversation_id": conversation,
        "import_id": brought,
        "field": "system_prompt",
    }


NOTHING: dict[str, object] = {
    "memory_id": 987_654_321,
    "refinement_id": NOBODY,
    "request_id": NOBODY,
    "token_request_id": NOBODY,
    "setting_request_id": NOBODY,
    "public_id": "0000000000000000",
    "receipt_id": "987654321",
    "conversation_id": NOBODY,
    "import_id": NOBODY,
    "field": "system_prompt",
}


@pytest.fixture(params=["same account", "another account"])
def stranger(request: pytest.FixtureRequest, client: FlaskClient, door: Door) -> Door:
    if request.param == "same account":
        return open_door(client, "wren")
    with writing():
        account = Account.create("Next door")
    return open_door(client, "wren", account_id=account.id)


def call(door: Door, operation: Operation, values: dict[str, object], **more: Any) -> Any:
    path = operation.path.format(**values)
    return door(operation.method, path, BODIES.get(operation.name), query_string=QUERIES.get(operation.name), **more)


def named() -> list[Operation]:
    return [each for each in OPERATIONS if each.at is not None and each.at.name != "field"]


def test_another_agent_s_things_are_as_if_they_were_not_there(
    door: Door, stranger: Door, known: dict[str, object]
) -> None:
    assert len(named()) >= 7
    for operation in named():
        assert operation.at is not None
        theirs = unchanged(lambda operation=operation: call(stranger, operation, known))
        missing = call(stranger, operation, NOTHING)
        assert theirs.status_code == missing.status_code == 404, operation.name
        name = operation.at.name
        assert theirs.text.replace(str(known[name]), "ID") == missing.text.replace(str(NOTHING[name]), "ID")
        assert dict(theirs.headers) | {"Content-Length": ""} == dict(missing.headers) | {"Content-Length": ""}
        assert call(door, operation, known).status_code in (200, 409), operation.name


def test_no_list_of_one_agent_holds_anything_of_another(door: Door, stranger: Door, known: dict[str, object]) -> None:
    own = stranger.save("I am Wren.")
    for operation in OPERATIONS:
        if operation.method != "GET" or operation.at is not None:
            continue
        answer = call(stranger, operation, {})
        assert answer.status_code == 200, operation.name
        for said in (SECRET, "blue stone", str(known["refinement_id"]), str(known["request_id"])):
            assert said not in answer.text, operation.name
    listed = stranger.get("/memories")
    assert [each["id"] for each in listed["memories"]] == [own["id"]]
    assert stranger.get("/memories/search?query=Ezra")["count"] == 0
    assert stranger.get("/refinements")["refinements"] == []
    assert stranger.get("/access-requests?status=all")["requests"] == []


def test_another_agent_s_marks_are_no_cursors(stranger: Door, known: dict[str, object]) -> None:
    theirs, missing = (stranger("GET", f"/memories?after={each['memory_id']}") for each in (known, NOTHING))
    assert_refused(theirs, 422, "invalid", "after")
    assert theirs.text == missing.text
    theirs, missing = (stranger("GET", f"/refinements?before={each['refinement_id']}") for each in (known, NOTHING))
    assert_refused(theirs, 422, "invalid", "before")
    assert theirs.text == missing.text


def test_what_one_agent_saved_is_no_duplicate_of_another_s(stranger: Door, door: Door) -> None:
    first, second = door.save(SECRET), stranger.save(SECRET)
    assert second["created"]
    assert first["id"] != second["id"]


@pytest.mark.parametrize(
    "at", ["%00", "x", "%EF%BF%BD", "'%20OR%201=1", "..", "0", "-1", str(2**63), "9" * 60, "a" * 300]
)
def test_an_id_of_no_form_is_not_there(door: Door, known: dict[str, object], at: str) -> None:
    for operation in named():
        assert operation.at is not None
        answer = unchanged(lambda operation=operation: call(door, operation, {operation.at.name: at}))
        assert_refused(answer, 404, "not_found")


def test_every_operation_has_the_scope_that_stands_here() -> None:
    assert {each.name: str(each.scope) for each in OPERATIONS} == NEEDED


@pytest.mark.parametrize("scope", SCOPES)
def test_a_token_may_what_its_scope_says_and_nothing_else(door: Door, known: dict[str, object], scope: str) -> None:
    limited = Door(door.client, door.agent, issue(door.agent, (scope,)))
    for operation in OPERATIONS:
        if NEEDED[operation.name] == scope:
            assert call(limited, operation, known).status_code in (*operation.statuses, 409), operation.name
            continue
        for more in ({}, {"headers": {"Idempotency-Key": operation.name}}):
            answer = unchanged(lambda operation=operation, more=more: call(limited, operation, known, **more))
            assert_refused(answer, 403, "scope_missing", NEEDED[operation.name], scope)


def test_settings_of_a_bundle_need_the_scope_to_author(door: Door) -> None:
    limited = Door(door.client, door.agent, issue(door.agent, ("write",)))
    bundle = door("GET", "/export").text
    answer = unchanged(lambda: limited("POST", "/imports", {"data": bundle, "with_settings": True}))
    assert_refused(answer, 403, "scope_missing", "author")


def test_what_was_answered_to_another_scope_is_not_repeated_to_this_one(door: Door) -> None:
    said, headers = {"content": SECRET}, {"Idempotency-Key": "one"}
    assert door("POST", "/memories", said, headers=headers).status_code == 201
    limited = Door(door.client, door.agent, issue(door.agent, ("read",)))
    assert_refused(limited("POST", "/memories", said, headers=headers), 403, "scope_missing")


def odd(token: str) -> list[str | None]:
    """Authorization headers that name nobody."""
    _, public, secret = token.split("_", 2)
    swapped = secret[:-1] + ("A" if secret[-1] != "A" else "B")
    return [
        None, "", "Bearer", "Bearer ", token, f"Basic {token}", f"Token {token}", f"Bearer{token}",
        f"Bearer {token}{token}", f"Bearer {token} {token}", f"Bearer {token}, Bearer {token}", f"Bearer {token},",
        f"Bearer {token.upper()}", f"Bearer {token[:-1]}", f"Bearer {token}x", f"Bearer whet_{public}_{swapped}",
        f"Bearer whet_{'0' * 16}_{secret}", f"Bearer whet_{public}_", f'Bearer "{token}"', f"Bearer {token}\x01",
        f"Bearer {'x' * 20_000}", "Bearer whet_%00_%00", f"Bearer {token}é", f"Digest username={token}",
    ]  # fmt: skip


def test_an_odd_token_names_nobody_and_is_not_logged(
    client: FlaskClient, door: Door, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    capfd.readouterr()
    for header in odd(door.token):
        headers = {"Authorization": header} if header is not None else {}
        answer = unchanged(lambda headers=headers: client.get("/api/v1/me", headers=headers))
        assert_refused(answer, 401, "unauthorized", "Bearer TOKEN")
        assert answer.headers["WWW-Authenticate"] == 'Bearer realm="whetstone"'
    said = "".join(capfd.readouterr()) + caplog.text
    assert said.count("token refused") == len(odd(door.token))
    secret = door.token.split("_", 2)[2]
    assert secret[:10] not in said
    assert secret[:10].upper() not in said


def test_a_token_in_the_address_or_the_body_is_none(client: FlaskClient, door: Door) -> None:
    for name in ("token", "access_token", "auth_token", "api_key"):
        assert client.get(f"/api/v1/me?{name}={door.token}").status_code == 401
        said = {"content": "x", name: door.token}
        assert client.post("/api/v1/memories", json=said).status_code == 401
        assert client.get("/api/v1/me", headers={"Authentication-Token": door.token}).status_code == 401


def test_a_revoked_token_opens_nothing_from_then_on(door: Door) -> None:
    door.get("/me")
    second = Door(door.client, door.agent, issue(door.agent))
    with writing():
        agent = Agent.lock(door.agent.id)
        revoke_token(agent, door.token.split("_")[1], by=COMMAND_LINE)
    for operation in OPERATIONS:
        values = NOTHING | {"field": "system_prompt"}
        answer = unchanged(lambda operation=operation, values=values: call(door, operation, values))
        assert_refused(answer, 401, "unauthorized", "revoked")
    assert second.get("/me")["token"]["id"] == second.token.split("_")[1]


def test_a_forgotten_agent_s_token_opens_nothing(door: Door, known: dict[str, object]) -> None:
    forget_agent(door.agent.id, by=COMMAND_LINE)
    for operation in OPERATIONS:
        answer = unchanged(lambda operation=operation: call(door, operation, known))
        assert_refused(answer, 401, "unauthorized")


def test_a_token_whose_keys_are_on_their_way_is_asked_to_wait(client: FlaskClient) -> None:
    agent = make_agent("young")
    with writing():
        token = issue_token(Agent.lock(agent.id), by=COMMAND_LINE)
    young = Door(client, agent, token)
    assert young.get("/me")["name"] == "young"
    waits = ["get_context", "list_memories", "save_memory", "search_memories", "get_memory", "decide_access_request"]
    waits += ["export_bundle"]
    values = NOTHING | {"request_id": ask_to_look(agent)}
    for operation in OPERATIONS:
        if operation.name in waits:
            answer = unchanged(lambda operation=operation: call(young, operation, values))
            assert_refused(answer, 503, "keys_not_ready", "Try again")
            assert answer.headers["Retry-After"] == "1"
    answer = unchanged(lambda: young("POST", "/refinements", {}, headers={"Idempotency-Key": "one"}))
    assert_refused(answer, 503, "keys_not_ready")


def door_routes(web: Flask) -> list[tuple[Rule, str, str]]:
    """Rule, method and an address."""
    found = []
    for rule in web.url_map.iter_rules():
        if rule.endpoint.startswith("api.") and rule.endpoint != "api.openapi":
            built = rule.build({name: NOTHING[name] for name in rule.arguments})
            assert built is not None
            found += [(rule, method, built[1]) for method in (rule.methods or set()) - {"OPTIONS"}]
    return found


def test_nobody_who_is_signed_in_is_anybody_here(web: Flask, door: Door, known: dict[str, object]) -> None:
    people = [browser(web, role) for role in (OWNER, ADMIN, AUDITOR, SITE_ADMIN)] + [Browser(web, None)]
    routes = door_routes(web)
    assert len({rule.endpoint for rule, _, _ in routes}) == len(OPERATIONS)
    for person in people:
        for rule, method, path in routes:
            body = BODIES.get(rule.endpoint.removeprefix("api."), {})
            headers = {"X-CSRFToken": person.token, "HX-Request": "true"}
            answer = person.client.open(path, method=method, json=body, headers=headers)
            assert answer.status_code == 401, f"{method} {path}"
            assert answer.content_type == "application/problem+json"
            assert_closed(answer.headers, path)
            assert answer.headers["Cache-Control"] == "no-store"
    before = unchanged(lambda: people[0].client.get("/api/v1/me"))
    assert before.status_code == 401


def test_no_form_of_another_site_does_anything(web: Flask, door: Door) -> None:
    """What a browser sends by itself, cookies and simple bodies, is not what counts here."""
    owner = browser(web, OWNER)
    simple = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x")
    for kind in simple:
        for path in ("/memories", "/refinements", "/imports", "/conversations"):
            answer = unchanged(
                lambda path=path, kind=kind: owner.client.post(
                    f"/api/v1{path}",
                    data=b'{"content": "x"}',
                    content_type=kind,
                    headers={"Origin": "https://evil.example"},
                )
            )
            assert answer.status_code == 401
            assert "Access-Control-Allow-Origin" not in answer.headers
    answer = owner.client.options("/api/v1/memories", headers={"Access-Control-Request-Method": "POST"})
    assert not [name for name, _ in answer.headers if name.startswith("Access-Control")]


def test_a_token_counts_beside_a_cookie_and_gets_none(web: Flask, door: Door) -> None:
    owner = browser(web, OWNER)
    signed_in = Door(owner.client, door.agent, door.token)
    assert signed_in.save("Beside a cookie.")["created"]
    for path in ("/me", "/context"):
        assert "Set-Cookie" not in door("GET", path).headers
    assert door("GET", "/nowhere").headers.get("Set-Cookie") is None


@pytest.fixture
def site(web: Flask) -> Iterator[Site]:
    with serving(web) as made:
        yield made


def test_the_tools_are_closed_to_people_and_odd_tokens_too(web: Flask, site: Site, door: Door) -> None:
    owner = browser(web, OWNER, account_id=HOME)
    assert owner.user is not None
    said = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "get_context", "arguments": {}}}
    accepts = {"Accept": "application/json, text/event-stream"}
    for method in ("POST", "GET", "DELETE", "PUT", "OPTIONS", "HEAD"):
        for more in ({"Cookie": site.cookie_of(owner.user)}, {"Authorization": f"Basic {door.token}"}):
            answer = httpx.request(method, f"{site.url}/mcp", json=said, headers=accepts | more)
            assert answer.status_code in (401, 405), method
            assert_closed(answer.headers, f"{method} /mcp")
    for header in odd(door.token):
        if header is None or not header.isascii() or not header.isprintable() or len(header) > 8000:
            continue
        answer = httpx.post(f"{site.url}/mcp", json=said, headers=accepts | {"Authorization": header.strip()})
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
        assert answer.headers["WWW-Authenticate"] == 'Bearer realm="whetstone"'
    twice = [("Authorization", f"Bearer {door.token}x"), ("Authorization", f"Bearer {door.token}"), *accepts.items()]
    for path in ("/mcp", "/api/v1/memories"):
        assert httpx.post(f"{site.url}{path}", json=said, headers=twice).status_code == 401, path


def test_the_tools_answer_closed_to_an_agent_too(site: Site, door: Door) -> None:
    said = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {"Accept": "application/json, text/event-stream", "Authorization": f"Bearer {door.token}"}
    for method, body in (("POST", said), ("POST", {}), ("PUT", said), ("DELETE", said)):
        answer = httpx.request(method, f"{site.url}/mcp", json=body, headers=headers)
        assert answer.status_code < 500
        assert_closed(answer.headers, f"{method} /mcp")
        assert "no-store" in answer.headers["Cache-Control"]


@pytest.mark.parametrize("path", ["/memories/abc", "/nothing", "/"])
def test_an_address_that_is_none_says_where_the_addresses_are(door: Door, path: str) -> None:
    assert_refused(door("GET", path), 404, "not_found", "/api/v1/openapi.json")
