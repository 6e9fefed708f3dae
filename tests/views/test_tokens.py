"""Tokens on screen: made and rotated with the token in that one answer, revoked for good, and never shown again."""

from __future__ import annotations

import re
from html import unescape

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from app.extensions import db, writing
from app.history.verify import verify
from app.keys.agent_keys import open_keys
from app.keys.bearer import authenticate
from app.keys.forgetting import forget_agent
from app.keys.provision import provision_keys
from app.models import COMMAND_LINE, Account, Agent, AgentToken, TokenRequest
from app.silo import parse_token
from tests.support.factories import make_agent
from tests.support.scripted import say
from tests.tokens.conftest import think
from tests.views.conftest import Browser, toast_of
from tests.views.test_live import Looker, parts, send


@pytest.fixture
def agent(app: Flask) -> Agent:
    return make_agent("wren", model_id="openai/gpt-5")


def address(agent: Agent, *parts_: str) -> str:
    return "/".join((f"/agents/{agent.id}/tokens", *parts_))


def ask(admin: Browser, agent: Agent, name: str = "laptop", *scopes: str) -> str:
    """Press the button; returns the token, which opens nothing yet."""
    return token_in(admin.post(address(agent), {"name": name, "scope": list(scopes or ("read",))}))


def agree(token: str, reply: str = "YES") -> None:
    """The agent's model answers."""
    query = db.select(TokenRequest).where(TokenRequest.public_id == id_of(token))
    think(db.session.scalars(query).one(), say(reply))
    db.session.rollback()


def make(admin: Browser, agent: Agent, name: str = "laptop", *scopes: str) -> str:
    """Press the button, and let the agent agree."""
    token = ask(admin, agent, name, *scopes)
    agree(token)
    return token


def token_in(answer: TestResponse) -> str:
    assert answer.status_code == 201
    found = re.search(r'<code id="token">([^<]+)</code>', answer.text)
    assert found
    return unescape(found[1])


def id_of(token: str) -> str:
    return token.split("_")[1]


def rows(admin: Browser, agent: Agent) -> list[dict[str, object]]:
    shown = admin.get(f"{address(agent)}.json").json
    assert shown is not None
    found: list[dict[str, object]] = shown["tokens"]
    return found


def test_a_token_that_is_asked_for_is_shown_once_and_works_with_the_yes(admin: Browser, agent: Agent) -> None:
    answer = admin.post(address(agent), {"name": " lap  top ", "scope": ["decide", "read"]})
    token = token_in(answer)

    assert f"curl -H &#39;Authorization: Bearer {token}&#39; http://localhost/api/v1/me" in answer.text
    assert "It works once wren agrees; it is being asked now" in answer.text
    assert "no-store" in answer.headers["Cache-Control"]
    assert authenticate(token) is None
    assert rows(admin, agent) == []
    page = admin.get(address(agent)).text
    assert "wren is being asked. The token opens nothing until it agrees." in page
    agree(token)

    assert [(row["name"], row["scopes"], row["id"]) for row in rows(admin, agent)] == [
        ("lap top", ["read", "decide"], id_of(token))
    ]
    page = admin.get(address(agent)).text
    assert "wren said YES. The token works." in page
    assert '<td data-label="Shown to">admin-1@example.org</td>' in page
    assert id_of(token) in page
    assert token not in page
    assert token.split("_", 2)[2] not in page
    parsed = parse_token(token)
    assert parsed is not None
    assert open_keys(agent, parsed[1]).content_hash("tea") == open_keys(agent).content_hash("tea")


def test_a_no_is_told_with_the_rest_and_the_command_of_the_server(admin: Browser, agent: Agent) -> None:
    token = ask(admin, agent)
    agree(token, "NO")

    assert authenticate(token) is None
    page = admin.get(address(agent)).text
    assert "wren declined. The token never works." in page
    assert "It is not asked again before" in page
    assert "./whetstone agents token create wren --name NAME" in page
    assert "Ask wren" not in page
    refused = admin.post(address(agent), {"name": "again", "scope": ["read"]})
    assert refused.status_code == 409
    assert 'id="token"' not in refused.text


