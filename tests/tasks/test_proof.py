"""The nightly proof through the queue: made by a worker beside its refinements, once, however often it is asked for."""

from __future__ import annotations

import threading

from flask import Flask
from sqlalchemy import func, select

from app.config import Settings
from app.extensions import db
from app.history.proof import Proof
from app.models import COMMAND_LINE, Event, Trigger
from app.processes.broker import EmbeddedBroker
from app.refinement.start import start_refinement
from tasks.celery import UPKEEP, app
from tasks.proof import prove
from tasks.queue import send_task
from tasks.refinement import enqueue
from tests.support.factories import HOME, make_agent, remember
from tests.support.model_server import ModelServer, hang, text
from tests.support.processes import wait_for
from tests.support.tampering import tamper
from tests.support.workers import Worker

CANARY = "Wilhelmina hid the brass key under the third flagstone."


def proof() -> Proof | None:
    db.session.rollback()
    return Proof.of(HOME)


def test_beat_asks_for_it_on_the_lane_s_queue_and_lets_old_questions_lapse() -> None:
    entry = app.conf.beat_schedule["nightly proof"]

    assert app.amqp.router.route({}, entry["task"])["queue"].name == UPKEEP
    assert entry["options"]["expires"] < 3600
    assert entry["schedule"].expression == "17 * * * *"


def test_a_worker_whose_threads_all_wait_for_models_makes_it_and_says_no_content(
    app: Flask, broker: EmbeddedBroker, model: ModelServer, settings: Settings
) -> None:
    agent = make_agent(model_id="openai/scripted", api_base=model.base_url)
    remember(agent, CANARY, "Rain on Tuesday.")
    thinking = threading.Event()
    model.script(hang(thinking, text("NO")))
    tamper("UPDATE audit_log SET actor = :content WHERE agent_id = 1 AND sequence = 2", content=CANARY)
    with Worker(settings, ("--concurrency", "1")) as worker:
        assert enqueue(start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE).id)
        wait_for(lambda: len(model.requests) == 1, seconds=60)

        assert send_task(prove)
        assert send_task(prove)
        made = wait_for(proof, seconds=60)
        wait_for(lambda: "the record is not as it was written" in worker.said())
        thinking.set()

    assert (made.verdict.ok, made.verdict.agent_id) == (False, agent.id)
    assert "entry 2 (id" in str(made.verdict.first_problem)
    assert "flagstone" not in str(made.verdict) + worker.said()
    news = db.session.scalar(select(func.count()).where(Event.kind == "proof.failed", Event.account_id == HOME))
    assert news == 1
