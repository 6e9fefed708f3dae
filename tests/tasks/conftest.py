"""An installation with a broker and a worker of its own, beside the app of the test."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from flask import Flask
from redis import Redis

from app.config import Settings
from app.processes.broker import EmbeddedBroker
from tasks.refinement import worker_answers
from tests.support.clock import FakeClock
from tests.support.model_server import ModelServer
from tests.support.processes import wait_for
from tests.support.workers import Worker, broker_of


@pytest.fixture
def clock() -> FakeClock:
    """Other processes go by the system's clock; so does the test."""
    return FakeClock(datetime.now(UTC))


@pytest.fixture
def broker(settings: Settings) -> Iterator[EmbeddedBroker]:
    with broker_of(settings) as started:
        yield started


@pytest.fixture
def redis(broker: EmbeddedBroker) -> Iterator[Redis]:
    with Redis.from_url(broker.url) as client:
        yield client


@pytest.fixture
def worker(app: Flask, broker: EmbeddedBroker, settings: Settings) -> Iterator[Worker]:
    with Worker(settings, ("--concurrency", "4")) as started:
        wait_for(lambda: worker_answers(0.5), seconds=60)
        yield started


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server
