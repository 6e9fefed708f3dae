"""The event stream of an operator inside another account: that account's events, and a goodbye when it is over."""

from __future__ import annotations

from datetime import timedelta

import pytest
from flask import Flask
from sqlalchemy import update

from app.extensions import now, writing
from app.models import User, UserSession
from app.models.user import OWNER, SITE_ADMIN
from tests.events.conftest import Rendered, happen, make_neighbour
from tests.support.factories import HOME, make_user
from tests.support.pages import Page, serving
from tests.support.processes import wait_for

VISITING = frozenset({"auditor", "admin"})


@pytest.fixture
def operator(app: Flask) -> User:
    return make_user("operator@example.org", OWNER, SITE_ADMIN, account_id=make_neighbour().id)


def set_visit(operator: User, account_id: int | None) -> None:
    until = now() + timedelta(minutes=30) if account_id else None
    with writing() as session:
        mine = update(UserSession).where(UserSession.user_id == operator.id)
        session.execute(mine.values(entered_account_id=account_id, entered_until=until))


@pytest.mark.parametrize("how", ["left", "time", "role lost", "signed out"])
def test_it_brings_the_entered_account_s_events_and_ends_with_the_visit(
    app: Flask, web: Flask, operator: User, rendered: Rendered, how: str
) -> None:
    home = operator.account_id
    with serving(web, look=0.05, recheck=0.05) as site:
        cookie = site.cookie_of(operator)
        set_visit(operator, HOME)
        happen(3)
        with Page(site, "overview", cookie) as page:
            wait_for(lambda: (newest := page.newest()) is not None and "\n3 so far" in newest.data)
            happen(account_id=home)
            beats = page.beats
            wait_for(lambda: page.beats > beats + 2)
            assert [viewer for _, viewer in rendered] == [VISITING]
            match how:
                case "left":
                    set_visit(operator, None)
                case "time":
                    app.extensions["clock"].advance(minutes=31)
                    web.extensions["clock"] = app.extensions["clock"]
                case "role lost":
                    with writing() as session:
                        user = session.get_one(User, operator.id)
                        user.roles = [role for role in user.roles if role.name != SITE_ADMIN]
                case "signed out":
                    with writing():
                        UserSession.end_of(operator.id)
            wait_for(lambda: page.is_closed)
            assert page.newest().event == "bye"  # type: ignore[union-attr]
