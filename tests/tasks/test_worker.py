"""Real worker processes over a real broker: what they carry, and what becomes of it when something dies."""

from __future__ import annotations

import base64
import json
import signal
import threading
from datetime import UTC, datetime, timedelta

import pytest
from flask import Flask
from redis import Redis
from sqlalchemy import func, select, update
from sqlalchemy import text as sql

from app.config import Settings
from app.events.broker import broker_namespace
from app.extensions import db, writing
from app.keys.agent_keys import has_keys
from app.models import COMMAND_LINE, Account, Agent, Event, Refinement, Status, Trigger
from app.processes.broker import EmbeddedBroker
from app.refinement.start import request_stop, start_refinement
from app.refinement.sweep import CLOSED, close_stalled, find_lost_starts
from app.vocabulary.statuses import EARLIER_CHANGES_KEPT
from tasks import keys
from tasks.refinement import enqueue, worker_answers
from tests.support.clock import FakeClock
from tests.support.factories import ledger, make_agent, remember
from tests.support.model_server import ModelServer, hang, text, tool_call, tool_calls
from tests.support.processes import wait_for
from tests.support.workers import REDIS, Worker, everything_in

CANARY = "Wilhelmina hid the brass key under the third flagstone."
TEA = "Ann likes tea, and Ann also likes tea with milk, she says. "
RAIN = "Rain on Tuesday."


@pytest.fixture
def agent(app: Flask, model: ModelServer) -> Agent:
    """An agent whose model is the scripted server."""
    made = make_agent(model_id="openai/scripted", api_base=model.base_url)
    remember(made, CANARY, f"{TEA * 4}{RAIN}", RAIN)
    return made


def begin_one(agent: Agent) -> Refinement:
    refinement = start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE)
    assert enqueue(refinement.id)
    return refinement


def state_of(refinement: Refinement) -> Refinement:
    db.session.rollback()
    return db.session.get_one(Refinement, refinement.id, populate_existing=True)


def when_ended(refinement: Refinement) -> Refinement:
    return wait_for(lambda: None if (row := state_of(refinement)).is_open else row, seconds=60)


def times_begun(refinement: Refinement) -> int | None:
    query = select(func.count()).where(Event.refinement_id == refinement.id, Event.kind == "refinement.begun")
    return db.session.scalar(query)


def row_of(refinement: Refinement) -> tuple[object, ...]:
    db.session.rollback()
    found = db.session.execute(sql("SELECT * FROM refinements WHERE id = :id"), {"id": refinement.id}).one()
    return tuple(found)


def events_of(refinement: Refinement) -> list[str]:
    db.session.rollback()
    return list(db.session.scalars(select(Event.kind).where(Event.refinement_id == refinement.id).order_by(Event.id)))


def forget_heartbeats() -> None:
    """As if two minutes had passed."""
    with writing():
        db.session.execute(update(Refinement).values(heartbeat_at=datetime.now(UTC) - timedelta(minutes=2)))


def test_a_refinement_is_carried_from_the_queue_and_no_content_leaves_the_silo(
    agent: Agent, worker: Worker, model: ModelServer, settings: Settings, redis: Redis
) -> None:
    model.script(text(f"YES. I remember: {CANARY}"), tool_call("complete_refinement", summary=f"Kept: {CANARY}"))

    row = when_ended(begin_one(agent))

    assert (row.status, row.reason, row.turns) == (Status.COMPLETED, None, 1)
    assert any(CANARY in str(request.messages) for request in model.requests)
    redis.bgrewriteaof()
    wait_for(lambda: not redis.info("persistence")["aof_rewrite_in_progress"])
    for path, content in everything_in(settings.data):
        assert b"flagstone" not in content, path
    for key in redis.scan_iter():
        assert b"flagstone" not in (redis.dump(key) or b""), key


