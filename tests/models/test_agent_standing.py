"""An agent that a list has read plainly says what the row's object says, and nothing that was not read."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from flask import Flask
from sqlalchemy import select

from app.extensions import db, now, writing
from app.models import Agent
from app.models.agent_standing import LISTED, AgentStanding
from app.models.schedule import ScheduleColumns
from app.refinement.fleet import Fleet
from app.refinement.timetable import Timetable
from tests.support.factories import HOME, make_agent

RULES = [
    name
    for kind in (ScheduleColumns, AgentStanding)
    for name, value in vars(kind).items()
    if isinstance(value, property)
]


def _fleet() -> None:
    at = now()
    for number in range(12):
        agent = make_agent(f"agent-{number}", refinement_threshold=Decimal("0.9") if number % 2 else None)
        with writing():
            row = Agent.lock(agent.id)
            row.core_token_usage, row.core_count = number * 900, number
            row.paused, row.active = number == 3, number != 4
            row.last_refinement_at = at - timedelta(days=number) if number % 3 else None
            row.last_attempt_at = at - timedelta(hours=10 * number) if number % 2 else None
            row.last_look_at, row.last_look_mass = (at - timedelta(days=2), 5000) if number % 4 else (None, None)
            row.failed_attempts, row.retry_at = (2, at + timedelta(hours=3)) if number == 7 else (0, None)
            row.declined_at = at - timedelta(hours=1) if number == 8 else None


def test_it_says_what_the_object_of_its_row_says(app: Flask) -> None:
    _fleet()
    listed, last = Fleet(HOME).load(50)
    whole = {agent.id: agent for agent in db.session.scalars(select(Agent))}

    assert len(listed) == len(whole) == 12
    assert last is None
    assert {"is_over_budget", "too_large_from", "rested_from", "effective_refinement_threshold"} <= {*RULES}
    for each in listed:
        agent = whole[each.id]
        assert {name: getattr(each, name) for name in (*LISTED, *RULES)} == {
            name: getattr(agent, name) for name in (*LISTED, *RULES)
        }
        assert each.may_need_refinement(now()) == agent.may_need_refinement(now())
    assert Timetable(at=now()).outlooks(listed) == Timetable(at=now()).outlooks([*whole.values()])


@pytest.mark.parametrize("sort", ["", "-name", "memory", "-state", "next"])
def test_pages_of_any_order_follow_one_another(app: Flask, sort: str) -> None:
    _fleet()
    fleet, names, after = Fleet(HOME, sort=sort), list[str](), ""
    while True:
        page, last = fleet.load(5, after)
        names += [agent.name for agent in page]
        if last is None:
            break
        after = last.name
    wanted = db.session.scalars(fleet.agents().order_by(*fleet.order.order))

    assert names == [agent.name for agent in wanted]


def test_what_was_not_read_is_no_attribute_and_nothing_of_it_is_written(app: Flask) -> None:
    make_agent("ezra")
    ((listed,), _) = Fleet(HOME).load(50)
    with pytest.raises(AttributeError):
        getattr(listed, "system_prompt")  # noqa: B009 - no type has it
    with writing():
        listed.paused = True

    assert db.session.scalar(select(Agent.paused)) is False
