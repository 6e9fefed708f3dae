"""When the next refinement starts by itself, and why, in words."""

from __future__ import annotations

from datetime import timedelta

import pytest
from flask import Flask

from app.config import Settings
from app.extensions import now, writing
from app.models import Agent
from app.views.shown.due import Timetable
from tests.support.clock import FakeClock
from tests.support.factories import make_agent, remember


@pytest.fixture
def agent(app: Flask, clock: FakeClock) -> Agent:
    clock.advance(days=2, hours=6)
    made = make_agent()
    remember(made, "Ann likes tea.", "Bob likes rum.")
    return made


def words(agent: Agent, settings: Settings, **fields: object) -> str:
    with writing():
        locked = Agent.lock(agent.id)
        for name, value in fields.items():
            setattr(locked, name, value)
    return Timetable(settings, now()).due(locked).words


def test_never_refined_means_the_next_tick(agent: Agent, settings: Settings) -> None:
    assert words(agent, settings) == "Due Monday 04:00 UTC, because it was never refined."


def test_the_tick_right_now_counts(settings: Settings, clock: FakeClock) -> None:
    assert Timetable(settings, clock.now()).next_tick == clock.now()
    assert Timetable(settings, clock.now() + timedelta(seconds=1)).next_tick == clock.now() + timedelta(days=7)


def test_refined_lately_means_a_later_tick(agent: Agent, settings: Settings, clock: FakeClock) -> None:
    refined = clock.now()

    assert words(agent, settings, last_refinement_at=refined, last_attempt_at=refined) == (
        "Due Mon 30 Nov 04:00 UTC, because by then its last refinement is 12 days old."
    )


def test_over_budget_means_within_the_hour_or_a_day_after_the_last_attempt(
    agent: Agent, settings: Settings, clock: FakeClock
) -> None:
    soon = words(agent, settings, core_token_budget=5)
    later = words(agent, settings, last_attempt_at=clock.now() - timedelta(hours=20))

    assert soon == "Due within the hour, because it is 3 tokens over its budget."
    assert later == (
        "Due about Wednesday 14:00 UTC, 24 hours after its last attempt, because it is 3 tokens over its budget."
    )


def test_nothing_starts_by_itself_when_paused_inactive_or_empty(agent: Agent, settings: Settings) -> None:
    assert "Paused: nothing starts by itself" in words(agent, settings, paused=True)
    assert "Not active" in words(agent, settings, active=False)
    assert "no core memories" in words(make_agent("blank"), settings)