def test_messages_hold_ids_only_in_this_installation_s_namespace(
    agent: Agent, broker: EmbeddedBroker, redis: Redis
) -> None:
    refinement = begin_one(agent)

    (raw,) = redis.lrange(f"{broker_namespace()}refine", 0, -1)
    message = json.loads(raw)
    assert json.loads(base64.b64decode(message["body"]))[0] == [refinement.id]
    assert message["headers"]["argsrepr"] == f"('{refinement.id}',)"
    assert all(key.startswith(broker_namespace().encode()) for key in redis.scan_iter())


def test_one_refinement_told_to_two_workers_many_times_runs_once(
    agent: Agent, worker: Worker, model: ModelServer, settings: Settings
) -> None:
    model.script(text("YES"), tool_call("complete_refinement", summary="Nothing to do."))
    with Worker(settings, ("--concurrency", "4"), name="second"):
        refinement = start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE)
        for _ in range(10):
            assert enqueue(refinement.id)

        row = when_ended(refinement)

    assert row.status == Status.COMPLETED
    assert times_begun(refinement) == 1
    assert len(model.requests) == 2


def test_a_full_worker_still_answers_does_upkeep_and_stops_before_the_next_change(
    agent: Agent, app: Flask, broker: EmbeddedBroker, model: ModelServer, settings: Settings
) -> None:
    before, thinking = ledger(agent), threading.Event()
    model.script(text("YES"), hang(thinking, tool_call("delete_memory", id=before[2][0], carried_by=before[1][0])))
    with writing():
        Account.lock(1)
        keyless = Agent.create(1, name="new", model_id="whetstone/offline", by=COMMAND_LINE)
    with Worker(settings, ("--concurrency", "1")):
        refinement = begin_one(agent)
        wait_for(lambda: len(model.requests) == 2, seconds=60)

        assert worker_answers(2)
        assert keys.enqueue(keyless.id)
        wait_for(lambda: db.session.rollback() or has_keys(keyless))
        request_stop(refinement.id, by=COMMAND_LINE)
        thinking.set()
        row = when_ended(refinement)

    assert (row.status, row.mutations) == (Status.STOPPED, 0)
    assert ledger(agent) == before


def test_a_killed_worker_s_refinement_is_interrupted_and_its_agent_free(
    agent: Agent, app: Flask, broker: EmbeddedBroker, model: ModelServer, settings: Settings
) -> None:
    memory = ledger(agent)[1][0]
    shorter = f"{TEA * 3}{RAIN}"
    model.script(text("YES"), tool_call("update_memory", id=memory, content=shorter), hang(threading.Event()))
    with Worker(settings) as first:
        killed = begin_one(agent)
        wait_for(lambda: len(model.requests) == 3, seconds=60)
        first.kill()
    assert close_stalled() == []
    forget_heartbeats()

    assert close_stalled() == [killed.id]

    row = state_of(killed)
    assert (row.status, row.mutations) == (Status.INTERRUPTED, 1)
    model.script(text("YES"), tool_call("complete_refinement", summary="Done."))
    with Worker(settings, name="second"):
        again = when_ended(begin_one(agent))
    assert again.status == Status.COMPLETED
    assert again.mass_before == row.mass_after


def test_a_worker_that_was_stopped_past_its_heartbeat_and_goes_on_writes_nothing_more(
    agent: Agent, app: Flask, broker: EmbeddedBroker, model: ModelServer, settings: Settings
) -> None:
    before, thinking = ledger(agent), threading.Event()
    deletion = {"id": before[2][0], "carried_by": before[1][0]}
    delete = hang(thinking, tool_calls(("delete_memory", deletion), ("search_memories", {"query": "a"})))
    model.script(text("YES"), delete)
    other = make_agent("other", model_id="openai/scripted", api_base=model.base_url)
    remember(other, "Bob likes rum.")
    with Worker(settings) as late:
        stalled = begin_one(agent)
        wait_for(lambda: len(model.requests) == 2, seconds=60)
        late.process.send_signal(signal.SIGSTOP)
        forget_heartbeats()
        assert close_stalled() == [stalled.id]
        ended, events = row_of(stalled), events_of(stalled)

        thinking.set()
        late.process.send_signal(signal.SIGCONT)
        model.script(text("YES"), tool_call("complete_refinement", summary="Done."))
        following = when_ended(begin_one(other))
        late.stop()
        late.process.wait(30)

    assert (following.status, len(model.requests)) == (Status.COMPLETED, 4)
    assert (row_of(stalled), events_of(stalled), ledger(agent)) == (ended, events, before)
    assert "Traceback" not in late.said()


