"""Sign-in: audited, throttled, silent about who exists, and possible beside a busy writer."""

from __future__ import annotations

import re
import threading

import pytest
from flask import Flask
from sqlalchemy import select

from app.extensions import db, writing
from app.history.verify import verify
from app.models import Account, Action, AuditLog
from app.models.user import ADMIN
from tests.support.factories import HOME
from tests.views.conftest import PASSWORD, Browser, browser

SAME_ANSWER = "Email or password is incorrect. Try again."


@pytest.fixture
def user(web: Flask) -> str:
    person = browser(web, ADMIN).user
    assert person is not None
    return person.email


def sign_in(visitor: Browser, email: str, password: str, **fields: str) -> int:
    return visitor.post("/sign-in", {"email": email, "password": password, **fields}).status_code


def entries(action: Action) -> list[AuditLog]:
    db.session.rollback()
    return list(db.session.scalars(select(AuditLog).where(AuditLog.action == action)))


def test_signing_in_opens_the_overview_and_is_audited(stranger: Browser, user: str) -> None:
    answer = stranger.post("/sign-in", {"email": user.upper(), "password": PASSWORD})

    assert (answer.status_code, answer.headers["Location"]) == (302, "/")
    assert stranger.get("/").status_code == 200
    assert [(entry.actor, entry.account_id) for entry in entries(Action.SIGN_IN)] == [(f"user:{user}", HOME)]
    assert verify().ok


def test_a_failed_sign_in_stands_on_the_users_account(stranger: Browser, user: str) -> None:
    assert sign_in(stranger, user, "not the password") == 200

    assert stranger.get("/").status_code == 302
    assert [entry.actor for entry in entries(Action.SIGN_IN_FAILED)] == [f"user:{user}"]


def test_it_does_not_tell_whether_a_user_exists(stranger: Browser, user: str) -> None:
    wrong = stranger.post("/sign-in", {"email": user, "password": "not the password"})
    unknown = stranger.post("/sign-in", {"email": "nobody@example.org", "password": "not the password"})

    assert SAME_ANSWER in wrong.text
    told = [without_tokens(wrong.text, user), without_tokens(unknown.text, "nobody@example.org")]
    assert told[0] == told[1]


def test_a_user_who_was_deactivated_does_not_get_in(stranger: Browser, user: str) -> None:
    from app.models import User

    with writing() as session:
        found = session.scalar(select(User).where(User.email == user))
        assert found is not None
        found.active = False

    assert sign_in(stranger, user, PASSWORD) == 200
    assert stranger.get("/").status_code == 302


def test_guessing_is_slowed_down(stranger: Browser) -> None:
    statuses = [sign_in(stranger, f"{number}@example.org", "not the password") for number in range(11)]

    assert statuses == [200] * 10 + [429]


def test_signing_out_needs_a_post_and_is_audited(stranger: Browser, user: str) -> None:
    sign_in(stranger, user, PASSWORD)

    assert stranger.get("/sign-out").status_code == 405
    assert stranger.get("/").status_code == 200
    assert stranger.post("/sign-out").status_code == 302
    assert stranger.get("/").status_code == 302
    assert [entry.actor for entry in entries(Action.SIGN_OUT)] == [f"user:{user}"]


def test_without_its_audit_entry_nobody_is_signed_in(
    stranger: Browser, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("the log is full")

    monkeypatch.setattr("app.views.auth.record", fails)

    assert sign_in(stranger, user, PASSWORD) == 500
    assert stranger.get("/").status_code == 302


def test_sign_in_leads_back_to_the_page_that_was_asked_for_but_never_elsewhere(stranger: Browser, user: str) -> None:
    asked = stranger.get("/agents?state=paused")
    there = stranger.post("/sign-in", {"email": user, "password": PASSWORD, "next": "/agents?state=paused"})
    stranger.post("/sign-out")
    elsewhere = stranger.post("/sign-in", {"email": user, "password": PASSWORD, "next": "//evil.example/"})
    link = stranger.get("/sign-in?next=//evil.example/")

    assert asked.headers["Location"] == "/sign-in?next=/agents?state%3Dpaused"
    assert there.headers["Location"] == "/agents?state=paused"
    assert "evil" not in elsewhere.headers.get("Location", "") + elsewhere.text + link.text


def test_the_cookie_is_kept_from_scripts_and_other_sites(stranger: Browser, user: str) -> None:
    answer = stranger.post("/sign-in", {"email": user, "password": PASSWORD})

    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie


def test_signing_in_waits_for_a_busy_writer_and_never_fails(web: Flask, user: str) -> None:
    statuses: list[int] = []
    stop = threading.Event()

    def write_all_the_time() -> None:
        with web.app_context():
            while not stop.is_set():
                with writing():
                    Account.lock(HOME)
            db.session.remove()

    def sign_in_often() -> None:
        for _ in range(3):
            statuses.append(sign_in(Browser(web, None), user, PASSWORD))

    writers = [threading.Thread(target=write_all_the_time) for _ in range(2)]
    people = [threading.Thread(target=sign_in_often) for _ in range(3)]
    for thread in (*writers, *people):
        thread.start()
    for thread in people:
        thread.join()
    stop.set()
    for thread in writers:
        thread.join()

    assert statuses == [302] * 9
    assert len(entries(Action.SIGN_IN)) == 9
    assert verify().ok


def without_tokens(page: str, email: str) -> str:
    page = page.replace(email, "X")
    return re.sub(r'(value|X-CSRFToken)"?[=:] ?"[^"]{20,}"', "", page)
