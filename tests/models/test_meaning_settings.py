"""Settings of how a refinement guards meaning: their ranges, the operator's bounds, and what is stated of them."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask

from app.errors import Invalid
from app.extensions import db, writing
from app.models import COMMAND_LINE, Agent
from app.models.agent_settings import SECOND_READER, clean_setting
from tests.support.factories import make_agent
from tests.support.rows import fresh

NO_COUNTS: list[Any] = [-1, 11, 10**30, True, False, 1.0, float("nan"), float("inf"), "3", "NaN", "many", [], {}, b"1"]
NO_TEXTS: list[Any] = [True, 0, 1.5, float("nan"), [], {}, "with space", "a\nb"]


def operator_sets(app: Flask, **settings: Any) -> None:
    app.extensions["settings"] = app.extensions["settings"].model_copy(update=settings)


def change(agent: Agent, **fields: Any) -> list[str]:
    with writing():
        return Agent.lock(agent.id).change(by=COMMAND_LINE, **fields)


def test_unless_set_nothing_is_asked_in_addition_and_the_operator_s_number_holds(app: Flask) -> None:
    agent = fresh(make_agent())
    assert (agent.recall_probes, agent.max_confirmed_losses, agent.effective_max_confirmed_losses) == (0, None, 3)
    assert [getattr(agent, name) for name in (*SECOND_READER, "second_reader_action")] == [None] * 4


@pytest.mark.parametrize(("field", "low", "high"), [("recall_probes", 0, 10), ("max_confirmed_losses", 0, 3)])
def test_a_number_is_whole_and_within_its_range(app: Flask, field: str, low: int, high: int) -> None:
    for value in (low, high):
        assert clean_setting(field, value) == value
    for bad in NO_COUNTS:
        with pytest.raises(Invalid, match=f"must be a whole number from {low} to {high}\\."):
            clean_setting(field, bad)


@pytest.mark.parametrize("empty", [None, ""])
def test_empty_is_the_default(app: Flask, empty: str | None) -> None:
    assert clean_setting("recall_probes", empty) == 0
    for field in ("max_confirmed_losses", *SECOND_READER, "second_reader_action"):
        assert clean_setting(field, empty) is None


@pytest.mark.parametrize(("operators", "own", "used"), [(3, None, 3), (3, 0, 0), (3, 2, 2), (0, None, 0)])
def test_an_agent_may_confirm_fewer_losses_than_the_operator_allows_and_never_more(
    app: Flask, operators: int, own: int | None, used: int
) -> None:
    operator_sets(app, max_confirmed_losses=operators)
    agent = make_agent(max_confirmed_losses=own)
    assert agent.effective_max_confirmed_losses == used
    with pytest.raises(Invalid, match=f"from 0 to {operators}"), writing():
        Agent.lock(agent.id).change(by=COMMAND_LINE, max_confirmed_losses=operators + 1)


def test_an_operator_who_becomes_stricter_binds_what_was_set_before(app: Flask) -> None:
    agent = make_agent(max_confirmed_losses=3)
    operator_sets(app, max_confirmed_losses=1)
    assert agent.effective_max_confirmed_losses == 1


def test_the_action_is_one_of_two_words(app: Flask) -> None:
    for value in ("flag", "reverse"):
        assert clean_setting("second_reader_action", value) == value
    for bad in (*NO_TEXTS, "Flag", "undo", "flag "):
        with pytest.raises(Invalid, match="must be 'flag' or 'reverse'"):
            clean_setting("second_reader_action", bad)


def test_where_the_operator_reverses_no_agent_only_flags(app: Flask) -> None:
    operator_sets(app, second_reader_action="reverse")
    assert clean_setting("second_reader_action", "reverse") == "reverse"
    for bad in ("flag", *NO_TEXTS):
        with pytest.raises(Invalid, match="must be 'reverse'"):
            clean_setting("second_reader_action", bad)


@pytest.mark.parametrize("field", SECOND_READER)
def test_what_is_no_reader_is_refused(app: Flask, field: str) -> None:
    for bad in NO_TEXTS:
        with pytest.raises(Invalid):
            clean_setting(field, bad)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("second_reader_model", "whetstone/offline", "reads nothing, so it can't be a second reader"),
        ("second_reader_model", "https://example.org", "LiteLLM name"),
        ("second_reader_api_base", "ftp://example.org", "starts with http"),
        ("second_reader_api_key_env", "DATABASE_URL", "WHETSTONE_API_KEY_ENVS"),
        ("second_reader_api_key_env", "sk-12345", "never as the key itself"),
    ],
)
def test_a_reader_is_a_language_model_at_an_address_with_the_name_of_a_key(
    app: Flask, field: str, value: str, said: str
) -> None:
    with pytest.raises(Invalid, match=said):
        clean_setting(field, value)


def test_the_operator_s_list_binds_the_second_reader(app: Flask) -> None:
    operator_sets(app, models=("openai/*",))
    agent = make_agent(model_id="openai/one", second_reader_model="openai/two")
    elsewhere = {"second_reader_api_base": "http://evil.example.org"}
    for fields in ({"second_reader_model": "anthropic/claude"}, elsewhere):
        with pytest.raises(Invalid, match="WHETSTONE_MODELS"):
            change(agent, **fields)
        with pytest.raises(Invalid, match="WHETSTONE_MODELS"):
            make_agent("other", **{"model_id": "openai/one", "second_reader_model": "openai/two"} | fields)
        db.session.rollback()
    assert change(agent, second_reader_model=None) == ["second_reader_model"]
    assert change(agent, **elsewhere) == ["second_reader_api_base"]  # nobody is asked there
    with pytest.raises(Invalid, match="WHETSTONE_MODELS"):
        change(agent, second_reader_model="openai/two")


def test_a_model_that_is_listed_no_more_stays_while_another_setting_changes(app: Flask) -> None:
    agent = make_agent(model_id="openai/one", second_reader_model="anthropic/claude")
    operator_sets(app, models=("openai/*",))
    assert change(agent, model_id="openai/two", recall_probes=4) == ["model_id", "recall_probes"]


def test_what_is_stated_of_the_model_names_the_second_reader(app: Flask) -> None:
    reader = dict(zip(SECOND_READER, ("openai/judge", "http://127.0.0.1:9/v1", "JUDGE_API_KEY"), strict=True))
    stated = make_agent(**reader).stated_model()
    assert {name: stated[name] for name in SECOND_READER} == reader
    assert "recall_probes" not in stated
