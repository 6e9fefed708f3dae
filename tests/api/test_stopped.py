"""An agent whose rows were changed past the application, and a log that was cut: the door says so, and nothing else."""

from __future__ import annotations

from io import BytesIO

import httpx
import pytest
from flask import Flask
from flask.testing import FlaskClient

from app.keys import bearer
from tests.api.conftest import Door, open_door
from tests.api.telling import ask_to_look
from tests.history.going_back import count_entries
from tests.support.pages import serving
from tests.support.tampering import tamper
from tests.views.conftest import Browser
from tests.views.conftest import admin as admin

CUT_LOG = "DELETE FROM log_leaves WHERE position = (SELECT max(position) FROM log_leaves)"
OTHER_KEYS = "UPDATE agent_keys SET sealed = :sealed WHERE agent_id = :id"


@pytest.fixture
def other(client: FlaskClient) -> Door:
    return open_door(client, "wren")


@pytest.fixture(autouse=True)
def sound() -> None:
    """Nothing is sound here any more."""


def test_an_agent_that_was_stopped_is_told_why_and_others_go_on(door: Door, other: Door) -> None:
    assert tamper(OTHER_KEYS, sealed=b"mine", id=door.agent.id)

    answer = door("GET", "/memories")

    assert (answer.status_code, answer.content_type) == (503, "application/problem+json")
    assert answer.json["code"] == "agent_stopped"
    assert "The keys that are sealed for the agent are not those that were signed." in answer.json["detail"]
    assert "tell whoever runs this server" in answer.json["detail"]
    assert answer.headers["Retry-After"] == "60"
    assert other.get("/memories")["memories"] == []


def test_a_log_that_was_cut_stops_every_agent_over_rest_and_as_a_tool(web: Flask, door: Door, other: Door) -> None:
    assert door.get("/me")["name"] == "ezra"
    assert tamper(CUT_LOG) == 1

    for each in (door, other):
        answer = each("GET", "/me")
        assert (answer.status_code, answer.json["code"]) == (503, "log_broken")
        assert "nothing is lost by it" in answer.json["detail"]
        assert "restore" not in answer.json["detail"]

    with serving(web) as site:
        called = httpx.post(f"{site.url}/mcp", json={}, headers={"Authorization": f"Bearer {door.token}"})
    assert (called.status_code, called.json()["code"]) == (503, "log_broken")
    assert called.json()["detail"] == answer.json["detail"]


def test_a_page_that_needs_the_log_says_what_to_do(web: Flask, admin: Browser, door: Door) -> None:
    door.get("/me")
    assert tamper(CUT_LOG) == 1

    answer = admin.post(f"/agents/{door.agent.id}/imports", {"file": (BytesIO(b'{"content": "Rain."}'), "x.jsonl")})

    assert answer.status_code == 503
    assert "./whetstone restore accept" in answer.text
    assert "Traceback" not in answer.text


@pytest.mark.parametrize("purpose", ["data", "dedup"])
def test_a_key_that_does_not_open_though_it_is_the_one_that_was_signed_is_refused_before_anything_is_done(
    door: Door, monkeypatch: pytest.MonkeyPatch, purpose: str
) -> None:
    """That of the hashes, too, which a reader does without: at the door, in the words of the others."""
    request_id = ask_to_look(door.agent)
    assert tamper(f"{OTHER_KEYS} AND purpose = :purpose", sealed=b"mine", id=door.agent.id, purpose=purpose)
    monkeypatch.setattr(bearer, "check_wrapped", lambda *_: None)
    entries = count_entries()

    for answer in (
        door("POST", "/memories", {"content": "Ann likes tea.", "type": "core"}),
        door("POST", "/memories", {"content": "Ann likes tea.", "type": "journal"}),
        door("POST", "/refinements", {}, headers={"Idempotency-Key": "one"}),
        door("POST", f"/access-requests/{request_id}/decision", {"decision": "grant", "reason": "Yes."}),
    ):
        assert (answer.status_code, answer.json["code"]) == (503, "keys_not_ready")
        assert answer.headers["Retry-After"] == "1"

    assert count_entries() == entries
    assert door("GET", "/memories").status_code == (503 if purpose == "data" else 200)
