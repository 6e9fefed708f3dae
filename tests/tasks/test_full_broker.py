"""A broker whose disk is full: the worker waits for it, keeps what it carries, and works on when there is room."""

from __future__ import annotations

import resource
import threading

from flask import Flask
from redis import Redis

from app.events.broker import broker_namespace
from app.health import look_around
from app.models import Agent, Status
from app.processes.broker import EmbeddedBroker
from tasks.refinement import worker_answers
from tests.cli.test_broker import let_files_grow, pid_of, trouble_of_ping
from tests.support.model_server import ModelServer, hang, text, tool_call
from tests.support.processes import wait_for
from tests.support.workers import Worker
from tests.tasks.test_worker import agent, begin_one, when_ended

__all__ = ["agent"]


def test_a_worker_outlives_a_broker_that_has_no_room(
    agent: Agent, app: Flask, broker: EmbeddedBroker, redis: Redis, worker: Worker, model: ModelServer
) -> None:
    thinking = threading.Event()
    model.script(text("YES"), hang(thinking, tool_call("complete_refinement", summary="Done.")))
    refinement = begin_one(agent)
    wait_for(lambda: len(model.requests) == 2)

    let_files_grow(pid_of(broker), 4_000)
    redis.set(f"{broker_namespace()}filler", "x" * 10_000)
    wait_for(lambda: trouble_of_ping(redis))
    wait_for(lambda: "takes nothing: " in worker.said(), seconds=30)
    found = look_around()
    assert found["ready"] is False
    assert str(found["broker"]).startswith("takes nothing: ")
    thinking.set()
    assert when_ended(refinement).status == Status.COMPLETED

    let_files_grow(pid_of(broker), resource.RLIM_INFINITY)
    wait_for(lambda: worker_answers(0.5), seconds=60)
    assert worker.process.poll() is None
