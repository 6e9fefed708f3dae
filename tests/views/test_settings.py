"""An agent's settings on screen: checked field by field, saved whole, told in their history."""

from __future__ import annotations

from html import unescape

import pytest
from flask import Flask

from app.extensions import db, writing
from app.history.verify import verify
from app.models import Actor, ActorKind, Agent
from tests.support.factories import make_agent
from tests.views.conftest import Browser


@pytest.fixture
def agent(app: Flask) -> Agent:
    return make_agent(system_prompt="You are Ezra.")


def sent(agent: Agent, **changes: str) -> dict[str, str]:
    return {
        "name": agent.name,
        "model_id": agent.model_id,
        "core_token_budget": "5000",
        "system_prompt": "You are Ezra.",
    } | changes


def fresh(agent: Agent) -> Agent:
    db.session.rollback()
    return db.session.get_one(Agent, agent.id, populate_existing=True)


def test_saving_changes_what_changed_and_says_so(admin: Browser, agent: Agent) -> None:
    answer = admin.post(
        f"/agents/{agent.id}/settings", sent(agent, core_token_budget="6,000", refinement_threshold="0.9")
    )
    page = admin.get(answer.headers["Location"]).text

    assert answer.status_code == 303
    assert (fresh(agent).core_token_budget, str(fresh(agent).refinement_threshold)) == (6000, "0.9000")
    assert "Saved: budget, threshold." in page or "Saved: threshold, budget." in page
    assert verify().ok


def test_nothing_different_writes_nothing(admin: Browser, agent: Agent) -> None:
    before = fresh(agent).audit_sequence
    answer = admin.post(f"/agents/{agent.id}/settings", sent(agent))

    assert answer.status_code == 303
    assert fresh(agent).audit_sequence == before


def test_one_wrong_field_saves_none(admin: Browser, agent: Agent) -> None:
    answer = admin.post(
        f"/agents/{agent.id}/settings", sent(agent, core_token_budget="7000", refinement_threshold="0.2")
    )

    assert answer.status_code == 422
    assert "The threshold is out of range" in unescape(answer.text)
    assert 'value="7000"' in answer.text
    assert fresh(agent).core_token_budget == 5000


def test_the_history_tells_who_changed_what_when(admin: Browser, agent: Agent) -> None:
    admin.post(f"/agents/{agent.id}/settings", sent(agent, core_token_budget="6000"))
    with writing():
        Agent.lock(agent.id).change(by=Actor(ActorKind.AGENT, "ezra"), refinement_prompt="Be gentle.")

    shown = admin.get(f"/agents/{agent.id}/settings.json").json
    page = admin.get(f"/agents/{agent.id}/settings").text

    assert shown is not None
    newest, older, first = shown["history"]
    assert (newest["actor"], newest["changed"]) == (
        "ezra",
        {"refinement_prompt": {"before": None, "after": "Be gentle."}},
    )
    assert older["changed"] == {"core_token_budget": {"before": 5000, "after": 6000}}
    assert first["title"] == "Created"
    assert "authored by the agent" in page


def test_auditors_see_the_settings_but_no_button(auditor: Browser, agent: Agent) -> None:
    page = auditor.get(f"/agents/{agent.id}/settings").text

    assert "You are Ezra." in page
    assert "<fieldset disabled" in page
    assert ">Save<" not in page
