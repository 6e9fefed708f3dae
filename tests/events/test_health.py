"""What machines ask: whether this process lives, whether all parts answer, and how many of what there are."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from flask import Flask
from redis import Redis

from app.config import Settings
from app.events.broker import broker_namespace
from app.extensions import db
from app.health import CachedAnswer, count
from app.history.stops import review_stop
from app.models import COMMAND_LINE, Trigger, User
from app.processes.asgi import WithoutQuery
from app.processes.broker import EmbeddedBroker
from app.refinement.start import start_refinement
from tasks.refinement import enqueue
from tests.support.factories import make_agent, remember
from tests.support.pages import Page, serving
from tests.support.processes import wait_for
from tests.support.tampering import tamper
from tests.support.workers import Worker


def test_it_is_ready_once_a_worker_answers_and_not_after_it_died(
    app: Flask, web: Flask, broker: EmbeddedBroker, settings: Settings
) -> None:
    client = web.test_client()
    assert client.get("/healthz").json == {"ok": True}
    with Worker(settings):
        answer = wait_for(lambda: found if (found := client.get("/readyz")).status_code == 200 else None, seconds=60)
        assert answer.json == {"ready": True, "database": "ok", "broker": "ok", "worker": "ok"}

    answer = wait_for(lambda: found if (found := client.get("/readyz")).status_code == 503 else None)
    assert answer.json["worker"] == "none answered within 2 seconds"
    assert answer.json["broker"] == "ok"
    assert client.get("/healthz").status_code == 200


def test_without_a_broker_it_says_so(app: Flask, web: Flask) -> None:
    answer = web.test_client().get("/readyz")

    assert answer.status_code == 503
    assert answer.json == {
        "ready": False,
        "database": "ok",
        "broker": "none is running, and REDIS_URL is not set",
        "worker": "not asked: the broker does not answer",
    }


def test_a_question_that_nobody_answered_does_not_stay_in_the_queue(
    app: Flask, web: Flask, broker: EmbeddedBroker
) -> None:
    assert web.test_client().get("/readyz").status_code == 503

    with Redis.from_url(broker.url) as redis:
        assert 0 < redis.ttl(f"{broker_namespace()}interactive") <= 30


def test_a_database_that_is_away_is_said_and_nothing_raised(
    app: Flask, web: Flask, broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sqlalchemy.exc import OperationalError

    def away(*_: object, **__: object) -> None:
        raise OperationalError("SELECT secret", {}, Exception("secret"))

    monkeypatch.setattr(db.session, "execute", away)
    client = web.test_client()

    assert client.get("/readyz").json["database"] == "does not answer (OperationalError)"
    assert "whetstone_database_up 0.0" in client.get("/metrics").text


def test_metrics_count_and_hold_no_names(app: Flask, web: Flask, broker: EmbeddedBroker, admin: User) -> None:
    agent = make_agent("a very private name")
    remember(agent, "Ann likes tea.")
    assert enqueue(start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE).id)
    with serving(web) as site, Page(site, "overview", site.cookie_of(admin)):
        wait_for(lambda: site.hub.open_streams == 1)

        said = web.test_client().get("/metrics").text

    for line in (
        'whetstone_refinements{status="queued"} 1.0',
        'whetstone_refinements{status="completed"} 0.0',
        'whetstone_queue_length{queue="refine"} 1.0',
        "whetstone_mutations 0.0",
        "whetstone_agents 1.0",
        "whetstone_agents_stopped 0.0",
        "whetstone_log_broken 0.0",
        "whetstone_open_streams 1.0",
        "whetstone_database_up 1.0",
    ):
        assert line in said.splitlines()
    assert "private" not in said


def test_metrics_count_the_agents_that_are_stopped_and_say_that_the_log_is_broken(
    app: Flask, web: Flask, broker: EmbeddedBroker
) -> None:
    make_agent("ezra", model_id="openai/m")
    for name in ("mina", "otis"):
        agent = make_agent(name, model_id="openai/m").id
        tamper("UPDATE agents SET model_id = 'openai/other' WHERE id = :id", id=agent)
        review_stop(agent)
    said = web.test_client().get("/metrics").text.splitlines()
    assert {"whetstone_agents 3.0", "whetstone_agents_stopped 2.0", "whetstone_log_broken 0.0"} <= {*said}

    tamper("DELETE FROM log_leaves")

    assert count()["log_broken"] == {"": 1}


def test_many_askers_cost_one_answer() -> None:
    asked: list[int] = []

    def find_out() -> int:
        asked.append(1)
        return len(asked)

    kept, eager = CachedAnswer(find_out, 60), CachedAnswer(find_out, 60, good=lambda number: number > 3)
    assert [kept.get(), kept.get()] == [1, 1]
    assert [eager.get(), eager.get(), eager.get(), eager.get()] == [2, 3, 4, 4]


def test_everybody_who_waited_gets_the_answer_that_was_found_meanwhile() -> None:
    begun, go_on, asked = threading.Event(), threading.Event(), []

    def find_out() -> int:
        asked.append(1)
        begun.set()
        go_on.wait(10)
        return len(asked)

    kept = CachedAnswer(find_out, 0, good=lambda _: False)
    with ThreadPoolExecutor(5) as pool:
        first = pool.submit(kept.get)
        begun.wait(10)
        others = [pool.submit(kept.get) for _ in range(4)]
        wait_for(lambda: pool._work_queue.empty())
        go_on.set()
        assert first.result() == 1
        wait(others, 10)
    assert len(asked) < 5


def test_access_logs_name_no_query_and_no_health_checks() -> None:
    def kept(path: str, status: int) -> str | None:
        line = '%s - "%s %s HTTP/%s" %d'
        record = logging.LogRecord("x", logging.INFO, "", 0, line, ("127.0.0.1:1", "GET", path, "1.1", status), None)
        return record.getMessage() if WithoutQuery().filter(record) else None

    assert kept("/agents?search=secret", 200) == '127.0.0.1:1 - "GET /agents HTTP/1.1" 200'
    assert kept("/healthz?x=1", 200) is None
    assert kept("/readyz", 503) is None
