"""Which models at which addresses agents may have: the operator's list, held where one is set and before each call."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from flask import Flask

from app.config import load_settings
from app.errors import Invalid, Misconfigured
from app.extensions import db, writing
from app.modelnames import may_be_asked
from app.models import COMMAND_LINE, Agent
from tests.refinement.driving import carry, say
from tests.support.factories import make_agent, remember

LOCAL = "http://127.0.0.1:11434"
LIST = ("openai/*", f"ollama/*@{LOCAL}", "mistral/small@https://llm.example.org/eu", "groq/*@*")


@pytest.fixture
def listing(app: Flask) -> Callable[[str], None]:
    """The operator changes WHETSTONE_MODELS, and starts everything again."""

    def change(models: str) -> None:
        read = load_settings(data_dir=app.extensions["settings"].data_dir, models=models).models
        app.extensions["settings"] = app.extensions["settings"].model_copy(update={"models": read})

    return change


@pytest.mark.parametrize(
    ("model", "address"),
    [
        ("openai/gpt-5", None),
        ("ollama/qwen3", LOCAL),
        ("ollama/qwen3", f"{LOCAL}/"),
        ("ollama/qwen3", f"{LOCAL}/v1"),
        ("mistral/small", "https://llm.example.org/eu/v1"),
        ("mistral/small", "https://LLM.example.org/eu"),
        ("groq/any", None),
        ("groq/any", "https://anywhere.example.org"),
    ],
)
def test_what_is_listed_may_be_asked(model: str, address: str | None) -> None:
    assert may_be_asked(model, address, LIST)


@pytest.mark.parametrize(
    ("model", "address"),
    [
        ("openai/gpt-5", "http://evil.example.org"),
        ("anthropic/claude", None),
        ("gpt-5", None),
        ("ollama/qwen3", None),
        ("ollama/qwen3", "http://127.0.0.1:114340"),
        ("ollama/qwen3", f"{LOCAL}@evil.example.org"),
        ("ollama/qwen3", "http://user:word@127.0.0.1:11434"),
        ("ollama/qwen3", f"{LOCAL}.evil.example.org"),
        ("ollama/qwen3", "https://127.0.0.1:11434"),
        ("mistral/small", "https://llm.example.org/europe"),
        ("mistral/small", "https://llm.example.org/eu/../us"),
        ("mistral/small", "https://llm.example.org"),
        ("mistral/large", "https://llm.example.org/eu"),
        ("ollama/qwen3", "http://[broken"),
    ],
)
def test_what_is_not_may_not(model: str, address: str | None) -> None:
    assert not may_be_asked(model, address, LIST)


def test_without_a_list_all_may() -> None:
    assert may_be_asked("anything/else", "http://anywhere.example.org", None)


@pytest.mark.parametrize(
    ("given", "read"), [("", None), (" , ", None), ("openai/* , groq/x@*,", ("openai/*", "groq/x@*"))]
)
def test_the_setting_is_a_list(given: str, read: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHETSTONE_MODELS", given)
    assert load_settings().models == read


@pytest.mark.parametrize(
    "given",
    [
        *("openai gpt", "@http://127.0.0.1", "openai/*@", "openai/*@127.0.0.1", "https://example.org/v1"),
        *("ollama/*@http://127.0.0.1:*", "ollama/*@ftp://a", "ollama/*@http://a@b", "openai/[g]", "o/*@http://a:b"),
    ],
)
def test_what_is_no_pattern_stops_the_start(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHETSTONE_MODELS", given)
    with pytest.raises(Misconfigured, match="WHETSTONE_MODELS: must be models such as"):
        load_settings()


def test_an_agent_is_given_no_other_model_nor_address(app: Flask, listing: Callable[[str], None]) -> None:
    agent = make_agent(model_id="openai/one")
    listing("openai/*")
    for change in ({"model_id": "anthropic/claude"}, {"api_base": "http://evil.example.org"}):
        with pytest.raises(Invalid, match="WHETSTONE_MODELS"), writing():
            Agent.lock(agent.id).change(by=COMMAND_LINE, **change)
    with pytest.raises(Invalid, match="WHETSTONE_MODELS"):
        make_agent("other", model_id="anthropic/claude")
    db.session.rollback()
    assert [(each.model_id, each.api_base) for each in db.session.scalars(db.select(Agent))] == [("openai/one", None)]


def test_the_rule_based_model_and_other_settings_stay_free(app: Flask, listing: Callable[[str], None]) -> None:
    agent = make_agent(model_id="anthropic/claude")
    listing("openai/*")
    make_agent("crumb", model_id="whetstone/offline")
    with writing():
        assert Agent.lock(agent.id).change(by=COMMAND_LINE, core_token_budget=7) == ["core_token_budget"]


def test_what_is_listed_no_more_is_sent_nothing(app: Flask, listing: Callable[[str], None]) -> None:
    agent = make_agent(model_id="openai/x")
    remember(agent, "Ann likes tea.")
    listing("ollama/*")
    ended = carry(agent, say("YES"))
    assert ended.client.asked == []
    assert ended.status == "failed"
    assert "WHETSTONE_MODELS" in (ended.refinement.reason or "")
