"""`whetstone models`: one command for all agents of a retired model, and one that asks a model whether it answers."""

from __future__ import annotations

import pytest
from flask import Flask

from app.extensions import db, writing
from app.llm.client import ModelError, ModelErrorKind
from app.models import COMMAND_LINE, Account, Agent, AuditLog
from tests.cli.conftest import Whetstone
from tests.support.factories import make_agent
from tests.support.scripted import ScriptedClient, ScriptedClients, say


@pytest.fixture
def agents(app: Flask) -> list[Agent]:
    with writing():
        next_door = Account.create("Next door").id
    return [
        make_agent("ezra", model_id="openai/old"),
        make_agent("wren", model_id="openai/other"),
        make_agent("mina", model_id="openai/old", account_id=next_door),
    ]


def models_of(agents: list[Agent]) -> list[str]:
    db.session.rollback()
    return [db.session.get_one(Agent, each.id, populate_existing=True).model_id for each in agents]


def test_all_agents_of_all_accounts_get_the_new_name(agents: list[Agent], whetstone: Whetstone) -> None:
    said = whetstone("models", "rename", "openai/old", "openai/new", "--json")
    assert said.status == 0
    assert [(each["name"], each["account"]) for each in said.json["agents"]][1] == ("mina", "Next door")
    assert models_of(agents) == ["openai/new", "openai/other", "openai/new"]
    entry = db.session.scalars(db.select(AuditLog).order_by(AuditLog.id.desc()).limit(1)).one()
    assert (entry.actor, entry.data["after"]) == ("system:command line", {"model_id": "openai/new"})


def test_a_retired_second_reader_is_renamed_too(agents: list[Agent], whetstone: Whetstone) -> None:
    with writing():
        wren = Agent.lock(agents[1].id)
        wren.change(by=COMMAND_LINE, second_reader_model="openai/old")
    said = whetstone("models", "rename", "openai/old", "openai/new", "--json")
    assert [each["name"] for each in said.json["agents"]] == ["ezra", "wren", "mina"]
    assert models_of(agents) == ["openai/new", "openai/other", "openai/new"]
    assert db.session.get_one(Agent, agents[1].id).second_reader_model == "openai/new"


def test_an_account_may_be_named(agents: list[Agent], whetstone: Whetstone) -> None:
    said = whetstone("models", "rename", "openai/old", "openai/new", "--account", "Next door")
    assert "1 agent now has the model 'openai/new'." in said.out
    assert models_of(agents) == ["openai/old", "openai/other", "openai/new"]


def test_a_dry_run_changes_nothing(agents: list[Agent], whetstone: Whetstone) -> None:
    said = whetstone("models", "rename", "openai/old", "openai/new", "--dry-run")
    assert "2 agents would have" in said.out
    assert models_of(agents) == ["openai/old", "openai/other", "openai/old"]


@pytest.mark.parametrize("new", ["", "http://evil.example.org", "a b"])
def test_a_name_that_is_none_changes_nothing(agents: list[Agent], whetstone: Whetstone, new: str) -> None:
    assert whetstone("models", "rename", "openai/old", new).status == 2
    assert models_of(agents) == ["openai/old", "openai/other", "openai/old"]


def test_a_name_that_nobody_has_changes_nothing(agents: list[Agent], whetstone: Whetstone) -> None:
    said = whetstone("models", "rename", "openai/nobody", "openai/new")
    assert (said.status, "No agent has the model" in said.out) == (0, True)


def test_a_model_is_tested_with_one_word(
    agents: list[Agent], whetstone: Whetstone, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = ModelError(ModelErrorKind.NO_KEY, "No key.")
    client = ScriptedClient(say("ready"), failed, context_window=8_000)
    monkeypatch.setattr("app.cli.models.LiteLLMClients", lambda: ScriptedClients(client))
    answered = whetstone("models", "test", "ezra", "--json")
    unanswered = whetstone("models", "test", "ezra")

    assert (answered.status, answered.json["answered"], answered.json["context_window"]) == (0, True, 8_000)
    assert unanswered.status == 1
    assert "openai/old did not answer." in unanswered.out and "No key." in unanswered.out
    assert whetstone("models", "test", "nobody").status == 1
