"""What an admin does in the browser is told by a running worker: the web process has no key of the journal."""

from __future__ import annotations

from flask import Flask
from sqlalchemy import select

from app.extensions import db, writing
from app.keys.agent_keys import open_keys
from app.models import Actor, ActorKind, Agent, Memory, Source
from tasks.celery import UPKEEP, app
from tasks.queue import send_task
from tasks.upkeep import tell_human_acts
from tests.support.clock import FakeClock
from tests.support.factories import make_agent, remember
from tests.support.processes import wait_for
from tests.support.workers import Worker

ANN = Actor(ActorKind.USER, "ann@example.org")


def test_beat_looks_every_minute_beside_what_asks_models() -> None:
    entry = app.conf.beat_schedule["acts to tell of"]

    assert (entry["task"], entry["schedule"].total_seconds()) == (tell_human_acts.name, 60)
    assert app.amqp.router.route({}, tell_human_acts.name)["queue"].name == UPKEEP


def test_a_worker_tells_what_an_admin_did_once_however_often_it_is_sent(
    app: Flask, worker: Worker, clock: FakeClock
) -> None:
    agent = make_agent()
    (number,) = remember(agent, "Ann likes tea.")
    clock.advance(minutes=-2)
    with writing():
        locked = Agent.lock(agent.id)
        Memory.lock_core(locked, number).protect(locked, by=ANN)
    clock.advance(minutes=2)

    for _ in range(3):
        assert send_task(tell_human_acts)

    (note,) = wait_for(lambda: notes(agent), seconds=60)
    assert note.startswith("A human who runs this system, ann@example.org, changed my memories on ")
    assert note.endswith(f": made memory {number} constitutional.")
    assert send_task(tell_human_acts)
    assert len(notes(agent)) == 1


def notes(agent: Agent) -> list[str]:
    db.session.rollback()
    keys = open_keys(db.session.get_one(Agent, agent.id, populate_existing=True))
    found = db.session.scalars(select(Memory).where(Memory.agent_id == agent.id, Memory.source == Source.SYSTEM))
    return [keys.reveal_memory(note.id, note.content) for note in found]
