"""The rule of what is due is one, in Python and in SQL, and what the pages announce is what then happens."""

from __future__ import annotations

from datetime import timedelta

import pytest
from flask import Flask
from hypothesis import HealthCheck, given
from hypothesis import settings as options
from hypothesis import strategies as st
from sqlalchemy import text

from app.config import Settings
from app.extensions import db, writing
from app.models import COMMAND_LINE, Agent, Trigger
from app.refinement.due import DueMoments, due_again, due_by_schedule, due_hourly
from app.refinement.start import start_refinement
from app.refinement.timetable import Timetable
from tests.support.clock import MONDAY
from tests.support.factories import make_agent, remember

HOUR = timedelta(hours=1)
AT = MONDAY + timedelta(days=20)

AGO = st.none() | st.sampled_from([0, 1, 23, 24, 25, 47, 96, 155, 156, 157, 167, 168, 169, 500]) | st.integers(0, 400)
MASS = st.integers(80, 130)
ROW = st.fixed_dictionaries(
    {
        "last_attempt_at": AGO,
        "last_refinement_at": AGO,
        "last_look_at": AGO,
        "declined_at": AGO,
        "retry_at": st.none() | st.integers(-170, 200),
        "last_look_mass": MASS,
        "core_token_usage": MASS,
        "core_token_budget": st.sampled_from([95, 99, 100, 101]),
        "active": st.sampled_from([True] * 5 + [False]),
        "paused": st.sampled_from([False] * 5 + [True]),
    }
)


@pytest.fixture
def agents(app: Flask) -> list[Agent]:
    """One that could be refined, one with nothing to change, and one that is being refined."""
    made = [make_agent(name) for name in ("free", "bound", "busy")]
    remember(made[0], "Ann likes tea.")
    remember(made[1], "We never lie.", constitutional=True)
    remember(made[2], "Bob likes rum.")
    start_refinement(made[2].id, trigger=Trigger.ADMIN, by=COMMAND_LINE)
    return made


@pytest.fixture
def totals_restored(app: Flask) -> object:
    """The tests here invent masses; afterwards the totals are true again."""
    yield
    with writing() as session:
        session.execute(
            text(
                "UPDATE agents SET core_token_usage = (SELECT coalesce(sum(token_estimate), 0) FROM memories"
                " WHERE agent_id = agents.id AND type = 'core' AND discarded_at IS NULL)"
            )
        )


def place(agents: list[Agent], row: dict[str, object]) -> list[Agent]:
    with writing():
        locked = [Agent.lock(agent.id) for agent in agents]
        for agent in locked:
            for name, value in row.items():
                is_moment = name.endswith("_at")
                setattr(
                    agent, name, AT - timedelta(hours=int(str(value))) if is_moment and value is not None else value
                )
            if agent.last_look_at is None:
                agent.last_look_mass = None
            agent.failed_attempts = int(agent.retry_at is not None)
    return locked


@pytest.mark.usefixtures("totals_restored")
@options(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(row=ROW)
def test_the_database_finds_exactly_those_that_the_rule_names(agents: list[Agent], row: dict[str, object]) -> None:
    locked = place(agents, row)
    free = locked[0]
    can_start = free.active and not free.paused and free.rested_from <= AT

    hourly = {
        found
        for due in (*due_hourly(DueMoments.of(AT)), *due_again(DueMoments.of(AT)))
        for found in db.session.scalars(due)
    }
    at_tick = {found for due in due_by_schedule(DueMoments.of(AT)) for found in db.session.scalars(due)}

    assert hourly == ({free.id} if can_start and free.is_wanted_hourly(AT) else set())
    assert at_tick == ({free.id} if can_start and free.scheduled_from <= AT else set())
    assert free.needs_refinement(AT) is (free.is_wanted(AT))
    if at_tick | hourly:
        assert free.needs_refinement(AT)


@pytest.mark.usefixtures("totals_restored")
@options(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(row=ROW)
def test_what_is_announced_is_what_happens(agents: list[Agent], settings: Settings, row: dict[str, object]) -> None:
    free = place(agents, row)[0]
    due = Timetable(settings, AT).due(free)
    ticks = Timetable(settings, AT)

    moment = AT
    while free.active and not free.paused:
        is_tick = ticks.tick_from(moment) == moment
        rested = free.rested_from <= moment
        if rested and (free.is_wanted_hourly(moment) or (is_tick and free.scheduled_from <= moment)):
            break
        moment += HOUR
    else:
        assert due.at is None
        return

    assert due.at is not None
    assert due.at - HOUR <= moment < due.at + HOUR, (due, moment)
