"""An agent answers at its own door what a human wants to change of its settings."""

from __future__ import annotations

import pytest

from app.extensions import writing
from app.history.verify import verify
from app.models import Agent, SettingsRequest
from tests.api.conftest import Door, client, door, issue
from tests.authoring.conftest import put, reload, wants
from tests.support.factories import make_agent, make_user, remember
from tests.support.rows import fresh

__all__ = ["client", "door"]

NEW = "You are Ezra, kindly."


@pytest.fixture
def request_(door: Door) -> SettingsRequest:
    door.save("Ann likes tea.")
    with writing():
        Agent.lock(door.agent.id).change(by=door.agent.as_actor, model_id="openai/scripted")
    made = wants(door.agent, make_user("ann@example.org", "admin"), system_prompt=NEW).request
    assert made is not None
    return made


def test_it_sees_what_waits_and_a_worker_applies_its_grant(door: Door, request_: SettingsRequest) -> None:
    (shown,) = door.get("/setting-requests")["requests"]
    assert (shown["id"], shown["status"], shown["changes"]) == (request_.id, "pending", {"system_prompt": NEW})
    assert shown["requested_by"] == "user:ann@example.org"
    said = door("POST", f"/setting-requests/{request_.id}/decision", {"decision": "grant", "reason": "Kind is good."})
    assert (said.status_code, said.json["status"]) == (200, "agreed")
    assert fresh(door.agent).system_prompt is None
    assert door.get("/setting-requests")["requests"] == []
    _, client = put(request_)
    assert client.asked == []
    assert fresh(door.agent).system_prompt == NEW
    assert [each["status"] for each in door.get("/setting-requests?status=all")["requests"]] == ["applied"]
    assert verify().ok


def test_a_deny_changes_nothing_and_counts_once(door: Door, request_: SettingsRequest) -> None:
    decision = f"/setting-requests/{request_.id}/decision"
    said = door("POST", decision, {"decision": "deny", "note_to_admins": "Ask Ann."})
    assert said.json["status"] == "denied"
    assert reload(request_).note_to_admins == "Ask Ann."
    assert door("POST", decision, {"decision": "grant"}).status_code == 409
    assert fresh(door.agent).system_prompt is None


def test_only_a_token_with_decide_may_answer(door: Door, request_: SettingsRequest) -> None:
    reader = Door(door.client, door.agent, issue(door.agent, ("read",)))
    assert len(reader.get("/setting-requests")["requests"]) == 1
    said = reader("POST", f"/setting-requests/{request_.id}/decision", {"decision": "grant"})
    assert (said.status_code, said.json["code"]) == (403, "scope_missing")
    assert reload(request_).status == "pending"


def test_another_agent_s_is_not_found(door: Door, request_: SettingsRequest) -> None:
    other = make_agent("crumb", model_id="openai/scripted")
    remember(other, "Crumb likes rain.")
    theirs = wants(other, make_user("bob@example.org", "admin"), system_prompt=NEW).request
    assert theirs is not None
    assert door("POST", f"/setting-requests/{theirs.id}/decision", {"decision": "grant"}).status_code == 404
    assert [each["id"] for each in door.get("/setting-requests")["requests"]] == [request_.id]
