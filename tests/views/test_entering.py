"""An operator inside another account: how they get in, what an admin may do there, and how it ends."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape

import pytest
from flask import Flask
from sqlalchemy import select
from werkzeug.test import TestResponse

from app.extensions import db, writing
from app.history.verify import verify
from app.models import Account, Action, Agent, AuditLog, SettingsRequest, TokenRequest, User, UserSession
from app.models.user import AUDITOR, OWNER, SITE_ADMIN
from app.models.visits import end_visits, enter_account
from app.views import throttle
from app.views.access import NEEDED_ROLE
from tests.support.clock import FakeClock
from tests.support.factories import HOME, make_agent, make_user, remember
from tests.views.conftest import PASSWORD, Browser, browser
from tests.views.site import CONTENT, OWN, PUBLIC, SIGN_IN, UNTOUCHED, act_of, make_subject, routes
from tests.views.test_second_factor import Enrolled, enroll

pytestmark = [pytest.mark.timeout(120), pytest.mark.once]

ENTER = f"/settings/accounts/{HOME}/enter"
LEAVE = "/settings/accounts/leave"
FORM = {"reason": "They asked why wren waits.", "my_password": PASSWORD}
BANNER = 'id="visit"'


@pytest.fixture
def next_door(app: Flask) -> int:
    """The operator's own account."""
    with writing():
        return Account.create("Next door").id


@pytest.fixture
def sam(web: Flask, next_door: int) -> Browser:
    """An operator, and an owner at home."""
    return browser(web, OWNER, SITE_ADMIN, account_id=next_door)


@pytest.fixture
def inside(sam: Browser) -> Browser:
    return enter(sam)


def enter(visitor: Browser, **others: str) -> Browser:
    answer = visitor.post(ENTER, FORM | others)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/")
    assert banner_of(visitor.get("/"))
    return visitor


def banner_of(page: TestResponse) -> str:
    """Its words; empty where there is none."""
    found = re.search(r'<section id="visit".*?<p>(.*?)</p>', page.text, re.S)
    return unescape(re.sub(r"<svg.*?</svg>|<[^>]+>", "", found[1], flags=re.S)).strip() if found else ""


def account_of(visitor: Browser) -> str:
    """Where its pages are now."""
    found = re.search(r'<span class="menu-name">([^<]+)</span>', visitor.get("/audit").text)
    assert found
    return unescape(found[1])


def told(*actions: Action, account_id: int = HOME) -> list[tuple[str, str, dict[str, str]]]:
    """Action, actor and data, oldest first."""
    db.session.rollback()
    mine = (
        AuditLog.account_id == account_id,
        AuditLog.action.in_(actions or (Action.ACCOUNT_ENTER, Action.ACCOUNT_LEAVE)),
    )
    found = db.session.scalars(select(AuditLog).where(*mine).order_by(AuditLog.id))
    return [(entry.action, entry.actor, dict(entry.data)) for entry in found]


def why_left() -> list[str]:
    return [data["why"] for _, _, data in told(Action.ACCOUNT_LEAVE)]


def me(visitor: Browser) -> User:
    assert visitor.user is not None
    return db.session.get_one(User, visitor.user.id, populate_existing=True)


def test_an_operator_enters_as_an_admin_and_the_account_s_log_and_every_page_say_so(
    web: Flask, sam: Browser, owner: Browser, clock: FakeClock
) -> None:
    make_agent("wren")
    enter(sam)
    until = (clock.now() + timedelta(minutes=60)).strftime("%H:%M")
    for path in ("/", "/agents", "/audit", "/settings/users", "/agents/987654321"):
        page = sam.get(path)
        assert banner_of(page).startswith("You are in account Home as its admin until " + until)
        assert "Everything is logged there." in banner_of(page)
        assert f'action="{LEAVE}"' in page.text
    assert "wren" in sam.get("/agents").text

    ((action, actor, data),) = told()
    assert (action, actor) == ("account_enter", "user:owner-2@example.org")
    assert data == {"reason": FORM["reason"], "until": "2026-11-16T05:00:00Z"}
    log = owner.get("/audit").text
    assert "Entered the account as its admin" in log
    assert "They asked why wren waits." in unescape(log)
    assert BANNER not in log
    assert "Entered the account as its admin" in owner.get("/audit?actor=user:owner-2@example.org").text


def test_leaving_leads_home_and_stands_in_the_log(inside: Browser) -> None:
    answer = inside.post(LEAVE)
    assert (answer.status_code, answer.headers["Location"]) == (303, f"/settings/accounts/{HOME}")
    assert account_of(inside) == "Next door"
    assert BANNER not in inside.get("/").text
    assert why_left() == ["left"]
    again = inside.post(LEAVE)
    assert (again.status_code, why_left()) == (303, ["left"])
    db.session.rollback()
    assert verify().ok


