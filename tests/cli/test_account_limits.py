"""`whetstone accounts`: the tenants, their first owners and their limits."""

from __future__ import annotations

import pytest
from flask import Flask

from app.extensions import db
from app.models import Account
from app.models.account_limits import AccountLimits
from tests.cli.conftest import Whetstone
from tests.support.factories import HOME, make_agent, remember


def test_an_account_is_created_with_a_link_for_its_owner(app: Flask, whetstone: Whetstone) -> None:
    made = whetstone("accounts", "create", "Aviary", "--owner", "Ann@example.org", "--max-agents", "1", "--json").json
    assert (made["name"], made["owner"], made["limits"]["max_agents"]) == ("Aviary", "ann@example.org", 1)
    assert made["path"].startswith("/welcome/")
    listed = whetstone("accounts", "list", "--json").json
    assert [each["name"] for each in listed] == sorted([db.session.get_one(Account, HOME).name, "Aviary"])
    assert "Aviary" in whetstone("accounts", "list").out

    model = ("--model", "whetstone/offline", "--account", "Aviary")
    assert whetstone("agents", "create", "wren", *model).status == 0
    said = whetstone("agents", "create", "rook", *model, "--json")
    assert (said.status, said.error["code"]) == (3, "too_many_agents")


def test_only_the_limits_that_are_given_change(app: Flask, whetstone: Whetstone) -> None:
    make_agent()
    name = db.session.get_one(Account, HOME).name
    db.session.rollback()
    first = whetstone("accounts", "limits", name, "--max-agents", "1", "--max-refinements", "2", "--json").json
    assert (first["changed"], first["reached"]) == (True, ["no more agents"])
    again = whetstone("accounts", "limits", name, "--max-agents", "", "--json").json
    assert again["limits"] == {"max_agents": None, "max_refinements": 2, "max_monthly_cost": None}
    assert whetstone("accounts", "limits", name, "--json").json["changed"] is False
    assert "0 of 2" in whetstone("accounts", "limits", name).out


@pytest.mark.parametrize("typed", ["-1", "1e99", "nan", "many"])
@pytest.mark.parametrize("option", ["--max-agents", "--max-refinements", "--max-monthly-cost"])
def test_nonsense_is_wrong_usage(app: Flask, whetstone: Whetstone, option: str, typed: str) -> None:
    name = db.session.get_one(Account, HOME).name
    db.session.rollback()
    said = whetstone("accounts", "limits", name, f"{option}={typed}")
    assert (said.status, said.out) == (2, "")
    assert "empty for no limit" in said.err
    assert db.session.get_one(Account, HOME).limits == AccountLimits()


def test_an_account_that_is_not_there_or_a_name_that_is_taken(app: Flask, whetstone: Whetstone) -> None:
    name = db.session.get_one(Account, HOME).name
    db.session.rollback()
    assert whetstone("accounts", "limits", "Nowhere").status == 1
    taken = whetstone("accounts", "create", name, "--owner", "ann@example.org")
    assert (taken.status, "taken" in taken.err) == (2, True)


def test_refine_says_which_limit_it_waits_for_and_does_not_wait(app: Flask, whetstone: Whetstone) -> None:
    remember(make_agent("wren"), "Ann likes tea.")
    name = db.session.get_one(Account, HOME).name
    db.session.rollback()
    whetstone("accounts", "limits", name, "--max-refinements", "0")
    said = whetstone("refine", "wren", "--wait")
    assert "at most 0 refinements may run at once" in said.err
    whetstone("accounts", "limits", name, "--max-monthly-cost", "0")
    assert "reached its limit of $0.00" in whetstone("agents", "show", "wren", "--json").out + whetstone("schedule").out
