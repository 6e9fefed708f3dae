"""One's own account: a password by the old one, sessions that can be ended, a time zone; and the account's name."""

from __future__ import annotations

import re
from html import unescape

import pytest
from flask import Flask
from sqlalchemy import select

from app.extensions import db, writing
from app.history.verify import verify
from app.models import Account, User, UserSession
from app.models.user_session import KEPT, drop_old_sessions
from app.views.sessions import browser_words
from tests.support.clock import FakeClock
from tests.support.factories import HOME
from tests.views.conftest import PASSWORD, Browser
from tests.views.test_users import NEW, can_sign_in, person

PAGE = "/settings/account"
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"


def sign_in(web: Flask, email: str, **fields: str) -> Browser:
    """In a browser of its own."""
    made = Browser(web, None)
    given = {"email": email, "password": PASSWORD, **fields}
    assert made.post("/sign-in", given, headers={"User-Agent": FIREFOX}).status_code == 302
    return made


def is_in(visitor: Browser) -> bool:
    return visitor.get(PAGE).status_code == 200


def cookie(visitor: Browser, name: str) -> str:
    found = visitor.client.get_cookie(name)
    assert found is not None
    return found.value


def with_cookie(web: Flask, name: str, value: str) -> Browser:
    made = Browser(web, None)
    made.client = web.test_client()
    made.client.set_cookie(name, value)
    return made


def email_of(visitor: Browser) -> str:
    assert visitor.user is not None
    return visitor.user.email


def test_a_new_password_needs_the_old_one_and_ends_all_other_sessions(web: Flask, auditor: Browser) -> None:
    email = email_of(auditor)
    here, elsewhere = sign_in(web, email, remember="y"), sign_in(web, email, remember="y")
    copies = [with_cookie(web, name, cookie(elsewhere, name)) for name in ("whetstone", "remember_token")]

    answer = here.post(f"{PAGE}/password", {"old": PASSWORD, "password": NEW, "password_again": NEW})

    assert (answer.status_code, answer.headers["Location"]) == (303, PAGE)
    assert is_in(here)
    assert is_in(with_cookie(web, "remember_token", cookie(here, "remember_token")))
    assert not any(is_in(each) for each in (auditor, elsewhere, *copies))
    assert can_sign_in(web, email, NEW)
    assert not can_sign_in(web, email, PASSWORD)
    assert verify().ok


@pytest.mark.parametrize(
    ("old", "new", "again", "sentence"),
    [
        ("not the password", NEW, NEW, "That is not your password."),
        ("", NEW, NEW, "That is not your password."),
        (PASSWORD, "short", "short", "The password must have at least 12 characters."),
        (PASSWORD, NEW, f"{NEW}!", "The two passwords are not the same."),
    ],
)
def test_a_password_that_can_not_be_changed_says_why_and_everything_stays(
    web: Flask, auditor: Browser, old: str, new: str, again: str, sentence: str
) -> None:
    answer = auditor.post(f"{PAGE}/password", {"old": old, "password": new, "password_again": again})

    assert (answer.status_code, sentence in unescape(answer.text)) == (422, True)
    assert is_in(auditor)
    assert can_sign_in(web, email_of(auditor), PASSWORD)


def test_guessing_the_old_password_is_slowed_down(auditor: Browser) -> None:
    guess = {"old": "a guess", "password": NEW, "password_again": NEW}
    assert [auditor.post(f"{PAGE}/password", guess).status_code for _ in range(11)] == [422] * 10 + [429]


def test_sessions_are_listed_and_each_can_be_ended_alone(web: Flask, auditor: Browser, clock: FakeClock) -> None:
    email = email_of(auditor)
    kept, ended = sign_in(web, email), sign_in(web, email, remember="y")
    copies = [with_cookie(web, name, cookie(ended, name)) for name in ("whetstone", "remember_token")]
    listed = ended.get(f"{PAGE}.json").json["sessions"]  # type: ignore[index]
    (mine,) = (each for each in listed if each["this_one"])
    assert (len(listed), mine["browser"], mine["address"]) == (3, "Firefox on Linux", "127.0.0.1")

    assert kept.post(f"{PAGE}/sessions/end", {"session": mine["id"]}).status_code == 303

    assert [is_in(each) for each in (ended, *copies, kept, auditor)] == [False, False, False, True, True]
    assert kept.post(f"{PAGE}/sessions/end").status_code == 303
    assert [is_in(each) for each in (kept, auditor)] == [True, False]
    assert verify().ok


