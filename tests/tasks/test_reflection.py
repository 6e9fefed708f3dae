"""Reflections through the queue, by real workers and a model over HTTP: once each, and no content on the way."""

from __future__ import annotations

import json
import threading

from flask import Flask
from redis import Redis

from app.config import Settings
from app.extensions import writing
from app.models import COMMAND_LINE, Action, Agent, Intake, IntakeStatus, MemoryType
from app.reflection.conversation import hand_in
from tasks.celery import REFINE, UPKEEP, app
from tasks.queue import send_task
from tasks.reflection import enqueue, hear, promote, start_due
from tasks.upkeep import find_lost_intakes
from tests.reflection.conftest import jot, texts
from tests.support.canary import assert_nowhere, assert_nowhere_at_rest, canary
from tests.support.clock import FakeClock
from tests.support.factories import make_agent
from tests.support.model_server import ModelServer, hang, text
from tests.support.processes import wait_for
from tests.support.rows import entries_of, fresh
from tests.support.workers import Worker


def speaking(model: ModelServer, name: str = "wren") -> Agent:
    """An agent whose model is the scripted server."""
    return make_agent(name, model_id="openai/scripted", api_base=model.base_url)


def said(*, core: list[str] | None = None, journal: list[str] | None = None) -> str:
    return json.dumps({"core": core or [], "journal": journal or []}, ensure_ascii=False)


def settled(intake: Intake) -> Intake:
    return wait_for(lambda: None if (row := fresh(intake)).status == IntakeStatus.WAITING else row, seconds=60)


def reflected(agent: Agent) -> dict[str, object]:
    return dict(wait_for(lambda: entries_of(agent, Action.REFLECTION), seconds=60)[-1].data)


def queue_of(task: str) -> str:
    return str(app.amqp.router.route({}, task)["queue"].name)


def test_what_asks_a_model_goes_to_refine_and_beat_s_hourly_look_lapses() -> None:
    entry = app.conf.beat_schedule["daily reflection"]

    assert entry["task"] == start_due.name
    assert entry["schedule"].expression == "47 * * * *"
    assert entry["options"]["expires"] < 3600
    assert {queue_of(task.name) for task in (hear, promote)} == {REFINE}
    assert queue_of(start_due.name) == UPKEEP


def test_a_conversation_and_a_promotion_leave_no_content_anywhere(
    app: Flask, worker: Worker, model: ModelServer, settings: Settings, redis: Redis
) -> None:
    agent = speaking(model)
    talk = [{"role": "user", "content": canary("asked")}, {"role": "assistant", "content": canary("answered")}]
    heard = hand_in(agent.id, talk, agent.as_actor)
    broken = hand_in(agent.id, talk, agent.as_actor)
    model.script(
        text(f"```json\n{said(core=[canary('core')], journal=[canary('journal')])}\n```"),
        text(f"{canary('babble')} {said(core=[canary('core')])}"),
    )

    assert enqueue(heard.id)
    assert (settled(heard).status, settled(heard).imported) == (IntakeStatus.TAKEN, 2)
    assert enqueue(broken.id)
    assert settled(broken).status == IntakeStatus.FAILED
    note = entries_of(agent, Action.CREATE)[0].data["ids"][1]
    model.script(text(json.dumps({"promote": [note]})))
    assert send_task(start_due)

    assert reflected(agent)["promoted"] == 1
    assert texts(agent, MemoryType.CORE) == [canary("core"), canary("journal")]
    asked = json.dumps([request.messages for request in model.requests], ensure_ascii=False)
    assert all(place in asked for place in ("0asked0", "0answered0", "0core0", "0journal0"))
    redis.bgrewriteaof()
    wait_for(lambda: not redis.info("persistence")["aof_rewrite_in_progress"])
    for key in redis.scan_iter():
        assert_nowhere(bytes(key) + (redis.dump(key) or b""), "the broker")
    assert_nowhere(worker.said().encode(), "the worker's log")
    assert_nowhere_at_rest(app)


def test_told_many_times_to_two_workers_each_is_asked_once(
    app: Flask, worker: Worker, model: ModelServer, settings: Settings
) -> None:
    agent, other = speaking(model), speaking(model, "other")
    jot(other, "It rained.")
    thinking = threading.Event()
    model.always(hang(thinking, text(said(journal=["Dora came."]))))
    intake = hand_in(agent.id, [{"role": "user", "content": "Dora came."}], agent.as_actor)
    with Worker(settings, ("--concurrency", "4"), name="second"):
        for _ in range(5):
            assert enqueue(intake.id)
            assert send_task(start_due)
        wait_for(lambda: len(model.requests) == 2, seconds=60)
        thinking.set()
        assert settled(intake).imported == 1
        assert reflected(other)["error"] == "malformed"

    assert len(model.requests) == 2
    assert len(entries_of(other, Action.REFLECTION)) == 1


def test_what_was_lost_is_found_and_each_kind_taken_in_its_own_way(
    app: Flask, worker: Worker, model: ModelServer, clock: FakeClock
) -> None:
    agent = speaking(model)
    model.script(text(said(journal=["Dora came."])))
    clock.advance(minutes=-2)
    conversation = hand_in(agent.id, [{"role": "user", "content": "Dora came."}], agent.as_actor)
    with writing():
        lines = Intake.receive(Agent.lock(agent.id), '{"content": "Imported."}', by=COMMAND_LINE)
    clock.advance(minutes=2)

    assert send_task(find_lost_intakes)

    assert [settled(each).error for each in (conversation, lines)] == [None, None]
    assert texts(agent, MemoryType.CORE) == ["Imported."]
    assert texts(agent, MemoryType.JOURNAL) == ["Dora came."]
    assert len(model.requests) == 1


def test_the_demo_s_agents_are_never_asked(app: Flask) -> None:
    """They speak through whetstone/offline, which is no mind."""
    from app.demo import make_demo_agents
    from app.reflection.promotion import find_due
    from tests.support.factories import HOME

    agents = make_demo_agents(HOME, COMMAND_LINE)
    for agent in agents:
        jot(agent, "It rained.")

    assert len(agents) == 2
    assert find_due(app.extensions["clock"].now()) == []