@pytest.mark.parametrize(
    ("sent", "field", "words"),
    [
        ({"reason": " \u200b "}, "reason", "Say why"),
        ({"reason": "x" * 201}, "reason", "at most 200"),
        ({"reason": "a\x00b"}, "reason", "NUL"),
        ({"my_password": "not the password"}, "my_password", "password"),
        ({"my_password": ""}, "my_password", "password"),
    ],
)
def test_what_is_wrong_is_said_at_its_field_and_nobody_is_inside(
    sam: Browser, sent: dict[str, str], field: str, words: str
) -> None:
    answer = sam.post(ENTER, FORM | sent)
    assert answer.status_code == 422
    (said,) = re.findall(rf'id="f-{field}-error">(.*?)</p>', answer.text, re.S)
    assert words in unescape(said)
    assert PASSWORD not in answer.text
    assert (told(), account_of(sam)) == ([], "Next door")


def test_wrong_passwords_are_counted(sam: Browser) -> None:
    tries = [sam.post(ENTER, FORM | {"my_password": "no"}).status_code for _ in range(throttle.BY_USER[0].amount + 1)]
    assert tries == [422] * throttle.BY_USER[0].amount + [429]
    assert sam.post(ENTER, FORM).status_code == 429
    assert told() == []


@pytest.fixture
def enrolled(sam: Browser, clock: FakeClock) -> Enrolled:
    return enroll(sam, clock)


def test_who_has_a_second_factor_shows_it_too(sam: Browser, enrolled: Enrolled, next_door: int) -> None:
    assert 'name="code"' in sam.get(f"/settings/accounts/{HOME}").text
    for code in ("", "000000", "nothing-like-it"):
        answer = sam.post(ENTER, FORM | {"code": code})
        assert answer.status_code == 422
        assert "This code is not right" in answer.text
    assert told() == []
    assert len(told(Action.SIGN_IN_FAILED, account_id=next_door)) == 3
    enter(sam, code=enrolled.code)


def test_a_recovery_code_lets_in_once(sam: Browser, enrolled: Enrolled) -> None:
    code = enrolled.codes[0]
    enter(sam, code=code).post(LEAVE)
    assert sam.post(ENTER, FORM | {"code": code}).status_code == 422
    assert len(told(Action.ACCOUNT_ENTER)) == 1


def test_the_own_account_and_one_that_is_not_there_are_not_entered(sam: Browser, next_door: int) -> None:
    own = sam.post(f"/settings/accounts/{next_door}/enter", FORM)
    assert own.status_code == 409
    assert "You are in Next door already" in own.text
    assert "you are in it already" in sam.get(f"/settings/accounts/{next_door}").text
    assert sam.post("/settings/accounts/987654321/enter", FORM).status_code == 404
    assert told() == told(account_id=next_door) == []


def test_nobody_but_an_operator_enters(neighbour: Browser, admin: Browser, stranger: Browser) -> None:
    assert [each.post(ENTER, FORM).status_code for each in (neighbour, admin, stranger)] == [403, 403, 303]
    assert told() == []


def test_inside_no_further_account_is_entered_nor_managed(inside: Browser, next_door: int) -> None:
    for path in (
        ENTER,
        f"/settings/accounts/{next_door}/enter",
        f"/settings/accounts/{HOME}/limits",
        "/settings/accounts",
    ):
        answer = inside.post(path, FORM)
        assert answer.status_code == 409
        assert "You are inside another account already. Leave it first." in answer.text
    assert inside.get("/settings/accounts").status_code == 409
    assert "Accounts" not in [tab["label"] for tab in inside.get("/settings.json").json["tabs"]]  # type: ignore[index]
    assert len(told()) == 1


def test_other_sessions_of_the_operator_stay_at_home(web: Flask, inside: Browser) -> None:
    elsewhere = Browser(web, me(inside))
    assert (account_of(inside), account_of(elsewhere)) == ("Home", "Next door")
    assert elsewhere.get("/settings/accounts").status_code == 200


# What an admin may, and no more


