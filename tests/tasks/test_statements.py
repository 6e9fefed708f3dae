"""What a web process or an agent's token has signed becomes a statement at once, or a minute later at the latest."""

from __future__ import annotations

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import select

import tasks.celery
import tasks.statements
from app.config import Settings
from app.extensions import db, writing
from app.keys.forgetting import forget_agent
from app.models import COMMAND_LINE, Agent
from app.models.statement import SignedRequest
from app.models.statement_errors import AgentStopped
from app.models.statement_log import current_of, statement_log
from app.processes.broker import EmbeddedBroker
from app.statements.checks import settle_agent
from app.statements.receipts import check_receipt
from app.statements.settling import LOST_AFTER, find_unsettled
from tests.api.conftest import Door, open_door
from tests.support.clock import FakeClock
from tests.support.factories import remember
from tests.support.processes import wait_for
from tests.support.tampering import tamper
from tests.support.workers import Worker

PROMPT = {"value": "You are Ezra, and you like rain."}


@pytest.fixture
def client(web: Flask) -> FlaskClient:
    return web.test_client()


@pytest.fixture
def door(client: FlaskClient) -> Door:
    made = open_door(client, "ezra", model_id="openai/gpt-5")
    remember(made.agent, "Ann likes tea.")
    return made


def change_prompt(door: Door) -> None:
    answer = door("PUT", "/settings/system_prompt", PROMPT)
    assert answer.status_code == 200, answer.text


def waiting() -> list[int]:
    db.session.rollback()
    return list(db.session.scalars(select(SignedRequest.agent_id).where(SignedRequest.settled_at.is_(None))))


def stated_prompt(agent: Agent) -> str | None:
    model = current_of(agent.id, agent.uuid).model
    assert model is not None
    return str(model.body["prompts"]["system_prompt"])


def test_a_worker_is_told_when_what_was_signed_is_committed_and_not_before(door: Door, web: Flask) -> None:
    told: list[tuple[int, list[int]]] = []
    web.extensions["settle_soon"] = lambda agent_id: told.append((agent_id, waiting()))

    change_prompt(door)

    assert told == [(door.agent.id, [door.agent.id])]


def test_nobody_is_told_of_what_was_rolled_back(door: Door, web: Flask) -> None:
    told: list[int] = []
    web.extensions["settle_soon"] = told.append

    with web.app_context(), pytest.raises(ValueError), writing():
        Agent.lock(door.agent.id).state_model(by=COMMAND_LINE)
        raise ValueError

    assert (told, waiting()) == ([], [])


def test_it_is_stated_once_however_often_a_worker_is_told(door: Door) -> None:
    before = stated_prompt(door.agent)
    change_prompt(door)

    settle_agent(door.agent.id)
    stated = current_of(door.agent.id, door.agent.uuid)
    settle_agent(door.agent.id)

    assert waiting() == []
    assert stated_prompt(door.agent) != before
    assert current_of(door.agent.id, door.agent.uuid).seen == stated.seen


def test_what_no_worker_was_told_of_is_found_after_a_minute(door: Door, clock: FakeClock) -> None:
    change_prompt(door)
    clock.advance(seconds=LOST_AFTER.total_seconds())
    assert find_unsettled() == []

    clock.advance(seconds=1)
    assert find_unsettled() == [door.agent.id]

    settle_agent(door.agent.id)
    assert find_unsettled() == []


def test_every_minute_a_worker_is_told_of_it(
    app: Flask, door: Door, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[object, ...]] = []
    change_prompt(door)
    monkeypatch.setattr(tasks.celery, "flask_app", lambda: app)
    monkeypatch.setattr(tasks.statements, "send_task", lambda *message: sent.append(message))
    clock.advance(seconds=LOST_AFTER.total_seconds() + 1)

    tasks.statements.look_after()

    assert sent == [(tasks.statements.settle, door.agent.id)]


def test_of_an_agent_whose_rows_were_changed_nothing_is_stated(door: Door) -> None:
    change_prompt(door)
    assert tamper("UPDATE agents SET model_id = 'openai/mine' WHERE id = :id", id=door.agent.id) == 1

    with pytest.raises(AgentStopped, match="model_id"):
        settle_agent(door.agent.id)

    assert waiting() == [door.agent.id]


def test_what_a_forgotten_agent_had_signed_is_settled_too(door: Door) -> None:
    change_prompt(door)
    forget_agent(door.agent.id, by=COMMAND_LINE)

    settle_agent(door.agent.id)

    assert waiting() == []


def test_what_an_agent_signs_at_its_door_is_a_statement_seconds_later_and_has_a_receipt_at_once(
    broker: EmbeddedBroker, worker: Worker, door: Door, settings: Settings
) -> None:
    before = stated_prompt(door.agent)

    change_prompt(door)

    wait_for(lambda: stated_prompt(door.agent) != before, seconds=30)
    assert waiting() == []
    newest = door.get("/receipts")["receipts"][0]
    receipt = door.get(f"/receipts/{newest['index']}")
    proved = check_receipt(f"{receipt['statement']}\n{receipt['proof']}".encode(), statement_log().keys.verifier)
    assert proved.said.body["prompts"]["system_prompt"] == stated_prompt(door.agent)
