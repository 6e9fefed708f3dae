"""The limits that an operator gives an account: how they are typed, and that no agent is made beyond them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest
from flask import Flask
from sqlalchemy import func, select

from app.extensions import db, now, writing
from app.history.verify import verify
from app.keys.forgetting import forget_agent
from app.models import COMMAND_LINE, Account, Agent, AuditLog
from app.models.account_limits import LIMIT_NAMES, AccountLimits, LimitsInvalid
from app.models.agent import TooManyAgents
from tests.support.factories import HOME, make_agent

WRONG = ("-1", "+1", "1e99", "nan", "inf", "one", "1_000", "0x10", "²", "٣", "9" * 40, "\x00", "1.5.1", "1,5")


def limit(**limits: int | Decimal | None) -> None:
    with writing():
        Account.lock(HOME).set_limits(AccountLimits(**limits), by=COMMAND_LINE)  # type: ignore[arg-type]


@pytest.mark.parametrize("typed", WRONG)
@pytest.mark.parametrize("name", LIMIT_NAMES)
def test_nonsense_is_no_limit(name: str, typed: str) -> None:
    with pytest.raises(LimitsInvalid) as refused:
        AccountLimits.parse({name: typed})
    assert list(refused.value.errors) == [name]
    assert "empty for no limit" in refused.value.errors[name]


@pytest.mark.parametrize(
    ("name", "typed"), [("max_agents", "1.5"), ("max_monthly_cost", "0.001"), ("max_monthly_cost", "1000000.01")]
)
def test_nor_are_parts_of_agents_or_of_cents(name: str, typed: str) -> None:
    with pytest.raises(LimitsInvalid):
        AccountLimits.parse({name: typed})


def test_empty_is_none_and_zero_is_a_limit() -> None:
    assert AccountLimits.parse({}) == AccountLimits.parse(dict.fromkeys(LIMIT_NAMES, " ")) == AccountLimits()
    assert AccountLimits.parse(dict.fromkeys(LIMIT_NAMES, "0")) == AccountLimits(0, 0, Decimal(0))
    assert AccountLimits.parse({"max_monthly_cost": "12.5"}).max_monthly_cost == Decimal("12.50")


def test_no_agent_is_made_beyond_the_limit_and_a_forgotten_one_makes_room(app: Flask) -> None:
    first = make_agent("first")
    limit(max_agents=1)
    with pytest.raises(TooManyAgents, match="1 agent at most, and has 1"):
        make_agent("second")
    forget_agent(first.id, by=COMMAND_LINE)
    assert make_agent("second").name == "second"


def test_a_limit_below_what_there_is_removes_nothing(app: Flask) -> None:
    make_agent("first")
    limit(max_agents=0)
    assert db.session.scalar(select(func.count()).select_from(Agent)) == 1
    with pytest.raises(TooManyAgents):
        make_agent("second")


def test_of_two_made_at_once_beyond_the_limit_one_is(app: Flask) -> None:
    limit(max_agents=1)
    db.session.rollback()

    def create(name: str) -> bool:
        with app.app_context():
            try:
                make_agent(name)
            except TooManyAgents:
                return False
            return True

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(create, ("one", "other"))) == [False, True]
    db.session.rollback()
    assert db.session.scalar(select(func.count()).select_from(Agent)) == 1


def test_the_log_says_who_changed_them_and_from_what(app: Flask) -> None:
    limit(max_agents=3)
    limit(max_agents=3)
    limit(max_monthly_cost=Decimal("9.50"))

    entries = db.session.scalars(
        select(AuditLog).where(AuditLog.action == "account_limits").order_by(AuditLog.id)
    ).all()
    assert [entry.actor for entry in entries] == [str(COMMAND_LINE)] * 2
    assert entries[1].data["before"] == {"max_agents": 3, "max_refinements": None, "max_monthly_cost": None}
    assert entries[1].data["after"] == {"max_agents": None, "max_refinements": None, "max_monthly_cost": "9.50"}
    assert now() >= entries[1].at
    db.session.rollback()
    assert verify().ok
