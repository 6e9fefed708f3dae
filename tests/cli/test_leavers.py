"""`whetstone users deactivate`: who left signs in no more, and what they may have taken along is named and ended."""

from __future__ import annotations

import pytest
from flask import Flask

from app.extensions import db, writing
from app.history.verify import verify
from app.keys.agent_keys import open_keys
from app.keys.bearer import authenticate
from app.keys.provision import provision_keys
from app.keys.tokens import issue_token
from app.models import Account, Action, Agent, AuditLog, User
from app.models.key import TokenOrigin
from app.models.user import ADMIN
from app.tokens.asking import end_what_is_over
from tests.cli.conftest import Whetstone
from tests.support.factories import make_agent, make_user
from tests.tokens.conftest import ask, state
from tests.views.conftest import Browser


@pytest.fixture
def ann(app: Flask) -> User:
    return make_user("ann@example.org", ADMIN)


def shown(agent: Agent, email: str, name: str = "first") -> str:
    """A token that was made with the agent, and shown to them."""
    with writing():
        locked = Agent.lock(agent.id)
        token = issue_token(locked, by=locked.as_actor, name=name, how=TokenOrigin.FIRST, shown_to=email)
    provision_keys(agent.id)
    return token


def test_it_names_the_tokens_that_they_saw_and_the_settings_that_they_changed(ann: User, whetstone: Whetstone) -> None:
    wren, eve = make_agent("wren"), make_agent("eve")
    seen, other = shown(wren, "ann@example.org"), shown(eve, "bob@example.org")
    with writing():
        Agent.lock(wren.id).change(by=ann.actor, system_prompt="You say YES.")
    said = whetstone("users", "deactivate", " Ann@example.org ", "--json").json

    assert (said["email"], said["changed"], said["ended_tokens"]) == ("ann@example.org", True, [])
    assert [(each["agent"], each["id"]) for each in said["tokens"]] == [("wren", seen.split("_")[1])]
    assert [(each["agent"], each["fields"]) for each in said["settings"]] == [("wren", ["system_prompt"])]
    assert "You say YES" not in str(said)
    assert authenticate(seen) is not None
    told = whetstone("users", "deactivate", "ann@example.org")
    assert "ann@example.org was deactivated already." in told.out
    assert "Revoke these tokens: ./whetstone users deactivate ann@example.org --end-tokens" in told.out
    assert authenticate(other) is not None
    assert verify().ok


def test_their_tokens_end_when_it_is_wanted_and_no_others(ann: User, whetstone: Whetstone) -> None:
    wren = make_agent("wren")
    seen, other = shown(wren, "ann@example.org"), shown(wren, "bob@example.org", "other")
    said = whetstone("users", "deactivate", "ann@example.org", "--end-tokens", "--json").json

    assert said["ended_tokens"] == [seen.split("_")[1]]
    assert authenticate(seen) is None
    assert authenticate(other) is not None
    db.session.rollback()
    assert open_keys(wren).current_version == 2
    assert whetstone("users", "deactivate", "ann@example.org", "--json").json["tokens"] == []
    entry = db.session.scalars(db.select(AuditLog).where(AuditLog.action == Action.TOKEN_REVOKE)).one()
    assert entry.data["why"] == "ann@example.org was shown it, and was deactivated"
    assert verify().ok


def test_their_session_ends_and_they_sign_in_no_more(web: Flask, ann: User, whetstone: Whetstone) -> None:
    browser = Browser(web, ann)
    assert browser.get("/").status_code == 200
    whetstone("users", "deactivate", "ann@example.org")

    assert browser.get("/").status_code == 302
    with writing():
        db.session.get_one(User, ann.id, populate_existing=True).active = True
    assert browser.get("/").status_code == 302, "an old session is no session of whoever comes back"


def test_what_they_asked_an_agent_for_is_taken_back(ann: User, whetstone: Whetstone) -> None:
    asked, secret = ask(make_agent("wren", model_id="openai/gpt-5"), ann)
    whetstone("users", "deactivate", "ann@example.org")
    db.session.rollback()
    end_what_is_over()
    assert state(asked) == "withdrawn"
    assert authenticate(secret) is None


def test_nobody_is_no_user(app: Flask, whetstone: Whetstone) -> None:
    said = whetstone("users", "deactivate", "nobody@example.org", "--json")
    assert (said.status, said.error["code"]) == (1, "not_found")


def test_users_are_listed_by_account(ann: User, whetstone: Whetstone) -> None:
    with writing():
        other = Account.create("Elsewhere")
    make_user("eve@example.org", ADMIN, account_id=other.id)
    whetstone("users", "deactivate", "ann@example.org")
    here = {each["email"]: each for each in whetstone("users", "list", "--json").json}

    assert (here["ann@example.org"]["roles"], here["ann@example.org"]["active"]) == (["admin"], False)
    assert "eve@example.org" not in here
    assert "deactivated" in whetstone("users", "list").out
    assert "eve@example.org" in whetstone("users", "list", "--account", "Elsewhere").out
