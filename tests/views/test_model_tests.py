"""The button that has a worker ask an agent's model for one word: once at a time, live, and without scripts too."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask

import tasks.models
from app.asking.model_test import answer_model_test
from app.keys.forgetting import forget_agent
from app.models import COMMAND_LINE, Agent, CallPurpose
from tests.asking.conftest import booked
from tests.reflection.conftest import means_of
from tests.support.clock import FakeClock
from tests.support.factories import make_agent
from tests.support.scripted import say
from tests.views.conftest import Browser
from tests.views.test_live import Looker, parts, send


@pytest.fixture
def agent(app: Flask, monkeypatch: pytest.MonkeyPatch) -> Agent:
    monkeypatch.setenv("WRENS_API_KEY", "a key")
    return make_agent("wren", model_id="openai/scripted", api_key_env="WRENS_API_KEY")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What the broker took, in a test that has none."""
    taken: list[int] = []

    def take(_task: Any, agent_id: int) -> bool:
        taken.append(agent_id)
        return True

    monkeypatch.setattr(tasks.models, "send_task", take)
    return taken


def test_a_press_shows_at_once_that_it_waits_and_then_what_came_of_it(
    admin: Browser, agent: Agent, web: Flask, app: Flask, sent: list[int]
) -> None:
    pressed = parts(admin.press(f"/agents/{agent.id}/model-test").text)["model-test"]
    assert "Waiting for a worker" in pressed and "data-running" in pressed
    assert 'form="model-test-form" disabled' in pressed
    with app.app_context():
        answer_model_test(agent.id, means_of(say("ready"), window=128_000)[0])
    live = parts(send(web, f"settings:{agent.id}", Looker()))["model-test"]

    assert sent == [agent.id]
    for part in (live, admin.get(f"/agents/{agent.id}/settings").text):
        assert "Answered" in part and "in 0.0 s" in part
        assert "128,000 tokens" in part
        assert "<code>WRENS_API_KEY</code> is set in the worker" in part
        assert 'form="model-test-form">' in part


def test_without_scripts_it_leads_back_to_the_settings_which_tell_it(
    admin: Browser, agent: Agent, sent: list[int]
) -> None:
    answer = admin.post(f"/agents/{agent.id}/model-test")
    page = admin.get(answer.headers["Location"]).text

    assert answer.headers["Location"] == f"/agents/{agent.id}/settings#model-test"
    assert "A worker asks openai/scripted for one word." in page and "Waiting for a worker" in page


def test_a_second_press_asks_nobody_twice(admin: Browser, agent: Agent, app: Flask, sent: list[int]) -> None:
    dependencies, client = means_of(say("ready"), say("ready"))
    admin.press(f"/agents/{agent.id}/model-test")
    again = admin.press(f"/agents/{agent.id}/model-test").text
    with app.app_context():
        answer_model_test(agent.id, dependencies)
        answer_model_test(agent.id, dependencies)

    assert "The model of wren is being asked already. Nothing was started." in again
    assert sent == [agent.id]
    assert len(client.asked) == len(booked(CallPurpose.MODEL_TEST)) == 1


def test_without_a_broker_it_says_so_and_can_be_pressed_again(admin: Browser, agent: Agent) -> None:
    said = admin.press(f"/agents/{agent.id}/model-test").text
    twin: Any = admin.get(f"/agents/{agent.id}/settings.json").json

    assert "The model was not asked. The broker does not answer" in said
    assert (twin["model_test"]["state"], twin["model_test"]["seconds"]) == ("failed", None)
    assert "No answer" in parts(said)["model-test"] and 'form="model-test-form">' in said


def test_a_wish_that_no_worker_took_in_time_is_over_and_is_paid_by_nobody(
    admin: Browser, agent: Agent, app: Flask, clock: FakeClock, sent: list[int]
) -> None:
    admin.press(f"/agents/{agent.id}/model-test")
    clock.advance(minutes=2)
    page = admin.get(f"/agents/{agent.id}/settings").text
    dependencies, client = means_of(say("ready"))
    with app.app_context():
        answer_model_test(agent.id, dependencies)

    assert "No worker took it within 2 minutes." in page
    assert client.asked == []
    admin.press(f"/agents/{agent.id}/model-test")
    assert sent == [agent.id, agent.id]


def test_a_change_of_the_model_since_is_told_beside_the_answer(
    admin: Browser, agent: Agent, app: Flask, sent: list[int]
) -> None:
    admin.press(f"/agents/{agent.id}/model-test")
    with app.app_context():
        answer_model_test(agent.id, means_of(say("ready"))[0])
    assert "another model is set since" not in admin.get(f"/agents/{agent.id}/settings").text
    admin.post(
        f"/agents/{agent.id}/settings", {"name": "wren", "model_id": "openai/other", "core_token_budget": "5000"}
    )

    assert "another model is set since" in admin.get(f"/agents/{agent.id}/settings").text


def test_an_auditor_sees_what_came_of_it_and_has_no_button(
    admin: Browser, auditor: Browser, agent: Agent, sent: list[int]
) -> None:
    admin.press(f"/agents/{agent.id}/model-test")
    page = auditor.get(f"/agents/{agent.id}/settings").text

    assert "Waiting for a worker" in page
    assert "Test the model" not in page and "model-test-form" not in page
    assert auditor.post(f"/agents/{agent.id}/model-test").status_code == 403


def test_a_forgotten_agent_s_model_is_not_asked(admin: Browser, agent: Agent, sent: list[int]) -> None:
    forget_agent(agent.id, by=COMMAND_LINE)
    answer = admin.press(f"/agents/{agent.id}/model-test")

    assert answer.status_code == 409
    assert sent == []


def test_the_first_run_leads_to_the_button(admin: Browser, agent: Agent) -> None:
    assert f'<a href="/agents/{agent.id}/settings#model-test" class="button primary">Test its model</a>' in (
        admin.get("/").text
    )