def test_an_agent_without_a_mind_is_said_to_be_one_and_rotates_on_the_server_only(admin: Browser, app: Flask) -> None:
    rules = make_agent("rules", model_id="whetstone/offline")
    page = admin.get(address(rules)).text
    assert "there is nobody who could agree" in page
    assert "./whetstone agents token create rules --name NAME" in page
    assert "Ask rules" not in page
    refused = admin.post(address(rules), {"name": "laptop", "scope": ["read"]})
    assert refused.status_code == 409
    assert "can&#39;t agree to anything: make the token on the server." in refused.text
    assert db.session.scalar(db.select(db.func.count(TokenRequest.id))) == 0


def test_a_second_click_asks_no_second_question(admin: Browser, agent: Agent) -> None:
    ask(admin, agent)
    again = admin.post(address(agent), {"name": "laptop", "scope": ["read"]})
    assert again.status_code == 409
    assert "is being asked about your token &#39;laptop&#39; already" in again.text
    assert db.session.scalar(db.select(db.func.count(TokenRequest.id))) == 1
    assert "data-once" in admin.get(address(agent)).text


def test_a_question_is_taken_back_and_the_token_never_works(
    admin: Browser, auditor: Browser, neighbour: Browser, agent: Agent
) -> None:
    token = ask(admin, agent)
    request = db.session.scalars(db.select(TokenRequest.id)).one()
    path = f"/token-requests/{request}/withdraw"
    assert auditor.post(path).status_code == 403
    assert neighbour.post(path).status_code == 404
    assert "Take it back" not in auditor.get(address(agent)).text
    answer = admin.press(path)

    assert "The request for the token laptop is taken back." in toast_of(answer)
    assert "It was taken back by admin-1@example.org" in answer.text
    assert "It has ended already." in toast_of(admin.press(path))
    assert authenticate(token) is None


def test_the_agent_s_page_and_the_overview_say_what_waits(admin: Browser, agent: Agent) -> None:
    token = ask(admin, agent)
    assert "wren is being asked for a token:" in admin.get(f"/agents/{agent.id}").text
    assert "Token requests: 1 waiting" in admin.get("/").text
    agree(token)
    assert "is being asked for a token:" not in admin.get(f"/agents/{agent.id}").text
    assert "Token requests" not in admin.get("/").text


def test_the_first_token_is_said_to_have_been_shown_until_it_is_replaced(admin: Browser, app: Flask) -> None:
    made = admin.post("/agents", {"name": "ada", "model_id": "openai/gpt-5", "core_token_budget": "5000"})
    token = token_in(made)
    agent = db.session.scalars(db.select(Agent).where(Agent.name == "ada")).one()
    provision_keys(agent.id)
    words = "was shown to admin-1@example.org when the agent was made"

    assert "it was shown to admin-1@example.org, until it is replaced" in made.text
    assert f"Its first token {words}" in admin.get(f"/agents/{agent.id}").text
    assert f"The token “first” {words}" in admin.get(address(agent)).text
    assert admin.get(f"/agents/{agent.id}.json").json["first_token_shown_to"] == "admin-1@example.org"
    admin.post(address(agent, id_of(token), "revoke"))
    assert words not in admin.get(f"/agents/{agent.id}").text
    assert admin.get(f"/agents/{agent.id}.json").json["first_token_shown_to"] is None


@pytest.mark.parametrize(
    ("sent", "sentence"),
    [
        ({"name": "laptop"}, "A token without a scope could do nothing"),
        ({"name": "laptop", "scope": ["read", "rule"]}, "'rule' is no scope"),
        ({"name": " ", "scope": ["read"]}, "The name must have 1 to 80 characters"),
        ({"name": "x" * 81, "scope": ["read"]}, "The name must have 1 to 80 characters"),
    ],
)
def test_what_can_not_be_a_token_is_said_beside_the_form_and_none_is_made(
    admin: Browser, agent: Agent, sent: dict[str, object], sentence: str
) -> None:
    answer = admin.post(address(agent), sent)

    assert answer.status_code == 422
    assert sentence in unescape(answer.text)
    assert "Nothing was asked." in answer.text
    assert 'id="token"' not in answer.text
    assert rows(admin, agent) == []


