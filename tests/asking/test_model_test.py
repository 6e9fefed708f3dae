"""A test of an agent's model: one word is asked of it, and nothing of the agent goes along."""

from __future__ import annotations

import pytest
from flask import Flask

from app.asking.model_test import QUESTION, UNEXPECTED, answer_model_test, check_model
from app.extensions import db, writing
from app.keys.forgetting import forget_agent
from app.llm.client import ModelError, ModelErrorKind, Reply
from app.models import COMMAND_LINE, Agent, CallPurpose, ModelTest
from app.models.agent import AgentForgotten
from app.models.model_test import NOT_ENDED, OpenModelTest
from app.models.statement_errors import AgentStopped
from tests.adversaries.forging import change_rows
from tests.asking.conftest import SECRET, booked
from tests.reflection.conftest import means_of
from tests.support.clock import FakeClock
from tests.support.factories import make_agent, remember
from tests.support.scripted import say


@pytest.fixture
def agent(app: Flask, monkeypatch: pytest.MonkeyPatch) -> Agent:
    monkeypatch.setenv("WRENS_API_KEY", "a key")
    made = make_agent(
        "wren", model_id="openai/scripted", api_key_env="WRENS_API_KEY", system_prompt="You are Wren, and kind."
    )
    remember(made, SECRET)
    return made


def test_it_says_how_long_it_took_the_window_and_that_the_key_is_there(agent: Agent) -> None:
    dependencies, client = means_of(say("ready"), window=128_000)
    tested = check_model(agent.id, dependencies)

    assert (tested.answered, tested.model_id, tested.seconds) == (True, "openai/scripted", 0.0)
    assert (tested.context_window, tested.key_variable, tested.key_found) == (128_000, "WRENS_API_KEY", True)
    assert [(list(sent.messages), sent.tools) for sent in client.asked] == [([QUESTION], ())]


def test_a_failure_is_a_sentence_and_a_missing_key_is_told(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WRENS_API_KEY")
    failed = ModelError(ModelErrorKind.NOT_FOUND, "The model openai/scripted does not exist.")
    tested = check_model(agent.id, means_of(failed)[0])

    assert (tested.answered, tested.failure, tested.key_found) == (False, failed.sentence, False)
    assert [row.outcome for row in booked(CallPurpose.MODEL_TEST)] == ["not_found"]


def test_nothing_is_asked_for_a_forgotten_agent_or_one_whose_row_is_not_what_was_signed(agent: Agent) -> None:
    other = make_agent("mina", model_id="openai/scripted")
    forget_agent(other.id, by=COMMAND_LINE)
    change_rows("agents", {"api_base": "https://evil.example.org/v1"}, id=agent.id)
    dependencies, client = means_of(say("ready"))

    with pytest.raises(AgentForgotten):
        check_model(other.id, dependencies)
    with pytest.raises(AgentStopped):
        check_model(agent.id, dependencies)
    assert client.asked == []
    change_rows("agents", {"api_base": None}, id=agent.id)


def request(agent: Agent) -> OpenModelTest:
    with writing():
        return ModelTest.request(Agent.lock(agent.id), by=COMMAND_LINE)


def newest(agent: Agent) -> ModelTest:
    db.session.rollback()
    found = ModelTest.newest_of(agent.id)
    assert found is not None
    return found


def test_what_keeps_the_model_from_being_asked_is_written_down_for_who_waits(agent: Agent) -> None:
    request(agent)
    change_rows("agents", {"api_base": "https://evil.example.org/v1"}, id=agent.id)
    dependencies, client = means_of(say("ready"))
    with pytest.raises(AgentStopped) as stopped:
        answer_model_test(agent.id, dependencies)
    change_rows("agents", {"api_base": None}, id=agent.id)

    assert (newest(agent).failure, newest(agent).seconds) == (stopped.value.sentence, None)
    assert client.asked == []


def break_down(_: object) -> Reply:
    raise ZeroDivisionError


def test_an_error_that_nobody_expected_leaves_nobody_waiting(agent: Agent) -> None:
    request(agent)
    with pytest.raises(ZeroDivisionError):
        answer_model_test(agent.id, means_of(break_down)[0])

    assert newest(agent).failure == UNEXPECTED


def test_an_answer_that_comes_after_another_test_began_is_dropped(agent: Agent, clock: FakeClock) -> None:
    """The worker that was slow and the one that asks now write about different tests."""
    request(agent)
    slow = ModelTest.claim(agent.id)
    assert slow is not None
    clock.advance(seconds=91)
    assert newest(agent).why_lost == NOT_ENDED
    request(agent)
    slow.end("too late")

    assert (newest(agent).is_open, newest(agent).failure) == (True, None)
