"""The fleet of an account in figures: what is tried when, this week against last, who stays over budget or erodes."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from decimal import Decimal
from functools import cache

import pytest
from flask import Flask

from app.config import Settings
from app.extensions import db, now, writing
from app.history.plan import Target
from app.history.undo import roll_back
from app.models import COMMAND_LINE, Agent, Refinement, Status
from app.refinement import fleet_figures
from app.refinement.fleet_figures import count_next_attempts, eroding_agents, over_budget_twice, trend_of
from app.refinement.timetable import HOUR, Timetable
from tests.support.clock import FakeClock
from tests.support.factories import HOME, Running, begin, make_agent, remember

pytestmark = pytest.mark.usefixtures("nothing_missing")


def end(run: Running, status: Status = Status.COMPLETED, *, cost: str = "0") -> Refinement:
    run.tool.settle()
    with writing():
        row = Refinement.lock(run.refinement.id)
        row.book_usage(10, 10, Decimal(cost))
        row.end(Agent.lock(run.agent.id), status)
    return row


def cut(agent: Agent, *ids: int, to: int) -> None:
    """One refinement that shortens memories to so many tokens."""
    run = begin(agent)
    for number in ids:
        assert run.tool.execute("update", id=number, content="x" * 4 * to)["type"] == "updated"
    end(run, cost="0.25")


def test_the_counts_of_next_attempts_are_those_of_each_agent_s_own_timetable(
    app: Flask, settings: Settings, clock: FakeClock
) -> None:
    clock.advance(days=5, hours=8)
    for number in range(40):
        agent = make_agent(f"agent {number}", core_token_budget=3 if number % 2 else 500)
        if number % 7:
            remember(agent, "Ann likes tea.", "Bob likes rum.", constitutional=number % 11 == 1)
        with writing():
            locked = Agent.lock(agent.id)
            locked.paused, locked.active = number % 9 == 2, number % 13 != 5
            locked.last_attempt_at = now() - timedelta(hours=number) if number % 3 else None
            locked.last_refinement_at = locked.last_attempt_at if number % 4 else None
            if number % 5 == 1:
                locked.failed_attempts, locked.retry_at = 2, now() + timedelta(hours=number)
            if number % 5 == 3:
                locked.last_look_at, locked.last_look_mass = now() - timedelta(days=number % 8), 8
    begin(db.session.get_one(Agent, 4))
    agents = list(db.session.scalars(db.select(Agent)))
    timetable = Timetable(settings, now())
    expected: Counter[str] = Counter()
    for outlook in timetable.outlooks(agents).values():
        if (at := outlook.due.at) is not None:
            days = (at.date() - timetable.at.date()).days
            near = "today" if days == 0 else "tomorrow" if days == 1 else "later"
            expected["within the hour" if at <= timetable.at + HOUR else near] += 1

    assert len(expected) == 4
    assert dict(count_next_attempts(HOME, timetable)) == expected
    assert count_next_attempts(77, timetable) == []


def test_of_many_that_are_tried_soon_nobody_is_told_how_many_come_later(
    app: Flask, settings: Settings, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.advance(days=5, hours=8)
    for number in range(5):
        remember(make_agent(f"large {number}", core_token_budget=3), "Ann likes tea.", "Bob likes rum.")
    remember(make_agent("small"), "Ann likes tea.")
    timetable = Timetable(settings, now())
    (soon, large), (_, small) = count_next_attempts(HOME, timetable)
    assert (soon, large, small) == ("within the hour", 5, 1)

    monkeypatch.setattr(fleet_figures, "COUNTED", 3)
    monkeypatch.setattr(fleet_figures, "_until", cache(fleet_figures._until.__wrapped__))
    assert count_next_attempts(HOME, timetable) == [("within the hour", 4)]


def test_the_trend_compares_seven_days_with_the_seven_before(app: Flask, clock: FakeClock) -> None:
    agent, other = make_agent(refinement_threshold="0.50"), make_agent("mina")
    first, second = remember(agent, "a" * 400, "b" * 400)
    remember(other, "Ann likes tea.")
    cut(agent, first, to=60)
    clock.advance(days=6)
    end(begin(other), Status.FAILED, cost="0.50")
    clock.advance(days=6)
    cut(agent, second, to=90)
    begin(other)
    trend = trend_of(HOME, now())

    assert trend.as_json() == {
        "this_week": {"refinements": 2, "completed": 1, "mass_change": -10, "cost_usd": 0.75},
        "last_week": {"refinements": 1, "completed": 1, "mass_change": -40, "cost_usd": 0.25},
    }
    assert trend_of(77, now()).this_week.completed_share is None
    newest = db.session.scalars(db.select(Refinement.id).where(Refinement.mass_after == 150)).one()
    roll_back(Target.refinement(newest), by=COMMAND_LINE)
    assert trend_of(HOME, now()).this_week.mass_change == 0


def test_over_budget_twice_takes_two_looks_in_a_row_that_ended_over_it(app: Flask, clock: FakeClock) -> None:
    agent = make_agent(core_token_budget=100)
    remember(agent, "a" * 400, "b" * 400)
    names = []
    for status in (Status.COMPLETED, Status.FAILED, Status.DECLINED, Status.COMPLETED):
        end(begin(agent), status)
        names.append([name for _, name in over_budget_twice(HOME, 10)])
        clock.advance(days=8)

    assert names == [[], [], ["ezra"], ["ezra"]]
    assert over_budget_twice(77, 10) == []
    with writing():
        Agent.lock(agent.id).change(by=COMMAND_LINE, core_token_budget=5000)
    assert over_budget_twice(HOME, 10) == []


def test_an_agent_erodes_once_it_lost_half_of_what_the_guard_lets_it_lose(app: Flask, clock: FakeClock) -> None:
    agent, other = make_agent(refinement_threshold="0.50"), make_agent("mina")
    ids = remember(agent, *(letter * 400 for letter in "abcd"))
    remember(other, "Ann likes tea.")
    cut(agent, ids[0], to=1)
    assert eroding_agents(HOME, now()) == []
    clock.advance(days=1)
    cut(agent, ids[1], to=99)

    ((found, erosion),) = eroding_agents(HOME, now())
    assert (found.name, erosion.kept) == ("ezra", Decimal("0.7500"))
    assert eroding_agents(77, now()) == []
    remember(agent, "e" * 40)
    assert eroding_agents(HOME, now()) == []
    clock.advance(days=31)
    assert eroding_agents(HOME, now()) == []
