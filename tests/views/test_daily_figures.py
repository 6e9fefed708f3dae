"""The refinements of an account day by day, in the days of a time zone, by one statement."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import insert

from app.extensions import now, writing
from app.models import Account, Agent, Mode, Refinement, Status, Trigger
from app.refinement.daily_figures import DAYS, DailyFigures, load_daily_figures
from tests.support.factories import HOME, make_agent
from tests.test_statement_budgets import count


def row(agent: Agent, at: datetime, status: Status = Status.COMPLETED, **more: Any) -> dict[str, Any]:
    """A refinement that was asked for then, and ended so."""
    fixed = {"trigger": Trigger.ADMIN, "mode": Mode.FULL, "started_by": "system:test", "model_id": "openai/x"}
    limits = {"cap": 10, "threshold": Decimal("0.75"), "max_confirmed_losses": 3}
    usage = {"prompt_tokens": 0, "completion_tokens": 0, "cost_usd": Decimal(0)} | more
    mine = {"id": str(uuid.uuid4()), "account_id": agent.account_id, "agent_id": agent.id}
    return mine | fixed | limits | usage | {"status": status, "requested_at": at, "ended_at": at}


def put(*rows: dict[str, Any]) -> None:
    with writing() as session:
        session.execute(insert(Refinement), list(rows))


def load(time_zone: str = "", at: datetime | None = None, agent: Agent | None = None) -> DailyFigures:
    return load_daily_figures(HOME, at or now(), time_zone=time_zone, agent_id=agent.id if agent else None)


def busy(figures: DailyFigures) -> dict[str, dict[str, int]]:
    return {f"{each.day}": {str(key): value for key, value in each.outcomes.items()} for each in figures.busy_days}


@pytest.fixture
def agent(app: Flask) -> Agent:
    return make_agent("ezra")


def test_a_day_counts_outcomes_model_tokens_and_cost_of_what_has_ended(agent: Agent) -> None:
    noon = datetime(2026, 11, 16, 12, tzinfo=UTC)
    usage = {"prompt_tokens": 2_000_000_000, "completion_tokens": 500, "cost_usd": Decimal("0.125")}
    put(
        row(agent, noon, **usage),
        row(agent, noon + timedelta(hours=1), **usage),
        row(agent, noon, Status.FAILED),
        row(agent, noon - timedelta(days=1), Status.DECLINED),
        row(agent, noon, Status.QUEUED) | {"ended_at": None},
    )

    found = load(at=noon)

    assert busy(found) == {"2026-11-15": {"declined": 1}, "2026-11-16": {"completed": 2, "failed": 1}}
    assert (found.refinements, found.completed) == (4, 2)
    assert (found.model_tokens, found.cost_usd) == (4_000_001_000, Decimal("0.25"))
    assert found.as_json()["days"][1] == {
        "day": "2026-11-16",
        "outcomes": {"completed": 2, "failed": 1},
        "model_tokens": 4_000_001_000,
        "cost_usd": 0.25,
    }


def test_it_has_ninety_days_and_none_before_or_after(agent: Agent) -> None:
    at = datetime(2026, 11, 16, 12, tzinfo=UTC)
    first = datetime(2026, 8, 19, tzinfo=UTC)
    put(
        row(agent, first), row(agent, first - timedelta(microseconds=1)), row(agent, datetime(2026, 11, 17, tzinfo=UTC))
    )

    found = load(at=at)

    assert (len(found.days), found.days[0].day, found.days[-1].day) == (DAYS, date(2026, 8, 19), date(2026, 11, 16))
    assert busy(found) == {"2026-08-19": {"completed": 1}}


@pytest.mark.parametrize(
    ("time_zone", "days"),
    [
        ("", {"2026-10-24": 1, "2026-10-25": 3}),
        ("Europe/Lisbon", {"2026-10-25": 4}),
        ("America/St_Johns", {"2026-10-24": 2, "2026-10-25": 2}),
        ("Asia/Kathmandu", {"2026-10-25": 3, "2026-10-26": 1}),
    ],
)
def test_days_are_those_of_the_time_zone_also_when_its_clocks_change(
    agent: Agent, time_zone: str, days: dict[str, int]
) -> None:
    """In Lisbon that Sunday has 25 hours: from 23:00 UTC on Saturday to 24:00 UTC on Sunday."""
    sunday = datetime(2026, 10, 25, tzinfo=UTC)
    put(*(row(agent, sunday + timedelta(hours=hours)) for hours in (-0.75, 0.5, 3, 23.75)))

    found = load(time_zone, at=datetime(2026, 11, 16, tzinfo=UTC))

    assert found.time_zone == (time_zone or "UTC")
    assert {day: counts["completed"] for day, counts in busy(found).items()} == days


def test_it_is_of_one_account_and_of_one_agent_where_one_is_named(agent: Agent) -> None:
    with writing():
        elsewhere = Account.create("Next door").id
    other, neighbour = make_agent("mina"), make_agent("otto", account_id=elsewhere)
    put(row(agent, now()), row(other, now(), Status.FAILED), row(neighbour, now()))

    assert load().refinements == 2
    assert list(busy(load(agent=other)).values()) == [{"failed": 1}]
    assert load(agent=neighbour).refinements == 0


def test_it_is_one_statement_however_many_there_are(agent: Agent) -> None:
    put(*(row(agent, now() - timedelta(hours=number)) for number in range(500)))

    assert count(load) == 1
    assert load().refinements == 500
