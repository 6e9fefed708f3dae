"""When the next refinement starts by itself, and why, in words."""

from __future__ import annotations

from datetime import timedelta

import pytest
from flask import Flask

from app.config import Settings
from app.extensions import now, writing
from app.models import Agent
from app.refinement.timetable import Timetable
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
    assert words(agent, settings) == "Next run Monday 04:00 UTC (weekly)."


def test_the_tick_right_now_counts(settings: Settings, clock: FakeClock) -> None:
    assert Timetable(settings, clock.now()).next_tick == clock.now()
    assert Timetable(settings, clock.now() + timedelta(seconds=1)).next_tick == clock.now() + timedelta(days=7)


def test_refined_lately_means_a_later_tick(agent: Agent, settings: Settings, clock: FakeClock) -> None:
    refined = clock.now()

    said = words(agent, settings, last_refinement_at=refined, last_attempt_at=refined)

    assert said == "Next run Mon 30 Nov 04:00 UTC (weekly)."


def test_over_budget_means_within_the_hour_or_a_day_after_the_last_attempt(
    agent: Agent, settings: Settings, clock: FakeClock
) -> None:
    soon = words(agent, settings, core_token_budget=5)
    later = words(agent, settings, last_attempt_at=clock.now() - timedelta(hours=20))

    assert soon == "Next run within 1 hour (3 tokens over budget)."
    assert later == "Next run about Wednesday 14:00 UTC (3 tokens over budget, 24 hours after its last attempt)."


def test_over_budget_after_a_look_means_a_week_after_it_or_the_next_tick(
    agent: Agent, settings: Settings, clock: FakeClock
) -> None:
    looked = clock.now() - timedelta(days=4)
    refined = clock.now() - timedelta(hours=30)
    look = {"core_token_budget": 5, "last_look_at": looked, "last_look_mass": 8, "last_refinement_at": refined}

    quiet = words(agent, settings, **look)
    grown = words(agent, settings, last_look_mass=7)

    assert quiet == "Next run about Saturday 10:00 UTC (3 tokens over budget, a week after it was last looked at)."
    assert grown == "Next run within 1 hour (3 tokens over budget)."


@pytest.mark.parametrize(("mass", "has_grown"), [(109, False), (110, True), (111, True)])
def test_it_has_grown_from_exactly_a_tenth_of_its_budget_on(mass: int, has_grown: bool) -> None:
    assert Agent(core_token_usage=mass, core_token_budget=100, last_look_mass=100).has_grown is has_grown


def test_a_no_means_a_day_after_it_however_long_ago_it_was_asked(
    agent: Agent, settings: Settings, clock: FakeClock
) -> None:
    asked, declined = clock.now() - timedelta(hours=30), clock.now() - timedelta(hours=20)

    said = words(agent, settings, core_token_budget=5, last_attempt_at=asked, declined_at=declined)

    assert said.startswith("Next run about Wednesday 14:00 UTC")


def test_a_failure_means_another_attempt_that_says_so(agent: Agent, settings: Settings, clock: FakeClock) -> None:
    failed = {"last_attempt_at": clock.now(), "failed_attempts": 1, "retry_at": clock.now() + timedelta(days=1)}

    once = words(agent, settings, **failed)
    often = words(agent, settings, failed_attempts=3, retry_at=clock.now() + timedelta(days=4))

    assert once == "Next run about Thursday 10:00 UTC (again after a failed attempt)."
    assert often == "Next run about Sunday 10:00 UTC (again after 3 failed attempts)."


def test_nothing_starts_by_itself_when_paused_inactive_or_empty(agent: Agent, settings: Settings) -> None:
    assert "Paused: nothing starts by itself" in words(agent, settings, paused=True)
    assert "Not active" in words(agent, settings, active=False)
    assert "no core memories" in words(make_agent("blank"), settings)