def test_inside_every_route_gives_what_an_admin_has_and_refuses_what_an_owner_and_an_operator_have(
    web: Flask, inside: Browser
) -> None:
    subject, refusals = make_subject(), 0
    for method in ("GET", "POST"):
        for rule in routes(web, method, without=PUBLIC | SIGN_IN | CONTENT | {LEAVE_ENDPOINT, "events.poll"}):
            role = str(getattr(web.view_functions[rule.endpoint], NEEDED_ROLE, AUDITOR))
            act = act_of(rule) if method == "POST" else None
            if rule.rule.startswith(("/settings/account.", "/settings/account/")) or rule.rule == "/settings/account":
                expected = {409, 403}
            elif rule.endpoint.startswith("accounts."):
                expected = {409}
            elif role in (OWNER, SITE_ADMIN):
                expected = {403}
            else:
                expected = (
                    ({409, 422} if rule.endpoint in ASKED_OF_THE_AGENT else act.status) if act else {200, 301, 302}
                )
            about = make_subject() if act and rule.endpoint in UNTOUCHED else subject
            path = about.path(rule, **(act.named(about) if act else {}))
            answer = inside.post(path, act.form(about)) if act else inside.get(path, buffered=True)
            refusals += expected == {403}
            assert answer.status_code in expected, f"{method} {rule.rule}: {answer.status_code}"
    assert refusals > 5


LEAVE_ENDPOINT = "accounts.leave"
ASKED_OF_THE_AGENT = {"exceptions.ask"}
"""What binds a person to an agent: for the account's own admins alone."""


def test_ids_of_the_own_account_are_not_there_while_inside_another(
    web: Flask, operator: Browser, neighbour: Browser
) -> None:
    theirs = neighbour.user
    assert theirs is not None
    subject = make_subject()
    answer = operator.post(f"/settings/accounts/{theirs.account_id}/enter", FORM)
    assert answer.status_code == 303
    operator.get("/")
    before = len(told(*Action))
    asked = 0
    for method in ("GET", "POST"):
        for rule in routes(web, method, without=PUBLIC | SIGN_IN):
            if not rule.arguments or rule.endpoint.startswith("accounts.") or rule.endpoint in OWN:
                continue
            act = act_of(rule) if method == "POST" else None
            path = subject.path(rule, **(act.named(subject) if act else {}))
            answer = operator.post(path, act.form(subject)) if act else operator.get(path, buffered=True)
            role = str(getattr(web.view_functions[rule.endpoint], NEEDED_ROLE, AUDITOR))
            assert answer.status_code == (403 if role in (OWNER, SITE_ADMIN) else 404), rule
            asked += 1
    assert asked > 50
    assert len(told(*Action)) == before


def test_what_is_about_the_person_is_refused_in_a_sentence_and_stays_as_it_is(web: Flask, inside: Browser) -> None:
    before = me(inside).password
    for path in ("/settings/account", "/settings/account.json"):
        assert inside.get(path).status_code == 409
    assert "<h1>You are inside another account</h1>" in inside.get("/settings/account").text
    assert "Account" not in [tab["label"] for tab in inside.get("/settings.json").json["tabs"]]  # type: ignore[index]
    own = [rule for rule in routes(web, "POST") if rule.endpoint in OWN - {LEAVE_ENDPOINT}]
    assert len(own) >= 7
    for rule in own:
        path = rule.rule.replace("<int:passkey_id>", "1")
        answer = inside.post(path, {"old": PASSWORD, "password": "a staple and a battery"})
        assert answer.status_code == 409, rule
        assert "Leave the account that you entered first." in answer.text
    assert me(inside).password == before


def test_the_agents_are_asked_nothing_for_somebody_who_is_gone_in_an_hour(inside: Browser) -> None:
    """An exception, a token or a prompt that an agent agrees to is bound to a person of the account."""
    agent = make_agent("wren", model_id="openai/gpt-5")
    remember(agent, "Ann likes tea.")
    wish = {"category": "debugging", "purpose": "She repeats herself.", "minutes": "15", "scope": "ledger"}
    exception = inside.post(f"/agents/{agent.id}/exceptions", wish)
    token = inside.post(f"/agents/{agent.id}/tokens", {"name": "mine", "scope": ["read"]})
    assert (exception.status_code, token.status_code) == (422, 409)
    assert "one active admin of the agent's own account" in unescape(exception.text)
    assert "one active admin of the agent's own account" in unescape(token.text)
    written = {"name": "wren", "model_id": agent.model_id, "core_token_budget": "4321", "reflection_prompt": "Rhyme."}
    prompt = inside.post(f"/agents/{agent.id}/settings", written)
    assert prompt.status_code == 422
    assert "an active admin of its own account has to ask" in prompt.text
    assert db.session.get_one(Agent, agent.id, populate_existing=True).core_token_budget != 4321
    assert db.session.scalars(select(TokenRequest)).all() == db.session.scalars(select(SettingsRequest)).all() == []


