"""A web application whose pages show one thing: how many events their topic has had."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from flask import Flask
from sqlalchemy import func, select

from app import Part, create_app
from app.config import Settings
from app.events.topics import Topic, Viewer
from app.extensions import db, writing
from app.models import Account, Event, User, announce
from app.models.user import ADMIN
from app.processes.broker import EmbeddedBroker
from tests.support.clock import FakeClock
from tests.support.databases import let_go
from tests.support.factories import HOME, make_user
from tests.support.workers import broker_of

Rendered = list[tuple[str, frozenset[str]]]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(datetime.now(UTC))


@pytest.fixture
def broker(settings: Settings) -> Iterator[EmbeddedBroker]:
    with broker_of(settings) as started:
        yield started


@pytest.fixture
def rendered() -> Rendered:
    """What was rendered, in order: topic and roles."""
    return []


@pytest.fixture
def web(app: Flask, settings: Settings, rendered: Rendered) -> Iterator[Flask]:
    made = create_app(settings, part=Part.WEB)

    def count(topic: str, viewer: Viewer) -> str:
        rendered.append((topic, viewer.roles))
        found = Topic.parse(topic)
        assert found is not None
        query = select(func.count()).select_from(Event).where(Event.account_id == viewer.account_id)
        return f"<hx-partial>\n{db.session.scalar(query.where(*found.conditions()))} so far</hx-partial>"

    made.extensions["stream_partials"] = count
    yield made
    with made.app_context():
        let_go(db.engine)


@pytest.fixture
def admin(app: Flask) -> User:
    return make_user("admin@example.org", ADMIN)


def make_neighbour() -> Account:
    with writing():
        return Account.create("Next door")


def happen(times: int = 1, *, account_id: int = HOME, agent_id: int | None = None) -> int:
    """Announce events, each in a transaction of its own; returns the newest one's id."""
    for _ in range(times):
        with writing():
            announce("agent.changed", account_id, agent_id)
    return db.session.scalar(select(func.max(Event.id))) or 0
