"""Which variables of the worker's environment may go out as an agent's key: said where one is set, held at each use."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from flask import Flask

from app.asking.calls import Dependencies
from app.asking.model_endpoint import ModelEndpoint
from app.config import load_settings
from app.errors import Invalid, Misconfigured
from app.extensions import db, writing
from app.keynames import may_hold_a_key
from app.llm.client import ModelError, ModelErrorKind
from app.models import COMMAND_LINE, Agent, Trigger
from app.refinement.process import run_refinement
from app.refinement.start import start_refinement
from tests.support.factories import make_agent, remember
from tests.support.scripted import ScriptedClient, ScriptedClients, say

USUAL = (
    *("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "AZURE_API_KEY", "MISTRAL_API_KEY", "GROQ_API_KEY"),
    *("XAI_API_KEY", "OPENROUTER_API_KEY", "WATSONX_APIKEY", "REPLICATE_API_TOKEN", "HF_TOKEN", "A_KEY", "my_key"),
)
OTHERS = (
    *("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK", "SECRET_KEY"),
    *("STRIPE_SECRET_KEY", "SSH_PRIVATE_KEY", "GITHUB_TOKEN", "CI_JOB_TOKEN", "NPM_TOKEN", "DB_PASSWORD", "EDITOR"),
    *("SESSION_SIGNING_KEY", "RAILS_MASTER_KEY", "aws_secret_access_key", "KEY", "MY_KEY_ID", "SENTRY_DSN"),
)
NEVER = (
    *("DATABASE_URL", "database_url", "REDIS_URL", "PGPASSWORD", "PGPASSFILE", "PG_API_KEY", "PATH", "Path", "HOME"),
    *("WHETSTONE_MASTER_KEY_FILE", "whetstone_master_key", "WHETSTONE_API_KEY", "CELERY_BROKER_KEY", "FLASK_API_KEY"),
    *("LD_PRELOAD", "PYTHONPATH", "SSH_AUTH_SOCK", "DATABASE_KEY", "A KEY", "A-KEY", "É_KEY", "A_KEY\n", "1_KEY", ""),
    "A" * 117 + "_KEY",
)


@pytest.fixture
def listing(app: Flask) -> Any:
    """The operator changes WHETSTONE_API_KEY_ENVS, and starts everything again."""

    def change(names: str) -> None:
        made = load_settings(data_dir=app.extensions["settings"].data_dir, api_key_envs=names)
        app.extensions["settings"] = app.extensions["settings"].model_copy(update={"api_key_envs": made.api_key_envs})

    return change


@pytest.mark.parametrize("name", USUAL)
def test_unless_the_operator_lists_them_the_usual_names_of_keys_may(name: str) -> None:
    assert may_hold_a_key(name, None)


@pytest.mark.parametrize("name", [*OTHERS, *NEVER])
def test_what_looks_like_another_secret_may_not(name: str) -> None:
    assert not may_hold_a_key(name, None)


@pytest.mark.parametrize("name", NEVER)
def test_whetstone_s_own_and_the_system_s_never_may(name: str) -> None:
    assert not may_hold_a_key(name, (name,))


def test_what_the_operator_lists_may_and_nothing_else() -> None:
    assert may_hold_a_key("SCW_SECRET_KEY", ("SCW_SECRET_KEY", "ADA_KEY"))
    assert not may_hold_a_key("OPENAI_API_KEY", ("SCW_SECRET_KEY", "ADA_KEY"))
    assert not may_hold_a_key("ada_key", ("SCW_SECRET_KEY", "ADA_KEY"))
    assert not may_hold_a_key("OPENAI_API_KEY", ())


@pytest.mark.parametrize(
    ("given", "read"),
    [("", None), (" , ", None), ("off", ()), ("OFF ", ()), ("A_KEY, GITHUB_TOKEN,", ("A_KEY", "GITHUB_TOKEN"))],
)
def test_the_setting_is_a_list_of_names(given: str, read: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHETSTONE_API_KEY_ENVS", given)
    assert load_settings().api_key_envs == read


@pytest.mark.parametrize("given", ["DATABASE_URL", "A_KEY,WHETSTONE_MASTER_KEY_FILE", "A_KEY B_KEY", "sk-123", "PATH"])
def test_a_list_that_would_give_away_whetstone_itself_is_refused_at_the_start(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHETSTONE_API_KEY_ENVS", given)
    with pytest.raises(Misconfigured, match="WHETSTONE_API_KEY_ENVS: must be names of variables"):
        load_settings()


@pytest.mark.parametrize("name", ["AWS_SECRET_ACCESS_KEY", "DATABASE_URL", "AIzaSyPastedByMistake"])
def test_an_agent_is_given_no_such_name_and_the_sentence_repeats_nothing(app: Flask, name: str) -> None:
    agent = make_agent(api_key_env="OPENAI_API_KEY")
    with pytest.raises(Invalid, match="may not be used for one") as caught, writing():
        Agent.lock(agent.id).change(by=COMMAND_LINE, api_key_env=name)
    assert name not in caught.value.sentence
    with pytest.raises(Invalid, match="WHETSTONE_API_KEY_ENVS"):
        make_agent("other", api_key_env=name)
    db.session.rollback()
    assert [each.api_key_env for each in db.session.scalars(db.select(Agent))] == ["OPENAI_API_KEY"]


def test_a_name_that_is_allowed_no_more_is_not_used_any_more(app: Flask, listing: Any) -> None:
    agent = make_agent(model_id="openai/x", api_base="http://127.0.0.1:9", api_key_env="OPENAI_API_KEY")
    remember(agent, "Ann likes tea.")
    client = ScriptedClient(say("YES"))
    clients = ScriptedClients(client)
    listing("ADA_KEY")
    refinement = start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE)
    run_refinement(refinement.id, Dependencies(clients, pause=lambda _: None, monotonic=lambda: 0.0))

    db.session.rollback()
    db.session.refresh(refinement)
    assert refinement.status == "failed"
    assert (clients.made, client.asked) == ([], [])
    with pytest.raises(ModelError) as caught:
        ModelEndpoint.of(agent).client(clients)
    assert caught.value.kind is ModelErrorKind.NO_KEY
    assert not caught.value.worth_retrying
    listing("ADA_KEY, OPENAI_API_KEY")
    assert ModelEndpoint.of(agent).client(clients) is client


def test_what_the_operator_s_own_settings_name_is_not_bound_by_his_list(app: Flask, listing: Any) -> None:
    clients = ScriptedClients(ScriptedClient())
    listing("off")
    safety = ModelEndpoint("openai/judge", None, "SAFETY_KEY", is_operators=True)
    safety.client(clients)
    assert clients.made == ["openai/judge"]
    with pytest.raises(ModelError):
        replace(safety, is_operators=False).client(clients)
