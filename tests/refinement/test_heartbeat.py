"""The heartbeat: a slow model is no dead worker, and nobody's heart beats for another."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest
from flask import Flask
from sqlalchemy import update

from app.extensions import db, writing
from app.models import Agent, Refinement, Status
from app.refinement import sweep
from app.refinement.guard import Claim
from app.refinement.heartbeat import Heartbeat, heartbeat, set_heartbeats
from app.refinement.sweep import close_stalled, keep_closing
from tests.support.factories import Running, begin, make_agent, remember
from tests.support.processes import wait_for

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
def running(app: Flask, agent: Agent) -> Running:
    return running_of(agent)


def running_of(agent: Agent, worker: str = "test") -> Running:
    remember(agent, "Ann likes tea.")
    run = begin(agent, worker=worker)
    with writing():
        db.session.execute(update(Refinement).values(heartbeat_at=LONG_AGO))
    return run


def last_beat(run: Running) -> datetime:
    found = run.reload().heartbeat_at
    assert found is not None
    return found


def test_it_beats_by_the_database_s_clock_while_the_model_is_silent(app: Flask, running: Running) -> None:
    fast = Heartbeat(app, interval=0.02)
    with fast.beating(running.claim):
        first = wait_for(lambda: at if (at := last_beat(running)) > LONG_AGO else None)
        assert abs(first - datetime.now(UTC)) < timedelta(seconds=60)
        wait_for(lambda: last_beat(running) > first)
        assert close_stalled() == []
    fast.stop()


def test_it_ends_with_the_work(app: Flask, running: Running) -> None:
    fast = Heartbeat(app, interval=0.02)
    with fast.beating(running.claim):
        assert fast.held() == {running.claim.refinement_id: "test"}

    assert fast.held() == {}
    fast.stop()


def test_one_beat_serves_all_that_a_process_holds(app: Flask, running: Running) -> None:
    other = running_of(make_agent("other"))

    set_heartbeats({run.claim.refinement_id: run.claim.worker for run in (running, other)})

    assert last_beat(running) > LONG_AGO
    assert last_beat(other) > LONG_AGO


def test_a_worker_that_lost_its_refinement_does_not_keep_it_alive(running: Running) -> None:
    set_heartbeats({running.claim.refinement_id: "somebody else"})

    assert last_beat(running) == LONG_AGO
    assert close_stalled() == [running.claim.refinement_id]


def test_an_ended_refinement_beats_no_more(running: Running) -> None:
    assert running.tool.execute("complete", summary="Done.")["type"] == "refinement_complete"

    set_heartbeats({running.claim.refinement_id: running.claim.worker})

    assert running.reload().status == Status.COMPLETED
    assert last_beat(running) == LONG_AGO


def test_a_missed_beat_does_not_end_the_heart(app: Flask, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    from app.errors import Unavailable
    from app.refinement import heartbeat

    failed = threading.Event()

    def fail_once(held: dict[str, str]) -> None:
        if not failed.is_set():
            failed.set()
            raise Unavailable
        set_heartbeats(held)

    monkeypatch.setattr(heartbeat, "set_heartbeats", fail_once)
    fast = Heartbeat(app, interval=0.02)
    with fast.beating(running.claim):
        wait_for(lambda: last_beat(running) > LONG_AGO)
    fast.stop()
    assert failed.is_set()


def test_a_process_has_one_heart(app: Flask) -> None:
    assert heartbeat() is heartbeat()
    with heartbeat().beating(Claim("none", "nobody")):
        assert heartbeat().held() == {"none": "nobody"}


def test_stalled_refinements_are_closed_without_beat_and_after_a_look_that_failed(
    app: Flask, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.errors import Unavailable

    failed = threading.Event()

    def fail_once() -> list[str]:
        if not failed.is_set():
            failed.set()
            raise Unavailable
        return close_stalled()

    monkeypatch.setattr(sweep, "close_stalled", fail_once)
    stop = keep_closing(app, interval=0.02)

    wait_for(lambda: running.reload().status == Status.INTERRUPTED)
    stop.set()
    assert failed.is_set()
