"""Presence: what a worker and beat leave of themselves, for people to read. Names of keys, never their values."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest
from flask import Flask
from sqlalchemy import select

from app.config import load_settings
from app.extensions import db, end_reading, now, writing
from app.llm.litellm import load_litellm
from app.modelnames import USUAL_KEYS, usual_key_of
from app.models import InstallationMark
from app.models.presence import WorkerPresence, beat_heard_at, note_beat, present_workers
from tasks.presence import PresenceTimer, describe_worker, key_variables
from tests.support.clock import FakeClock
from tests.support.processes import wait_for

VALUE = "sk-canary-value"


def test_it_names_the_keys_that_agents_may_have_and_no_value(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "TEAM_API_KEY", "AWS_SECRET_KEY", "WHETSTONE_X_KEY", "SIGNING_KEY"):
        monkeypatch.setenv(name, VALUE)
    monkeypatch.setenv("EMPTY_API_KEY", " ")
    with writing():
        described = describe_worker(load_settings(), now())
        described.note()

    assert {"OPENAI_API_KEY", "TEAM_API_KEY"} <= described.key_variables
    assert not described.key_variables & {"AWS_SECRET_KEY", "WHETSTONE_X_KEY", "SIGNING_KEY", "EMPTY_API_KEY", "PATH"}
    assert VALUE not in "".join(db.session.scalars(select(InstallationMark.value)))
    listed = load_settings(api_key_envs="ONLY_THIS", safety_api_key_env="SAFE")
    environment = dict.fromkeys(("ONLY_THIS", "TEAM_API_KEY", "OPENAI_API_KEY", "SAFE"), VALUE)
    assert key_variables(environment, listed) == {"ONLY_THIS", "OPENAI_API_KEY", "SAFE"}


def test_the_usual_keys_are_those_that_litellm_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    litellm = load_litellm()
    for provider, name in USUAL_KEYS.items():
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
        missing = litellm.validate_environment(f"{provider}/some-model")["missing_keys"]
        assert name in missing, (provider, missing)
    assert usual_key_of("openai/gpt") == "OPENAI_API_KEY"
    assert usual_key_of("gpt") is usual_key_of("nobody/gpt") is None


def test_a_timer_notes_its_worker_and_takes_the_note_away_at_its_end(app: Flask) -> None:
    timer = PresenceTimer(app, interval=0.05)
    timer.start()
    found = wait_for(_seen)
    assert (found[0].process, found[0].is_away(now())) == (os.getpid(), False)
    timer.stop()
    timer.join()
    end_reading()

    assert WorkerPresence.all() == []


def test_one_that_is_killed_is_away_after_three_minutes_and_forgotten_after_an_hour(
    app: Flask, clock: FakeClock
) -> None:
    with writing():
        killed = describe_worker(load_settings(), now())
        killed.note()
    clock.advance(minutes=4)
    assert [worker.id for worker in WorkerPresence.all()] == [killed.id]
    assert present_workers(now()) == []
    clock.advance(hours=1)
    with writing():
        other = describe_worker(load_settings(), now())
        other.note()

    assert [worker.id for worker in WorkerPresence.all()] == [other.id]


def test_a_note_that_somebody_forged_is_passed_over(app: Flask) -> None:
    with writing():
        InstallationMark.write("worker x", "{not json")
        InstallationMark.write("worker y", '{"id": 7}')

    assert WorkerPresence.all() == []


def test_beat_is_heard_by_whoever_does_its_task(app: Flask, clock: FakeClock) -> None:
    assert beat_heard_at() is None
    with writing():
        note_beat()
    clock.advance(minutes=2)

    assert beat_heard_at() == now() - timedelta(minutes=2)


def _seen() -> list[WorkerPresence]:
    end_reading()
    return WorkerPresence.all()
