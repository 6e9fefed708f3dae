"""Every test of refinements ends with an audit of what it left in the database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from flask import Flask

from app.models import Agent
from tests.refinement.soundness import assert_sound
from tests.support.factories import make_agent


@pytest.fixture
def agent(app: Flask) -> Agent:
    return make_agent()


@pytest.fixture(autouse=True)
def sound(request: pytest.FixtureRequest) -> Iterator[None]:
    """Totals, states, chains and ends are true after every test that has a database."""
    app: Flask | None = request.getfixturevalue("app") if "app" in request.fixturenames else None
    yield
    if app is not None:
        assert_sound(app)