def test_what_an_admin_changes_there_stands_in_the_log_under_the_operator_s_name(inside: Browser) -> None:
    agent = make_agent("wren")
    assert inside.post(f"/agents/{agent.id}/pause").status_code == 303
    assert ("agent_pause", "user:owner-2@example.org") in [entry[:2] for entry in told(Action.AGENT_PAUSE)]


# How it ends


def test_after_an_hour_it_is_over_without_anybody_s_doing(inside: Browser, clock: FakeClock) -> None:
    clock.advance(minutes=59)
    assert account_of(inside) == "Home"
    clock.advance(minutes=1)
    assert account_of(inside) == "Next door"
    assert why_left() == ["time"]


def test_beat_writes_down_what_is_over_where_no_page_is_asked_for_any_more(inside: Browser, clock: FakeClock) -> None:
    assert end_visits() == 0
    clock.advance(minutes=61)
    assert [end_visits(), end_visits()] == [1, 0]
    assert why_left() == ["time"]


def test_an_account_is_entered_again_where_nobody_wrote_down_yet_that_the_last_visit_is_over(
    inside: Browser, clock: FakeClock
) -> None:
    clock.advance(minutes=61)
    user = me(inside)
    opened = db.session.scalars(select(UserSession).where(UserSession.user_id == user.id)).one()
    user.ask_in_session(opened)
    enter_account(HOME, user=user, reason="Once more.")
    assert [action for action, _, _ in told()] == ["account_enter", "account_leave", "account_enter"]


def test_signing_out_ends_it_and_the_next_sign_in_is_at_home(web: Flask, inside: Browser) -> None:
    email = me(inside).email
    assert inside.post("/sign-out").status_code == 302
    assert why_left() == ["signed out"]
    assert inside.post("/sign-in", {"email": email, "password": PASSWORD}).status_code == 302
    assert account_of(inside) == "Next door"


def take_role(inside: Browser) -> None:
    with writing() as session:
        user = session.get_one(User, me(inside).id)
        user.roles = [role for role in user.roles if role.name != SITE_ADMIN]


def deactivate(inside: Browser) -> None:
    user = me(inside)
    other = make_user("second-owner@example.org", OWNER, account_id=user.account_id)
    with writing():
        account = Account.lock(user.account_id)
        User.of_account(account, user.id).deactivate(account, by=other.actor)


def new_password(inside: Browser) -> None:
    user = me(inside)
    with writing():
        account = Account.lock(user.account_id)
        User.of_account(account, user.id).set_password(account, "another hash", by=user.actor, how="command line")


def end_session(inside: Browser) -> None:
    user = me(inside)
    with writing():
        account = Account.lock(user.account_id)
        User.of_account(account, user.id).end_sessions(account, but="", by=user.actor)


@pytest.mark.parametrize(
    ("happens", "why"),
    [
        (take_role, "role lost"),
        (deactivate, "deactivated"),
        (new_password, "new password"),
        (end_session, "session ended"),
    ],
)
def test_it_is_over_at_once_with_what_it_rests_on(inside: Browser, happens: object, why: str) -> None:
    agent = make_agent("wren")
    assert callable(happens)
    happens(inside)
    assert inside.get(f"/agents/{agent.id}").status_code in (302, 404)
    assert inside.post(f"/agents/{agent.id}/pause").status_code in (303, 400, 404)
    end_visits()
    assert why_left() == [why]
    assert told(Action.AGENT_PAUSE) == []


def test_a_page_from_before_does_nothing_in_the_account_that_was_entered_or_left(
    web: Flask, sam: Browser, clock: FakeClock, next_door: int
) -> None:
    """Its form names no account: without this it would make an agent in the wrong one."""
    new = {"name": "stray", "model_id": "whetstone/offline", "core_token_budget": "5000"}
    at_home = {**new, "csrf_token": sam.token}
    enter(sam)
    for moment in ("entered", "left", "over"):
        token = sam.token
        if moment == "left":
            sam.post(LEAVE)
            sam.get("/")
            at_home = {**new, "csrf_token": token}
        if moment == "over":
            enter(sam)
            at_home = {**new, "csrf_token": sam.token}
            clock.advance(minutes=61)
        answer = sam.client.post("/agents", data=at_home)
        assert answer.status_code == 400, moment
        assert "This page is too old to act from" in answer.text
    db.session.rollback()
    assert db.session.scalars(select(Agent).where(Agent.name == "stray")).all() == []
    assert sam.get("/agents").status_code == 200
    assert sam.post("/agents", new).status_code == 201
    db.session.rollback()
    assert db.session.scalars(select(Agent.account_id).where(Agent.name == "stray")).all() == [next_door]