def test_a_worker_that_only_begins_to_start_closes_what_a_dead_one_left(
    agent: Agent, app: Flask, broker: EmbeddedBroker, model: ModelServer, settings: Settings
) -> None:
    """Without beat, and without a message to any queue."""
    model.script(text("YES"), hang(threading.Event()))
    with Worker(settings) as first:
        killed = begin_one(agent)
        wait_for(lambda: len(model.requests) == 2, seconds=60)
        first.kill()
    forget_heartbeats()

    with Worker(settings, name="second"):
        assert when_ended(killed).status == Status.INTERRUPTED


@pytest.mark.skipif(bool(REDIS), reason="a server of one's own is not for tests to restart")
def test_a_restart_of_the_broker_is_survived_and_what_was_lost_is_found(
    agent: Agent, worker: Worker, broker: EmbeddedBroker, model: ModelServer, clock: FakeClock
) -> None:
    model.script(text("YES"), tool_call("complete_refinement", summary="Done."))
    assert broker._running is not None
    broker._running.stop()
    refinement = start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE)
    assert not enqueue(refinement.id)
    assert not worker_answers(0.2)

    broker.start()
    wait_for(lambda: worker_answers(1), seconds=60)
    assert worker.process.poll() is None
    assert state_of(refinement).status == Status.QUEUED
    clock.advance(seconds=61)
    for lost in find_lost_starts():
        assert enqueue(lost)

    assert when_ended(refinement).status == Status.COMPLETED


@pytest.mark.slow
def test_a_worker_told_to_end_leaves_in_time_and_says_what_it_interrupted(
    agent: Agent, worker: Worker, model: ModelServer, redis: Redis
) -> None:
    model.script(text("YES"), hang(threading.Event()))
    refinement = begin_one(agent)
    wait_for(lambda: len(model.requests) == 2, seconds=60)

    worker.stop()
    wait_for(lambda: redis.info("clients")["blocked_clients"] == 0)
    second = make_agent("second")
    remember(second, "Bob likes rum.")
    waiting = begin_one(second)
    worker.process.wait(20)

    row = state_of(refinement)
    assert (row.status, row.failure) == (Status.INTERRUPTED, CLOSED)
    assert row.reason == f"{CLOSED}; {EARLIER_CHANGES_KEPT}."
    assert state_of(waiting).status == Status.QUEUED


@pytest.mark.slow
def test_beat_starts_what_is_due_at_its_minute(
    agent: Agent, worker: Worker, model: ModelServer, settings: Settings
) -> None:
    model.script(text("YES"), tool_call("complete_refinement", summary="Nothing to do."))
    every_minute = {"WHETSTONE_SCHEDULE": "* * * * *"}
    with Worker(settings, environment=every_minute, name="beat", part="beat") as beat:
        row = wait_for(lambda: Refinement.open_of(agent.id) or db.session.rollback(), seconds=90)
        beat.stop()
        beat.process.wait(20)

    assert row.trigger == Trigger.WEEKLY
    assert row.started_by == "system:beat"
    assert when_ended(row).status == Status.COMPLETED
    assert "Sending due task weekly sweep" in beat.said()
    assert "lost" not in beat.said()


def test_without_the_master_key_a_worker_refuses_to_start(
    app: Flask, broker: EmbeddedBroker, settings: Settings
) -> None:
    with Worker(settings, environment={"WHETSTONE_MASTER_KEY_FILE": "/nowhere/master.key"}) as refused:
        assert refused.process.wait(30) == 1

    assert "master key" in refused.said()
    assert "Traceback" not in refused.said()