def test_nobody_ends_the_session_of_another(web: Flask, auditor: Browser, owner: Browser, neighbour: Browser) -> None:
    theirs = auditor.get(f"{PAGE}.json").json["sessions"][0]["id"]  # type: ignore[index]

    for typed, status in ((str(theirs), 303), ("987654321", 303), ("x", 404), ("-1", 404)):
        for visitor in (owner, neighbour):
            assert visitor.post(f"{PAGE}/sessions/end", {"session": typed}).status_code == status
    assert is_in(auditor)
    assert str(theirs) not in re.findall(r'name="session" value="(\d+)"', owner.get(PAGE).text)


def test_a_sign_out_ends_its_session_and_every_copy_of_its_cookie(web: Flask, auditor: Browser) -> None:
    here = sign_in(web, email_of(auditor), remember="y")
    copies = [with_cookie(web, name, cookie(here, name)) for name in ("whetstone", "remember_token")]
    assert all(map(is_in, copies))

    here.post("/sign-out")

    assert not any(map(is_in, copies))
    assert is_in(auditor)


def test_a_cookie_without_a_session_or_with_another_s_lets_nobody_in(
    web: Flask, auditor: Browser, owner: Browser
) -> None:
    assert auditor.user is not None
    assert owner.user is not None
    key = db.session.scalars(select(UserSession.key).where(UserSession.user_id == auditor.user.id)).one()
    for named in (
        owner.user.fs_uniquifier,
        f"{owner.user.fs_uniquifier}:",
        f"{owner.user.fs_uniquifier}:{key}",
        ":",
        key,
    ):
        forged = Browser(web, None)
        with forged.client.session_transaction() as session:
            session.update(_user_id=named, _fresh=True)
        assert not is_in(forged), named


def test_when_somebody_was_here_last_is_noted_every_few_minutes(auditor: Browser, clock: FakeClock) -> None:
    def seen() -> str:
        return str(auditor.get(f"{PAGE}.json").json["sessions"][0]["seen_at"])  # type: ignore[index]

    first = seen()
    clock.advance(minutes=4)
    assert (seen(), seen()) == (first, first)
    clock.advance(minutes=1)
    seen()
    assert seen() > first


def test_sessions_that_no_cookie_can_name_are_dropped(auditor: Browser, clock: FakeClock) -> None:
    clock.advance(days=KEPT.days)
    assert drop_old_sessions() == 0
    clock.advance(days=1)
    assert drop_old_sessions() == 1
    assert not is_in(auditor)


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (FIREFOX, "Firefox on Linux"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Version/18.0 Safari/604.1", "Safari on iPhone"),
        ("Mozilla/5.0 (Windows NT 10.0) Chrome/140.0 Safari/537.36 Edg/140.0", "Edge on Windows"),
        ("curl/8.5.0", "curl/8.5.0"),
        ("", "Unknown browser"),
        ("\x00\x1b", "Unknown browser"),
    ],
)
def test_a_browser_is_named_by_what_it_says_of_itself(agent: str, words: str) -> None:
    assert browser_words(agent) == words


def test_a_time_zone_is_one_that_there_is(auditor: Browser) -> None:
    email = email_of(auditor)
    for typed, status in ((" Europe/Lisbon ", 303), ("Mars/Base", 422), ("../etc/passwd", 422), ("a\x00b", 422)):
        answer = auditor.post(f"{PAGE}/time-zone", {"time_zone": typed})
        assert answer.status_code == status, typed
        assert ("There is no time zone" in answer.text) == (status == 422)
        assert '<html lang="en" data-time-zone="Europe/Lisbon">' in auditor.get(PAGE).text
        kept = person(email)
        assert kept is not None
        assert kept.time_zone == "Europe/Lisbon"
    auditor.post(f"{PAGE}/time-zone", {"time_zone": ""})
    assert auditor.get(f"{PAGE}.json").json["time_zone"] is None  # type: ignore[index]
    assert verify().ok


def test_owners_rename_the_account_and_nobody_else_does(owner: Browser, admin: Browser, neighbour: Browser) -> None:
    for typed, status in (("Rook's nest", 303), ("", 422), ("x" * 81, 422), ("Next door", 422)):
        assert owner.post(f"{PAGE}/name", {"name": typed}).status_code == status, typed
    assert admin.post(f"{PAGE}/name", {"name": "Mine"}).status_code == 403
    assert f"{PAGE}/name" not in admin.get(PAGE).text
    with writing():
        assert Account.lock(HOME).name == "Rook's nest"
    assert "Rook's nest" in unescape(owner.get(PAGE).text)
    assert db.session.scalar(select(User.id).where(User.time_zone.is_not(None))) is None
    assert verify().ok
