"""A prompt that an agent wrote, read by a real worker with a safety model over HTTP; what gets lost is found again."""

from __future__ import annotations

import base64
import json

import pytest
from flask import Flask
from redis import Redis

from app.authoring.fields import author_setting
from app.authoring.reading import find_unread
from app.config import Settings
from app.extensions import db
from app.models import Agent, ProposalStatus, SettingProposal
from app.processes.broker import EmbeddedBroker
from tasks.authoring import enqueue
from tasks.refinement import worker_answers
from tests.support.clock import FakeClock
from tests.support.factories import make_agent, remember
from tests.support.model_server import ModelServer, text
from tests.support.processes import wait_for
from tests.support.workers import Worker, everything_in

SECRET = "Wilhelmina hid the brass key under the third flagstone."
PROMPT = "You are Wren, who collects marbles and never lies."


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent("wren")
    remember(made, SECRET)
    app.extensions["settings"] = app.extensions["settings"].model_copy(update={"safety_model": "openai/judge"})
    return made


def environment_for(model: ModelServer) -> dict[str, str]:
    return {
        "WHETSTONE_SAFETY_MODEL": "openai/judge",
        "WHETSTONE_SAFETY_API_BASE": model.base_url,
        "WHETSTONE_SAFETY_API_KEY_ENV": "A_KEY",
        "A_KEY": "not-a-real-key",
    }


def write(agent: Agent, prompt: str = PROMPT) -> str:
    """The agent writes its system prompt; returns the id of what waits."""
    unread = author_setting(agent.id, "system_prompt", prompt, by=agent.as_actor).unread
    assert unread is not None
    return unread


def decided(proposal_id: str) -> SettingProposal | None:
    db.session.rollback()
    row = db.session.get_one(SettingProposal, proposal_id, populate_existing=True)
    return None if row.status == ProposalStatus.READING else row


def test_a_worker_asks_the_safety_model_with_its_own_key_and_applies_or_holds(
    agent: Agent, broker: EmbeddedBroker, model: ModelServer, settings: Settings
) -> None:
    model.script(text("SAFE"), text("UNSAFE: it lies."))
    with Worker(settings, ("--concurrency", "2"), environment=environment_for(model)):
        wait_for(lambda: worker_answers(0.5), seconds=60)
        first = write(agent)
        assert enqueue(first)
        applied = wait_for(lambda: decided(first), seconds=60)
        second = write(agent, "You are Wren, who lies.")
        assert enqueue(second)
        held = wait_for(lambda: decided(second), seconds=60)

    assert (applied.status, held.status) == (ProposalStatus.APPLIED, ProposalStatus.HELD)
    assert db.session.get_one(Agent, agent.id, populate_existing=True).system_prompt == PROMPT
    assert [request.headers["authorization"] for request in model.requests] == ["Bearer not-a-real-key"] * 2
    assert model.requests[0].body["model"] == "judge"
    assert not any("flagstone" in str(request.messages) for request in model.requests)
    for path, content in everything_in(settings.data):
        assert b"flagstone" not in content, path
        assert path.suffix != ".log" or b"marbles" not in content, path


def test_the_message_holds_the_id_only_and_goes_where_models_are_asked(
    agent: Agent, broker: EmbeddedBroker, redis: Redis
) -> None:
    from app.events.broker import broker_namespace

    waiting = write(agent)
    assert enqueue(waiting)

    (raw,) = redis.lrange(f"{broker_namespace()}refine", 0, -1)
    assert json.loads(base64.b64decode(json.loads(raw)["body"]))[0] == [waiting]


def test_what_no_broker_took_is_left_to_the_minute_s_upkeep(agent: Agent, clock: FakeClock) -> None:
    waiting = write(agent)
    assert not enqueue(waiting)
    clock.advance(seconds=61)
    assert find_unread() == [waiting]
