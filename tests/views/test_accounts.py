"""The operator's pages of accounts: who sees them, opening one, its limits, and what is refused at which field."""

from __future__ import annotations

import re
from decimal import Decimal
from html import unescape

import pytest
from flask import Flask
from sqlalchemy import select

from app.extensions import db, writing
from app.history.verify import verify
from app.models import COMMAND_LINE, Account, Agent, AuditLog, OneTimeLink, User
from app.models.account_limits import AccountLimits
from app.models.user import AUDITOR, SITE_ADMIN
from tests.support.factories import HOME, make_agent
from tests.views.conftest import Browser, browser

NEW = {"name": "Aviary", "owner": "ann@example.org"}
PASSWORD = "a staple and a battery"


def accounts() -> list[str]:
    db.session.rollback()
    return list(db.session.scalars(select(Account.name).order_by(Account.name)))


def test_only_operators_have_the_tab_and_the_pages(
    web: Flask, operator: Browser, owner: Browser, neighbour: Browser, stranger: Browser
) -> None:
    both = browser(web, AUDITOR, SITE_ADMIN)
    assert {"label": "Accounts", "url": "/settings/accounts"} in both.get("/settings.json").json["tabs"]  # type: ignore[index]
    assert "/settings/accounts" not in owner.get("/settings/users").text
    for path in ("/settings/accounts", "/settings/accounts.json", f"/settings/accounts/{HOME}"):
        assert [each.get(path).status_code for each in (operator, both)] == [200, 200]
        assert [each.get(path).status_code for each in (owner, neighbour)] == [403, 403]
    assert stranger.get("/settings/accounts").status_code == 302


@pytest.mark.parametrize("path", ["/settings/accounts", f"/settings/accounts/{HOME}/limits"])
def test_an_owner_who_posts_there_changes_nothing(owner: Browser, neighbour: Browser, path: str) -> None:
    before = accounts()
    for person in (owner, neighbour):
        assert person.post(path, {**NEW, "max_agents": "0"}).status_code == 403
    assert accounts() == before
    assert db.session.get_one(Account, HOME).limits == AccountLimits()


def test_an_account_is_opened_and_its_first_owner_comes_in_by_the_link(
    operator: Browser, stranger: Browser, owner: Browser
) -> None:
    made = operator.post("/settings/accounts", {**NEW, "max_agents": "2", "max_monthly_cost": "9.5"})
    assert made.status_code == 201
    (secret,) = re.findall(r'<code id="link">http://[^/]+/welcome/([^<]+)</code>', made.text)
    assert secret not in operator.get("/settings/accounts").text

    stranger.post(f"/welcome/{secret}", {"password": PASSWORD, "password_again": PASSWORD})
    db.session.rollback()
    ann = db.session.scalars(select(User).where(User.email == "ann@example.org")).one()
    home = db.session.get_one(Account, ann.account_id)
    assert (home.name, ann.role_names) == ("Aviary", ["owner"])
    assert home.limits == AccountLimits(2, None, Decimal("9.50"))
    entry = db.session.scalars(select(AuditLog).where(AuditLog.account_id == home.id).order_by(AuditLog.id)).first()
    assert entry is not None
    assert operator.user is not None
    assert (entry.action, entry.actor) == ("account_create", f"user:{operator.user.email}")
    db.session.rollback()
    assert verify().ok


@pytest.mark.parametrize(
    ("typed", "field", "words"),
    [
        ({"name": " "}, "name", "needs a name"),
        ({"name": "a\x00b"}, "name", "name"),
        ({"name": "Next door"}, "name", "This name is taken"),
        ({"owner": "ann"}, "owner", "no e-mail address"),
        ({"owner": "owner-1@example.org"}, "owner", "a user has one account"),
        ({"max_agents": "-1"}, "max_agents", "whole number from 0"),
        ({"max_refinements": "many"}, "max_refinements", "whole number from 0"),
        ({"max_monthly_cost": "1e99"}, "max_monthly_cost", "number of US dollars"),
    ],
)
def test_what_is_wrong_is_said_at_its_field_and_the_rest_is_kept(
    operator: Browser, owner: Browser, neighbour: Browser, typed: dict[str, str], field: str, words: str
) -> None:
    before = accounts()
    given = {"name": "Aviary", "owner": "ann@example.org", "max_agents": "7"} | typed
    answer = operator.post("/settings/accounts", given)

    assert answer.status_code == 422
    (said,) = re.findall(rf'id="f-{field}-error">(.*?)</p>', answer.text, re.S)
    assert words in unescape(said)
    assert answer.text.count("field-error") == 1
    for name in {"name", "owner", "max_agents"} - {field}:
        assert f'value="{given[name]}"' in answer.text
    assert accounts() == before
    assert db.session.scalars(select(OneTimeLink)).all() == []


def test_limits_are_set_taken_back_and_shown_beside_what_is_used(operator: Browser, app: Flask) -> None:
    make_agent()
    path = f"/settings/accounts/{HOME}"
    assert operator.post(f"{path}/limits", {"max_agents": "1", "max_monthly_cost": "0"}).status_code == 303
    said = operator.get(f"{path}.json").json
    assert said["limits"] == {"max_agents": 1, "max_refinements": None, "max_monthly_cost": "0.00"}  # type: ignore[index]
    assert said["reached"] == ["no more agents", "model cost used up"]  # type: ignore[index]
    page = operator.get(path).text
    assert "No more agents, model cost used up" in page
    (undo,) = set(re.findall(rf'"({path}/limits[^"]*)"', page)) - {f"{path}/limits"} or {f"{path}/limits"}
    assert operator.post(undo).status_code == 303
    db.session.rollback()
    assert db.session.get_one(Account, HOME).limits == AccountLimits()


def test_wrong_limits_of_an_account_are_said_at_the_field(operator: Browser, app: Flask) -> None:
    answer = operator.post(f"/settings/accounts/{HOME}/limits", {"max_agents": "5", "max_refinements": "-3"})
    assert answer.status_code == 422
    assert 'id="f-max_refinements-error"' in answer.text
    assert 'value="5"' in answer.text
    assert operator.post("/settings/accounts/987654321/limits", {"max_agents": "5"}).status_code == 404
    db.session.rollback()
    assert db.session.get_one(Account, HOME).limits == AccountLimits()


def test_the_page_for_a_new_agent_says_that_there_is_no_room_and_keeps_what_was_typed(admin: Browser) -> None:
    with writing():
        Account.lock(HOME).set_limits(AccountLimits(max_agents=0), by=COMMAND_LINE)
    form = {"name": "wren", "model_id": "whetstone/offline", "core_token_budget": "4321"}
    answer = admin.post("/agents", form)
    assert answer.status_code == 422
    assert "0 agents at most" in answer.text
    assert 'value="4321"' in answer.text
    assert admin.post("/demo").status_code in (404, 409)
    db.session.rollback()
    assert db.session.scalars(select(Agent)).all() == []


def test_the_schedule_says_why_nothing_is_due(admin: Browser, app: Flask) -> None:
    with writing():
        Account.lock(HOME).set_limits(AccountLimits(max_monthly_cost=Decimal(0)), by=COMMAND_LINE)
    assert "has reached its limit of $0.00" in admin.get("/settings/schedule").text
    assert "has reached" in admin.get("/settings/schedule.json").json["hold"]  # type: ignore[index]
