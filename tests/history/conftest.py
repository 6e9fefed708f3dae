"""An agent to go back and forth with; `sound` is asked for by the files whose every test must end in a proven log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from flask import Flask

from app.history.verify import verify
from app.models import Agent
from tests.history.going_back import LONG
from tests.refinement.soundness import assert_sound
from tests.support.factories import make_agent, remember


@pytest.fixture
def agent(app: Flask) -> Agent:
    return make_agent(refinement_threshold="0.5")


@pytest.fixture
def ids(agent: Agent) -> list[int]:
    """Ten memories of a weight, of which the last says all of the others: losing two or three is no matter for the
    latch."""
    last = f"{LONG}{', '.join(map(str, range(10)))}"
    return remember(agent, *(f"{LONG}{number}" for number in range(9)), last, tags=["tea"])


@pytest.fixture
def sound(app: Flask) -> Iterator[None]:
    """Whatever was undone, the log explains every memory, flag and total in the end."""
    yield
    verdict = verify()
    assert verdict.ok, verdict.first_problem
    assert_sound(app)