def test_a_revoked_token_is_out_at_once_and_stays_in_the_list(admin: Browser, agent: Agent) -> None:
    token, other = make(admin, agent), make(admin, agent, "production")
    answer = admin.press(address(agent, id_of(token), "revoke"))

    assert authenticate(token) is None
    assert authenticate(other) is not None
    assert "The token laptop is revoked." in toast_of(answer)
    assert "Undo" not in toast_of(answer)
    assert "No active token:" not in answer.text
    assert [(row["name"], row["revoked_at"] is None) for row in rows(admin, agent)] == [
        ("production", True),
        ("laptop", False),
    ]
    again = admin.press(address(agent, id_of(token), "revoke"))
    assert "was revoked already" in toast_of(again)
    assert verify().ok


def test_the_page_says_when_the_last_one_is_gone(admin: Browser, agent: Agent) -> None:
    assert "No tokens" in admin.get(address(agent)).text
    token = make(admin, agent)
    assert "No active token:" not in admin.get(address(agent)).text
    answer = admin.press(address(agent, id_of(token), "revoke"))
    assert "No active token:" in answer.text
    assert "No active token:" in admin.get(address(agent)).text


def test_a_rotation_is_a_question_and_the_old_one_is_out_with_the_yes(admin: Browser, agent: Agent) -> None:
    old = make(admin, agent, "laptop", "read", "decide")
    answer = admin.press(address(agent, id_of(old), "rotate"))
    new = token_in(answer)

    assert f"in place of <code>{id_of(old)}</code>" in answer.text
    assert authenticate(old) is not None
    assert authenticate(new) is None
    agree(new)
    assert authenticate(old) is None
    held = authenticate(new)
    assert held is not None
    assert (held.name, held.scopes) == ("laptop", ["read", "decide"])
    assert admin.post(address(agent, id_of(old), "rotate")).status_code == 409
    assert len(rows(admin, agent)) == 2


def test_revoking_and_rotating_ask_first(admin: Browser, agent: Agent) -> None:
    make(admin, agent)
    page = admin.get(address(agent)).text
    assert page.count("hx-confirm=") == 2


def test_auditors_see_the_list_and_no_button(admin: Browser, auditor: Browser, agent: Agent) -> None:
    token = make(admin, agent)
    page = auditor.get(address(agent)).text
    assert id_of(token) in page
    assert "Ask wren" not in page
    assert "rotate" not in page.lower().replace("rotate or revoke", "")
    assert auditor.post(address(agent), {"name": "x", "scope": "read"}).status_code == 403


def test_a_token_of_another_agent_or_account_is_not_found(admin: Browser, neighbour: Browser, agent: Agent) -> None:
    token, other = make(admin, agent), make_agent("void")
    for person, whose in ((admin, other), (neighbour, agent)):
        for act in ("revoke", "rotate"):
            assert person.post(address(whose, id_of(token), act)).status_code == 404
    with writing():
        elsewhere = Account.create("Elsewhere")
    theirs = make_agent("eve", account_id=elsewhere.id)
    assert admin.post(address(theirs), {"name": "x", "scope": "read"}).status_code == 404
    assert authenticate(token) is not None
    assert db.session.scalar(db.select(db.func.count(AgentToken.id))) == 1
    assert db.session.scalar(db.select(db.func.count(TokenRequest.id))) == 1


def test_a_forgotten_agent_gets_none(admin: Browser, agent: Agent) -> None:
    forget_agent(agent.id, by=COMMAND_LINE)
    assert "Ask wren" not in admin.get(address(agent)).text
    answer = admin.post(address(agent), {"name": "x", "scope": ["read"]})
    assert answer.status_code == 409
    assert "was forgotten" in answer.text


def test_the_list_is_live_and_carries_no_secret(web: Flask, admin: Browser, agent: Agent) -> None:
    token = make(admin, agent)
    found = parts(send(web, f"tokens:{agent.id}", Looker()))

    assert list(found) == ["token-requests", "agent-tokens"]
    assert id_of(token) in found["agent-tokens"]
    assert token not in found["agent-tokens"]
    assert f"/events?topic=tokens%3A{agent.id}" in admin.get(address(agent)).text


def test_the_audit_log_tells_of_them_and_leads_back(admin: Browser, agent: Agent) -> None:
    token = make(admin, agent)
    admin.post(address(agent, id_of(token), "revoke"))
    page = admin.get(f"/agents/{agent.id}/audit").text

    assert "Created an API token" in page
    assert "Revoked an API token" in page
    assert f'href="{address(agent)}">token {id_of(token)}' in page
    assert token not in page
