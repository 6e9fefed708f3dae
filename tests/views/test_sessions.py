"""Sign-in tells strangers nothing, what stood before it is worth nothing after, and it leads nowhere else."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from html import unescape
from urllib.parse import urljoin, urlsplit

import pytest
from flask import Flask
from flask_security import hash_password
from passlib.hash import argon2
from sqlalchemy import delete, insert, select, update
from werkzeug.test import TestResponse

from app.extensions import db, writing
from app.history.verify import verify
from app.models import Account, Role, User
from app.models.user import ADMIN, AUDITOR, OWNER, SITE_ADMIN
from tests.views.conftest import PASSWORD, Browser, browser

UNKNOWN = "nobody@example.org"
ELSEWHERE = [
    "//evil.example/",
    "///evil.example/",
    "////evil.example",
    "/\\evil.example",
    "\\\\evil.example",
    "\\/evil.example",
    "/\t/evil.example",
    "/\n/evil.example",
    "\t//evil.example",
    " //evil.example",
    "\x00//evil.example",
    "/%5cevil.example",
    "https://evil.example/",
    "https:evil.example",
    "https:/evil.example",
    "http://localhost@evil.example/",
    "http://localhost:80@evil.example/",
    "http://localhost.evil.example/",
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    "data:text/html,x",
    "evil.example",
    "//evil%E3%80%82example/",
]


@pytest.fixture
def user(web: Flask) -> User:
    person = browser(web, ADMIN).user
    assert person is not None
    return person


def sign_in(
    visitor: Browser, email: str, password: str = PASSWORD, *, address: str = "", **fields: str
) -> TestResponse:
    options = {"environ_overrides": {"REMOTE_ADDR": address}} if address else {}
    return visitor.post("/sign-in", {"email": email, "password": password, **fields}, **options)


def is_signed_in(visitor: Browser) -> bool:
    return visitor.get("/agents").status_code == 200


def said(answer: TestResponse, email: str) -> tuple[int, set[str], str]:
    """Status, names of the headers, and the words but for what the visitor typed and the tokens of the page."""
    words = re.sub(r'"X-CSRFToken": "[^"]+"|name="csrf_token" value="[^"]+"|"csrf_token":"[^"]+"', "", answer.text)
    return answer.status_code, set(answer.headers.keys()), words.replace(email, "")


def as_page(visitor: Browser, email: str, password: str = "not the password") -> TestResponse:
    return sign_in(visitor, email, password)


def as_json(visitor: Browser, email: str, password: str = "not the password") -> TestResponse:
    given = {"email": email, "password": password}
    headers = {"Accept": "application/json", "X-CSRFToken": visitor.token}
    return visitor.client.post("/sign-in", json=given, headers=headers)


@pytest.mark.parametrize("ask", [as_page, as_json])
def test_known_unknown_and_deactivated_users_get_the_same_answer(
    web: Flask, stranger: Browser, user: User, ask: Callable[[Browser, str], TestResponse]
) -> None:
    ask(stranger, UNKNOWN)
    known = said(ask(stranger, user.email), user.email)
    unknown = said(ask(stranger, UNKNOWN), UNKNOWN)
    with writing():
        db.session.get_one(User, user.id).active = False
    inactive = said(ask(stranger, user.email), user.email)

    assert known == unknown == inactive


AS_IN_THE_PRODUCT = {name: getattr(argon2, name) for name in ("memory_cost", "default_rounds", "parallelism")}
"""As its library chooses them: read when this file is, before any test made them cheap."""


def stored(email: str) -> str:
    db.session.rollback()
    return str(db.session.scalar(select(User.password).where(User.email == email)))


def at_full_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the product; the other tests hash passwords cheaply."""
    for name, value in AS_IN_THE_PRODUCT.items():
        monkeypatch.setattr(argon2, name, value)


