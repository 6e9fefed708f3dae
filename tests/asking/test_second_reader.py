"""Which second reader is asked: the operator's before an agent's own, with the stricter of both actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask

from app.asking.model_endpoint import ModelEndpoint
from app.asking.second_reader import ReaderAction, SecondReader, second_reader_of
from app.config import load_settings
from app.errors import Misconfigured
from app.extensions import writing
from app.llm.client import ModelError, ModelErrorKind
from app.models import COMMAND_LINE, Agent
from tests.support.factories import make_agent
from tests.support.scripted import ScriptedClients

OWN = {
    "second_reader_model": "openai/own",
    "second_reader_api_base": "http://127.0.0.1:9/v1",
    "second_reader_api_key_env": "OWN_API_KEY",
}
OPERATORS = {
    "second_reader_model": "mistral/large",
    "second_reader_api_base": "https://llm.example.org",
    "second_reader_api_key_env": "READER_KEY",
}


@pytest.fixture
def operator_sets(app: Flask) -> Callable[..., None]:
    """The operator changes his environment, and starts everything again."""

    def change(**settings: Any) -> None:
        read = load_settings(data_dir=app.extensions["settings"].data_dir, **settings)
        kept = {name: getattr(read, name) for name in settings}
        app.extensions["settings"] = app.extensions["settings"].model_copy(update=kept)

    return change


def test_there_is_none_unless_one_is_set(app: Flask) -> None:
    assert second_reader_of(make_agent(second_reader_action="reverse")) is None
    assert second_reader_of(make_agent("other", second_reader_api_base="http://127.0.0.1:9")) is None


def test_an_agent_has_one_of_its_own(app: Flask) -> None:
    endpoint = ModelEndpoint("openai/own", "http://127.0.0.1:9/v1", "OWN_API_KEY")
    assert second_reader_of(make_agent(**OWN)) == SecondReader(endpoint, ReaderAction.FLAG)
    assert not endpoint.is_operators


def test_the_operator_s_comes_before_it(app: Flask, operator_sets: Callable[..., None]) -> None:
    operator_sets(**OPERATORS)
    endpoint = ModelEndpoint("mistral/large", "https://llm.example.org", "READER_KEY", is_operators=True)
    for agent in (make_agent(), make_agent("other", **OWN)):
        assert second_reader_of(agent) == SecondReader(endpoint, ReaderAction.FLAG)


@pytest.mark.parametrize(
    ("operators", "own", "used"),
    [
        ("flag", None, "flag"),
        ("flag", "flag", "flag"),
        ("flag", "reverse", "reverse"),
        ("reverse", None, "reverse"),
        ("reverse", "reverse", "reverse"),
        ("reverse", "flag", "reverse"),
    ],
)
def test_the_stricter_action_holds(
    app: Flask, operator_sets: Callable[..., None], operators: str, own: str | None, used: str
) -> None:
    """Also where the operator became stricter after the agent had chosen."""
    agent = make_agent(**OWN, second_reader_action=own)
    operator_sets(second_reader_action=operators)
    reader = second_reader_of(agent)
    assert reader is not None
    assert reader.action == used


@pytest.mark.parametrize("others", [{}, {"second_reader_api_base": "http://evil.example.org"}], ids=str)
def test_what_the_operator_lists_no_more_is_asked_nothing(
    app: Flask, operator_sets: Callable[..., None], others: dict[str, Any]
) -> None:
    """An agent's own; what he names for all himself is his to name."""
    agent = make_agent(second_reader_model="openai/own", **others)
    operator_sets(models="mistral/*" if not others else "openai/*")
    reader = second_reader_of(agent)
    assert reader is not None
    with pytest.raises(ModelError) as refused:
        reader.endpoint.client(ScriptedClients())
    assert refused.value.kind is ModelErrorKind.NOT_LISTED


def test_what_the_operator_names_is_not_held_to_his_list(app: Flask, operator_sets: Callable[..., None]) -> None:
    agent = make_agent(second_reader_action="flag")
    operator_sets(models="openai/*", **OPERATORS)
    with writing():
        Agent.lock(agent.id).change(by=COMMAND_LINE, core_token_budget=7)
    reader = second_reader_of(agent)
    assert reader is not None
    assert reader.endpoint.is_operators


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"WHETSTONE_SECOND_READER_MODEL": "whetstone/offline"}, "reads nothing"),
        ({"WHETSTONE_SECOND_READER_ACTION": "undo"}, "'flag' or 'reverse'"),
        ({"WHETSTONE_MAX_CONFIRMED_LOSSES": "11"}, "less than or equal to 10"),
        ({"WHETSTONE_MAX_CONFIRMED_LOSSES": "-1"}, "greater than or equal to 0"),
        ({"WHETSTONE_MAX_CONFIRMED_LOSSES": "nan"}, "valid integer"),
    ],
)
def test_what_the_operator_may_not_set_stops_the_start(
    monkeypatch: pytest.MonkeyPatch, setting: dict[str, str], said: str
) -> None:
    for name, value in setting.items():
        monkeypatch.setenv(name, value)
        with pytest.raises(Misconfigured, match=f"{name}: .*{said}"):
            load_settings()
