"""`whetstone refine --wait`, killed (-9) in the middle: its refinement is carried on, or closed with its changes."""

from __future__ import annotations

import json
import threading

import pytest
from flask import Flask
from sqlalchemy import select

from app.config import Settings
from app.extensions import db
from app.history.verify import verify
from app.models import Agent, Refinement, Status
from app.processes.broker import EmbeddedBroker
from app.refinement.sweep import STALLED, close_stalled
from app.vocabulary.statuses import EARLIER_CHANGES_KEPT
from tests.support.factories import ledger
from tests.support.model_server import ModelServer, hang, text, tool_call
from tests.support.processes import wait_for
from tests.support.workers import Worker
from tests.tasks.test_worker import agent, forget_heartbeats, state_of, when_ended

__all__ = ["agent"]

pytestmark = pytest.mark.slow

DONE = tool_call("complete_refinement", summary="Done.")


@pytest.fixture
def never() -> threading.Event:
    return threading.Event()


def command(settings: Settings, agent: Agent, name: str = "command") -> Worker:
    return Worker(settings, (agent.name, "--wait", "--json"), name=name, part="refine")


def only_refinement() -> Refinement:
    db.session.rollback()
    return db.session.scalars(select(Refinement)).one()


def killed_after_a_change(settings: Settings, agent: Agent, model: ModelServer, never: threading.Event) -> Refinement:
    """It did the work itself, changed one memory, and was killed while its model was thinking."""
    _, carrier, small = (number for number, *_ in ledger(agent))
    model.script(text("YES"), tool_call("delete_memory", id=small, carried_by=carrier), hang(never))
    with command(settings, agent) as own:
        wait_for(lambda: len(model.requests) == 3, seconds=60)
        own.kill()
    row = only_refinement()
    assert (row.status, row.mutations) == (Status.RUNNING, 1)
    return row


def assert_closed_with_its_change(row: Refinement, agent: Agent, left: list[int]) -> None:
    assert (row.status, row.failure, row.mutations) == (Status.INTERRUPTED, STALLED, 1)
    assert row.reason == f"{STALLED}; {EARLIER_CHANGES_KEPT}."
    assert [number for number, *_ in ledger(agent)] == left
    verdict = verify(agent)
    assert verdict.ok, verdict


def test_what_it_did_itself_stays_and_the_next_command_closes_it_and_refines_anew(
    app: Flask, agent: Agent, model: ModelServer, settings: Settings, never: threading.Event
) -> None:
    one, two, _ = (number for number, *_ in ledger(agent))
    row = killed_after_a_change(settings, agent, model, never)
    assert close_stalled() == [], "its last sign of life is too near"
    with command(settings, agent, "too-early") as early:
        assert early.process.wait(60) == 3
        assert "already_running" in early.said()
    forget_heartbeats()

    model.script(text("YES"), DONE)
    with command(settings, agent, "next") as following:
        assert following.process.wait(60) == 0
        assert json.loads(following.said().splitlines()[-1])["status"] == "completed"

    assert_closed_with_its_change(state_of(row), agent, [one, two])
    never.set()


def test_what_it_did_itself_is_closed_by_the_next_worker(
    app: Flask, agent: Agent, broker: EmbeddedBroker, model: ModelServer, settings: Settings, never: threading.Event
) -> None:
    one, two, _ = (number for number, *_ in ledger(agent))
    row = killed_after_a_change(settings, agent, model, never)
    forget_heartbeats()
    with Worker(settings, ("--concurrency", "1")):
        assert_closed_with_its_change(when_ended(row), agent, [one, two])
    never.set()


def test_what_a_worker_does_for_it_goes_on_to_its_end(
    agent: Agent, worker: Worker, model: ModelServer, settings: Settings
) -> None:
    thinking = threading.Event()
    _, carrier, small = (number for number, *_ in ledger(agent))
    deletion = tool_call("delete_memory", id=small, carried_by=carrier)
    model.script(text("YES"), hang(thinking, deletion), DONE)
    with command(settings, agent) as watching:
        wait_for(lambda: len(model.requests) == 2, seconds=60)
        watching.kill()
    thinking.set()
    row = when_ended(only_refinement())
    assert (row.status, row.mutations) == (Status.COMPLETED, 1)
