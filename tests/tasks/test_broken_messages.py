"""Messages that this program did not write: dropped, named in the log without their content, and of no effect."""

from __future__ import annotations

import base64
import gzip
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask
from redis import Redis

from app.config import Settings
from app.events.broker import broker_namespace
from app.extensions import db
from app.models import COMMAND_LINE, Refinement, Status, Trigger
from app.processes.broker import EmbeddedBroker
from app.refinement.start import start_refinement
from tasks.celery import INTERACTIVE, REFINE, UPKEEP
from tasks.refinement import enqueue, worker_answers
from tasks.transport import MalformedMessage, rebuild_message
from tests.support.factories import make_agent, remember
from tests.support.processes import wait_for
from tests.support.workers import Worker

SECRET = "Wilhelmina"
QUEUES = (REFINE, UPKEEP, INTERACTIVE)


def message(**changes: Any) -> dict[str, Any]:
    """One that a worker takes: a task with an id, as `send` writes it. `changes` go into its headers."""
    number = "1c7b7f4e-0000-4000-8000-000000000000"
    headers = {
        "lang": "py",
        "task": "tasks.refinement.refine",
        "id": number,
        "eta": None,
        "expires": None,
        "retries": 0,
        "timelimit": [None, None],
        "root_id": number,
        "argsrepr": f"('{SECRET}',)",
    }
    return {
        "body": body([[SECRET], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": headers | changes,
        "properties": {
            "delivery_info": {"exchange": "", "routing_key": REFINE},
            "delivery_mode": 2,
            "priority": 0,
            "body_encoding": "base64",
            "delivery_tag": "2423cf6a-b4fd-4eaf-a56f-c5a606839fe6",
        },
    }


def body(of: Any) -> str:
    return base64.b64encode(json.dumps(of).encode()).decode()


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in message().items() if key != name}


def with_ids(ids: Any, named: Any = None, more: Any = None) -> dict[str, Any]:
    nothing = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    return message() | {"body": body([ids, {} if named is None else named, nothing if more is None else more])}


def of_type(kind: str, raw: bytes) -> dict[str, Any]:
    return message() | {"content-type": kind, "body": base64.b64encode(raw).decode()}


def with_property(**changes: Any) -> dict[str, Any]:
    made = message()
    return made | {"properties": made["properties"] | changes}


class Ends:
    """Would end the process that unpickled it."""

    def __reduce__(self) -> tuple[Callable[[int], None], tuple[int]]:
        import os

        return os._exit, (9,)


BROKEN: dict[str, Any] = {
    "a list for its task": message(task=[SECRET]),
    "a mapping for its task": message(task={SECRET: 1}),
    "null for its task": message(task=None),
    "a number for its task": message(task=7),
    "no task": {**message(), "headers": {}},
    "a task of nobody": message(task=f"other.{SECRET}"),
    "a task of Celery's own": message(task="celery.chunks"),
    "headers that are a list": {**message(), "headers": [SECRET]},
    "no headers": without("headers"),
    "no properties": without("properties"),
    "no body": without("body"),
    "a body that is not base64": message() | {"body": "§§§"},
    "a body that is not JSON": of_type("application/json", b"\xff{" + SECRET.encode()),
    "a body of one list": message() | {"body": body([SECRET])},
    "ids that are a text": with_ids(SECRET),
    "ids that are mappings": with_ids([{SECRET: 1}]),
    "named arguments": with_ids([], {SECRET: 1}),
    "a callback": with_ids([], None, {"callbacks": [SECRET], "errbacks": None, "chain": None, "chord": None}),
    "an id that is a list": message(id=[SECRET]),
    "a nonsense eta": message(eta=SECRET),
    "an eta far away": message(eta="9999-12-31T23:59:59+00:00"),
    "a nonsense expiry": message(expires=SECRET),
    "an expiry without a zone": message(expires="2026-11-22T14:59:09"),
    "an expiry that is a list": message(expires=[SECRET]),
    "nonsense retries": message(retries={SECRET: 1}),
    "a nonsense time limit": message(timelimit=SECRET),
    "compression": message(compression="application/x-gzip")
    | {"body": base64.b64encode(gzip.compress(b"[" * 1_000_000)).decode()},
    "pickle": of_type("application/x-python-serialize", pickle.dumps(Ends())),
    "yaml": of_type("application/x-yaml", b"!!python/object/apply:os._exit [9]"),
    "a type of nobody": of_type(SECRET, b"x"),
    "a list for its type": message() | {"content-type": [SECRET]},
    "a list for its tag": with_property(delivery_tag=[SECRET]),
    "no tag": with_property(delivery_tag=None),
    "an encoding of nobody": with_property(body_encoding=SECRET),
    "an enormous one": with_ids([SECRET * 100_000]),
    "brackets without end": of_type("application/json", b"[" * 100_000),
    "a number of 10,000 digits": of_type("application/json", b"[[" + b"9" * 10_000 + b"],{},{}]"),
}

NO_JSON = {
    "no JSON": b"{" + SECRET.encode(),
    "no text": b"\xff\xfe" + SECRET.encode(),
    "nothing": b"",
    "a number": b"7",
    "a list": b"[]",
    "null": b"null",
    "a date that is none": b'{"__type__": "datetime", "__value__": "Wilhelmina"}',
    "an unhashable type": b'{"__type__": [], "__value__": 1}',
    "deep brackets": b"[" * 1_000_000,
}


@pytest.mark.parametrize("kind", BROKEN)
def test_it_refuses_what_it_did_not_write(kind: str) -> None:
    with pytest.raises(MalformedMessage) as refused:
        rebuild_message(BROKEN[kind], REFINE)
    assert SECRET not in str(refused.value)


def test_it_delivers_a_message_of_ours_without_what_is_not_needed() -> None:
    sound = rebuild_message(message(shadow=SECRET, stamps={SECRET: 1}, chord=SECRET, retries=5), REFINE)

    assert rebuild_message(sound, REFINE) == sound
    assert (sound["body"], sound["headers"]["task"]) == (message()["body"], "tasks.refinement.refine")
    assert sound["headers"]["retries"] == 0
    assert SECRET not in json.dumps(sound)


def test_broken_messages_end_no_worker_and_stay_in_no_queue(
    app: Flask, broker: EmbeddedBroker, settings: Settings, redis: Redis
) -> None:
    keys = [broker_namespace() + queue for queue in QUEUES]
    items = [*(json.dumps(each).encode() for each in BROKEN.values()), *NO_JSON.values()]
    with Worker(settings, ("--concurrency", "2")) as worker:
        wait_for(lambda: worker_answers(0.5), seconds=60)
        for key in keys:
            redis.lpush(key, *items)
        agent = make_agent(model_id="whetstone/offline")
        remember(agent, "Ann likes tea.", "Ann likes tea.")
        refinement = start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE)
        assert enqueue(refinement.id)

        row = wait_for(lambda: ended(refinement), seconds=60)
        wait_for(lambda: not any(map(redis.llen, keys)), seconds=60)

        assert worker_answers(5)
        assert worker.process.poll() is None
        assert row.status == Status.COMPLETED
        assert redis.hlen(f"{broker_namespace()}unacked") == 0
        dropped = [line for line in worker.said().splitlines() if "message dropped" in line]
        assert len(dropped) == len(items) * len(keys)
        assert SECRET not in worker.said()


def ended(refinement: Refinement) -> Refinement | None:
    db.session.rollback()
    row = db.session.get_one(Refinement, refinement.id, populate_existing=True)
    return None if row.is_open else row