def test_a_refusal_costs_the_same_work_for_known_and_unknown_users(
    web: Flask, stranger: Browser, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_full_cost(monkeypatch)
    with web.app_context():
        hashed = hash_password(PASSWORD)
    with writing():
        db.session.get_one(User, user.id).password = hashed

    def work(email: str) -> float:
        began = time.process_time()
        assert sign_in(stranger, email, "not the password").status_code == 200
        return time.process_time() - began

    known, unknown = (min(work(email) for _ in range(3)) for email in (user.email, UNKNOWN))

    assert known / 2 < unknown < known * 2


@pytest.mark.parametrize("send", [as_page, as_json])
def test_a_hash_of_another_cost_is_renewed_at_a_sign_in_and_the_log_knows(
    web: Flask, stranger: Browser, user: User, send: Callable[..., TestResponse], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an update of the library that chooses the cost: nobody would get in any more."""
    email, before = user.email, user.password
    at_full_cost(monkeypatch)
    assert send(stranger, email, "not the password").status_code in (200, 400)
    assert stored(email) == before

    send(stranger, email, PASSWORD)

    assert is_signed_in(stranger)
    assert stored(email) != before
    assert "m=65536" in stored(email)
    assert verify().ok
    renewed = stored(email)
    again = Browser(web, None)
    send(again, email, PASSWORD)
    assert is_signed_in(again)
    assert stored(email) == renewed


def test_who_proves_to_be_themselves_by_a_hash_of_another_cost_is_let_on_and_nothing_is_written(
    web: Flask, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page that asks for the password again. The next sign-in renews the hash."""
    email, before, person = user.email, user.password, Browser(web, user)
    at_full_cost(monkeypatch)

    assert person.post("/verify", {"password": "not the password"}).status_code == 200
    assert person.post("/verify", {"password": PASSWORD}).status_code == 302

    assert stored(email) == before
    assert verify().ok


def test_a_password_that_was_changed_meanwhile_is_not_overwritten_by_its_older_hash(
    web: Flask, stranger: Browser, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_full_cost(monkeypatch)
    with web.app_context():
        changed = hash_password("another password")
    lock = Account.lock

    def changed_before_the_lock(account_id: int) -> Account:
        locked = lock(account_id)
        db.session.execute(update(User).where(User.id == user.id).values(password=changed))
        return locked

    monkeypatch.setattr(Account, "lock", changed_before_the_lock)
    as_page(stranger, user.email, PASSWORD)

    assert stored(user.email) == changed


def test_throttled_known_and_unknown_users_are_told_the_same(stranger: Browser, user: User) -> None:
    """By account and address; while it is told so, the right password is no way to find out."""
    by_name: dict[str, list[int]] = {user.email: [], UNKNOWN: []}
    for email, statuses in by_name.items():
        for _ in range(6):
            answer = sign_in(stranger, email, "", address=f"10.{len(email)}.0.1")
            statuses.append(answer.status_code)
    last = [said(sign_in(stranger, email, address=f"10.{len(email)}.0.1"), email) for email in by_name]

    assert list(by_name.values()) == [[200] * 5 + [429]] * 2
    assert last[0] == last[1]
    assert last[0][0] == 429


def test_nothing_from_before_the_sign_in_is_worth_anything_after(web: Flask, stranger: Browser, user: User) -> None:
    page = stranger.get("/sign-in")
    before, planted = cookies_of(stranger), token_in(page)
    assert sign_in(stranger, user.email).status_code == 302
    assert is_signed_in(stranger)

    assert cookies_of(stranger)["whetstone"] != before["whetstone"]
    assert not is_signed_in(copy_of(web, before))
    assert stranger.client.post("/agents/pause", data={"csrf_token": planted, "agent": "1"}).status_code == 400
    fresh = token_in(stranger.get("/agents"))
    assert stranger.client.post("/agents/pause", data={"csrf_token": fresh, "agent": "77"}).status_code == 404


def test_a_cookie_that_somebody_planted_is_not_taken_over(web: Flask, stranger: Browser, user: User) -> None:
    """An attacker's own session, put into a browser, does not become the session of who signs in there."""
    attacker = Browser(web, None)
    attacker.get("/sign-in")
    victim = copy_of(web, cookies_of(attacker))
    token = token_in(victim.get("/sign-in"))
    victim.client.post("/sign-in", data={"csrf_token": token, "email": user.email, "password": PASSWORD})

    assert is_signed_in(victim)
    assert not is_signed_in(attacker)
    assert cookies_of(attacker)["whetstone"] != cookies_of(victim)["whetstone"]


def test_signing_out_leaves_no_cookie_and_no_token(web: Flask, stranger: Browser, user: User) -> None:
    sign_in(stranger, user.email, remember="y")
    token = token_in(stranger.get("/agents"))
    assert "remember_token" in cookies_of(stranger)

    answer = stranger.client.post("/sign-out", data={"csrf_token": token})

    assert answer.headers["Location"] == "/sign-in"
    assert not cookies_of(stranger).get("remember_token")
    assert not is_signed_in(stranger)
    assert not is_signed_in(copy_of(web, cookies_of(stranger)))
    assert stranger.client.post("/sign-in", data={"csrf_token": token}).status_code == 400


@pytest.mark.parametrize("change", [{"active": False}, {"fs_uniquifier": "another one"}])
def test_every_copy_of_a_session_ends_with_the_user_s_right_to_it(
    web: Flask, stranger: Browser, user: User, change: dict[str, object]
) -> None:
    sign_in(stranger, user.email, remember="y")
    copies = [copy_of(web, {name: value}) for name, value in cookies_of(stranger).items()]
    assert len(copies) == 2
    assert all(is_signed_in(copy) for copy in copies)
    with writing():
        for name, value in change.items():
            setattr(db.session.get_one(User, user.id), name, value)

    assert not is_signed_in(stranger)
    assert not any(is_signed_in(copy) for copy in copies)


def test_nobody_is_let_in_by_a_token_in_an_address_or_a_header(web: Flask, user: User, stranger: Browser) -> None:
    given = {"email": user.email, "password": PASSWORD}
    headers = {"X-CSRFToken": stranger.token, "Accept": "application/json"}
    answer = stranger.client.post("/sign-in?include_auth_token", json=given, headers=headers)
    token = answer.json["response"]["user"]["authentication_token"]  # type: ignore[index]
    other = Browser(web, None)

    assert is_signed_in(stranger)
    assert other.get(f"/agents?auth_token={token}").status_code == 302
    assert other.get("/agents.json", headers={"Authentication-Token": token}).status_code == 401
    assert other.get("/agents", json={"auth_token": token}).status_code == 401


def test_guessing_the_password_of_an_open_session_is_slowed_down_too(stranger: Browser, user: User) -> None:
    sign_in(stranger, user.email)

    assert [stranger.post("/verify", {"password": ""}).status_code for _ in range(11)] == [200] * 10 + [429]


@pytest.mark.parametrize("there", ELSEWHERE)
def test_sign_in_and_sign_out_lead_nowhere_else(stranger: Browser, user: User, there: str) -> None:
    page = stranger.get("/sign-in", query_string={"next": there})
    signed_in = sign_in(stranger, user.email, next=there)
    again = stranger.client.get("/sign-in", query_string={"next": there})
    verified = stranger.post("/verify", {"password": PASSWORD}, query_string={"next": there})
    out = stranger.post("/sign-out", {"next": there}, query_string={"next": there})

    for answer in (page, signed_in, again, verified, out):
        for address in (answer.headers.get("Location", ""), *re.findall(r'(?:href|action)="([^"]*)"', answer.text)):
            assert as_a_browser_reads_it(unescape(address)) in ("http://localhost", "https://localhost"), address


def as_a_browser_reads_it(address: str) -> str:
    """Where a link on the sign-in page leads to: white space goes, and every slash is one."""
    address = re.sub(r"[\x00-\x20]", "", address).replace("\\", "/")
    address = re.sub(r"^(https?:)?/{2,}", r"\1//", re.sub(r"^(https?):/*", r"\1://", address, flags=re.I))
    found = urlsplit(urljoin("http://localhost/sign-in", address))
    return f"{found.scheme}://{found.netloc}"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "localhost@evil.example", "evil.example/x"])
def test_the_host_header_reaches_no_address_and_no_page(stranger: Browser, user: User, host: str) -> None:
    headers = {"Host": host, "X-Forwarded-Host": host, "X-Forwarded-Proto": "https", "Forwarded": f"host={host}"}
    answers = [stranger.get(path, headers=headers) for path in ("/", "/agents?state=paused", "/sign-in", "/nowhere")]
    answers.append(stranger.post("/sign-in", {"email": user.email, "password": PASSWORD}, headers=headers))
    answers.append(stranger.get("/agents", headers=headers))
    for answer in answers:
        assert "evil" not in answer.headers.get("Location", "")
        assert "evil" not in answer.text


def cookies_of(visitor: Browser) -> dict[str, str]:
    named = {name: visitor.client.get_cookie(name) for name in ("whetstone", "remember_token")}
    return {name: cookie.value for name, cookie in named.items() if cookie is not None}


def copy_of(web: Flask, cookies: dict[str, str]) -> Browser:
    """Somebody else's browser, which has got hold of these."""
    made = Browser(web, None)
    made.client = web.test_client()
    for name, value in cookies.items():
        made.client.set_cookie(name, value)
    return made


def token_in(answer: TestResponse) -> str:
    found = re.search(r'name="csrf_token" value="([^"]+)"', answer.text)
    assert found is not None
    return found[1]


def test_each_page_asks_anew_which_roles_its_user_has(web: Flask) -> None:
    """Several at once, none, and others than a moment ago, whoever changed them."""
    user = browser(web, OWNER)
    assert user.user is not None
    number = user.user.id
    assert user.get("/agents/new").status_code == 200
    held = db.metadata.tables["roles_users"]
    with writing() as session:
        for role in (AUDITOR, SITE_ADMIN):
            session.execute(insert(held).values(user_id=number, role_id=Role.named(role).id))
    assert user.get("/agents/new").status_code == 200
    assert user.get("/settings/accounts").status_code == 200
    with writing() as session:
        named = select(Role.id).where(Role.name.in_([OWNER, SITE_ADMIN]))
        session.execute(delete(held).where(held.c.user_id == number, held.c.role_id.in_(named)))
    assert user.get("/agents/new").status_code == 403
    assert user.get("/agents").status_code == 200
    with writing() as session:
        session.execute(delete(held).where(held.c.user_id == number))
    assert user.get("/agents").status_code == 403
