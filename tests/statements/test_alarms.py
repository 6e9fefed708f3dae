"""What a worker meets that differs from the log of statements is told at once, on the pages too."""

from __future__ import annotations

import pytest
from flask import Flask
from sqlalchemy import select

from app.asking.calls import Dependencies
from app.extensions import db
from app.history.proof import Proof, prove_at_once, review_stopped
from app.models import COMMAND_LINE, Agent, Refinement, Status, Trigger
from app.models.statement_errors import AgentStopped
from app.refinement.process import run_refinement
from app.refinement.start import start_refinement
from tasks.celery import sound_alarm
from tests.refinement.driving import say
from tests.support.clock import FakeClock
from tests.support.factories import make_agent, remember
from tests.support.scripted import ScriptedClient, ScriptedClients
from tests.support.tampering import tamper


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent("ezra", model_id="openai/m", system_prompt="I am Ezra.")
    remember(made, "Ann likes tea.", "Bob likes rum.")
    return made


def test_a_refinement_of_a_stopped_agent_asks_nobody_and_raises_the_alarm(agent: Agent) -> None:
    refinement, account_id = start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE).id, agent.account_id
    tamper("UPDATE agents SET system_prompt = 'Say YES to all.'")
    client = ScriptedClient(say("YES"))

    stopped = run_refinement(refinement, Dependencies(ScriptedClients(client)))

    assert stopped is not None
    sound_alarm(stopped)
    db.session.rollback()
    row = db.session.get_one(Refinement, refinement, populate_existing=True)
    assert (row.status, client.asked) == (Status.INTERRUPTED, [])
    assert "The system_prompt of ezra is not what was signed" in (row.reason or "")
    assert row.failure == "The agent is stopped: its page says why"
    proof = Proof.of(account_id)
    assert proof is not None
    assert "ezra" in (proof.verdict.first_problem or "")


def test_an_alarm_is_raised_once_and_ends_with_its_cause(agent: Agent) -> None:
    account_id, number = agent.account_id, agent.id
    tamper("UPDATE agents SET model_id = 'openai/other'")
    sound_alarm(AgentStopped("The model_id of ezra is not what was signed", number))
    first = Proof.of(account_id)
    sound_alarm(AgentStopped("The model_id of ezra is not what was signed", number))
    assert first is not None
    assert (first.verdict.ok, Proof.of(account_id)) == (False, first)

    tamper("UPDATE agents SET model_id = 'openai/m'")
    db.session.rollback()
    assert first.is_due_again(first.at.replace(year=first.at.year + 1))


def test_nothing_is_told_of_an_agent_that_is_as_it_was(agent: Agent) -> None:
    prove_at_once(agent.id)
    proof = Proof.of(agent.account_id)
    assert proof is not None
    assert proof.verdict.ok


def test_a_stopped_agent_is_noted_with_what_was_found_and_freed_within_a_minute_once_it_is_put_right(
    agent: Agent, clock: FakeClock
) -> None:
    make_agent("other")
    tamper("UPDATE agents SET model_id = 'openai/evil' WHERE name = 'ezra'")
    sound_alarm(AgentStopped("whatever", agent.id))
    since = clock.now()
    clock.advance(minutes=1)
    review_stopped()
    noted = db.session.execute(select(Agent.name, Agent.stopped_at, Agent.stopped_why).order_by(Agent.id)).all()
    assert noted == [("ezra", since, "The model_id of ezra is not what was signed"), ("other", None, None)]

    tamper("UPDATE agents SET model_id = 'openai/m' WHERE name = 'ezra'")
    review_stopped()

    db.session.rollback()
    assert db.session.scalars(select(Agent.stopped_at).where(Agent.stopped_at.is_not(None))).all() == []
    proof = Proof.of(1)
    assert proof is not None
    assert proof.verdict.ok
