"""The database orders and filters agents by their next run exactly as the timetable tells it of each."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

import pytest
from flask import Flask
from sqlalchemy import select

from app.config import Settings
from app.extensions import db, now, writing
from app.models import COMMAND_LINE, Account, Agent
from app.refinement.fleet import DUE, SORTS, FilterRefused, Fleet
from app.refinement.next_start import NEVER, next_start
from app.refinement.timetable import Timetable
from tests.support.clock import FakeClock
from tests.support.factories import HOME, begin, make_agent, remember

WEEKLY, DAILY, TWICE, MONTHLY, OFTEN = "0 4 * * 1", "30 2 * * *", "0 4,5 * * 1", "0 0 1 1 *", "*/20 * * * *"


def make_fleet(count: int, seed: int = 7) -> list[Agent]:
    """Agents with memories, of which anything may have happened lately; one is being refined, one holds nothing."""
    dice = random.Random(seed)

    def lately(most_days: float) -> datetime | None:
        return None if dice.random() < 0.3 else now() - timedelta(days=dice.random() * most_days)

    agents = [make_agent(f"agent {number:02}") for number in range(count)]
    for agent in agents[1:]:
        remember(agent, "Ann likes tea.", "Bob likes rum.")
    begin(agents[1])
    with writing():
        for agent in map(Agent.lock, [each.id for each in agents[2:]]):
            agent.core_token_budget = dice.choice((5, 6, 5000))
            agent.paused, agent.active = dice.random() < 0.1, dice.random() < 0.9
            agent.last_refinement_at, agent.last_attempt_at = lately(9), lately(2)
            agent.declined_at, agent.retry_at = (
                lately(2),
                dice.choice((None, now() + timedelta(days=dice.random() * 3))),
            )
            agent.last_look_at = lately(9)
            agent.last_look_mass = None if agent.last_look_at is None else dice.choice((6, 8))
    return agents


@pytest.mark.parametrize("schedule", [WEEKLY, DAILY, TWICE, MONTHLY])
def test_the_database_knows_the_next_start_as_the_timetable_does(
    app: Flask, settings: Settings, clock: FakeClock, schedule: str
) -> None:
    clock.advance(days=2, hours=6, minutes=7)
    agents = make_fleet(40)
    timetable = Timetable(settings.model_copy(update={"schedule": schedule}))
    outlooks = timetable.outlooks(list(db.session.scalars(select(Agent))))
    expected = {number: each.due.at or (now() if each.running else NEVER) for number, each in outlooks.items()}
    found = dict(db.session.execute(select(Agent.id, next_start(timetable))).tuples().all())

    assert len(agents) == len(found)
    assert {number for number in found if abs(found[number] - expected[number]) > timedelta(milliseconds=1)} == set()
    assert len(set(found.values())) > 3


def test_of_a_schedule_that_ticks_all_the_time_it_looks_at_some(
    app: Flask, settings: Settings, clock: FakeClock
) -> None:
    clock.advance(days=2, hours=6)
    make_fleet(30)
    timetable = Timetable(settings.model_copy(update={"schedule": OFTEN}))
    outlooks = timetable.outlooks(list(db.session.scalars(select(Agent))))
    found = dict(db.session.execute(select(Agent.id, next_start(timetable))).tuples().all())

    late = [found[number] - each.due.at for number, each in outlooks.items() if each.due.at]
    assert min(late) > -timedelta(milliseconds=1)
    assert max(late) < timedelta(hours=3)


@pytest.mark.parametrize("sort", [*SORTS, *(f"-{column}" for column in SORTS)])
def test_every_order_goes_through_all_agents_once_page_by_page(app: Flask, clock: FakeClock, sort: str) -> None:
    clock.advance(days=2, hours=6)
    agents = make_fleet(17)
    fleet = Fleet(HOME, sort=sort)
    whole = list(db.session.scalars(fleet.agents().order_by(*fleet.order.order)))
    names, after = list[str](), ""
    for _ in range(9):
        page = Fleet(HOME, sort=sort)
        rows, last = page.order.load(page.agents(), 4, page.position_of(after))
        names += [agent.name for agent in rows]
        if last is None:
            break
        after = last.name

    assert names == [agent.name for agent in whole]
    assert sorted(names) == [agent.name for agent in agents]


def test_each_filter_finds_what_the_timetable_says(app: Flask, clock: FakeClock) -> None:
    clock.advance(days=2, hours=6)
    make_fleet(30)
    outlooks = Timetable().outlooks(list(db.session.scalars(select(Agent))))
    for due, (_, within) in DUE.items():
        found = set(Fleet(HOME, due=due).ids())
        at = {number: each.due.at for number, each in outlooks.items()}
        if within is None:
            assert found == {number for number, start in at.items() if start is None and not outlooks[number].running}
        else:
            assert found == {number for number, start in at.items() if start and start <= now() + within}
        assert found, due
        assert Fleet(HOME, due=due).count() == len(found)


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("state", "odd"),
        ("outcome", "running"),
        ("due", "soon"),
        ("sort", "colour"),
        ("sort", "--name"),
        ("query", "a\0"),
    ],
)
def test_it_refuses_a_filter_that_there_is_not(app: Flask, field: str, given: str) -> None:
    with pytest.raises(FilterRefused) as refused:
        Fleet(HOME, **{field: given})
    assert refused.value.field == field


def test_another_account_s_agents_are_no_part_of_it(app: Flask) -> None:
    with writing():
        other = Account.create("Next door").id
        Agent.create(other, name="zoe", model_id="whetstone/offline", by=COMMAND_LINE)
    make_agent("ann")

    assert [db.session.get_one(Agent, number).name for number in Fleet(HOME).ids()] == ["ann"]
    assert Fleet(HOME, sort="memory").position_of("zoe") is None
