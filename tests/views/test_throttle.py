"""Guessing is slowed down, and nobody can lock another one out: by address, account, device and in JSON."""

from __future__ import annotations

import re
from typing import Any

import pytest
from flask import Flask
from limits import parse_many
from werkzeug.test import TestResponse

from app.models.user import OWNER
from app.views import throttle
from app.views.throttle import DEVICE_COOKIE
from tests.views.conftest import PASSWORD, Browser, browser

HOME_ADDRESS = "198.51.100.7"


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Smaller numbers than the real ones: each try costs a slow hash."""
    for name, rates in (
        ("ATTACK", "6/hour"),
        ("BY_ADDRESS", "7/minute"),
        ("BY_DEVICE", "3/minute"),
        ("BY_USER", "3/minute"),
    ):
        monkeypatch.setattr(throttle, name, parse_many(rates))


@pytest.fixture
def email(web: Flask) -> str:
    person = browser(web, OWNER).user
    assert person is not None
    return person.email


def visitor(web: Flask) -> Browser:
    return Browser(web, None)


def sign_in(who: Browser, email: str, password: str, address: str, **headers: str) -> TestResponse:
    sent = {"email": email, "password": password}
    return who.post("/sign-in", sent, environ_overrides={"REMOTE_ADDR": address}, headers=headers)


def sign_in_by_json(who: Browser, sent: Any, address: str) -> TestResponse:
    headers = {"X-CSRFToken": who.token, "Accept": "application/json"}
    return who.client.post("/sign-in", json=sent, headers=headers, environ_overrides={"REMOTE_ADDR": address})


def attack(web: Flask, email: str, failures: int = 7) -> None:
    """Wrong passwords for one account, from an address each."""
    for number in range(failures):
        assert sign_in(visitor(web), email, "not the password", f"203.0.113.{number}").status_code == 200


def test_wrong_passwords_from_elsewhere_do_not_lock_the_owner_out(web: Flask, email: str) -> None:
    attack(web, email)

    mistyped = sign_in(visitor(web), email, "a typing error", HOME_ADDRESS)
    right = sign_in(visitor(web), email, PASSWORD, HOME_ADDRESS)

    assert (mistyped.status_code, right.status_code) == (200, 302)


def test_an_address_has_fewer_tries_for_an_account_that_is_attacked(web: Flask, email: str) -> None:
    attack(web, email)

    statuses = [sign_in(visitor(web), email, "guess", "203.0.113.200").status_code for _ in range(4)]

    assert statuses == [200, 200, 429, 429]


def test_a_known_device_is_not_concerned_by_what_its_address_or_others_try(web: Flask, email: str) -> None:
    owner = visitor(web)
    assert sign_in(owner, email, PASSWORD, HOME_ADDRESS).status_code == 302
    owner.post("/sign-out")
    attack(web, email)
    for _ in range(5):
        sign_in(visitor(web), email, "guess", HOME_ADDRESS)
    assert sign_in(visitor(web), email, PASSWORD, HOME_ADDRESS).status_code == 429

    assert sign_in(owner, email, PASSWORD, HOME_ADDRESS).status_code == 302


def test_a_known_device_guesses_no_faster(web: Flask, email: str) -> None:
    owner = visitor(web)
    sign_in(owner, email, PASSWORD, HOME_ADDRESS)
    owner.post("/sign-out")

    statuses = [sign_in(owner, email, "guess", f"203.0.113.{n}").status_code for n in range(4)]

    assert statuses == [200] * 3 + [429]


def test_a_device_of_another_or_a_forged_one_opens_nothing(web: Flask, email: str) -> None:
    other = browser(web, "admin").user
    assert other is not None
    colleague = visitor(web)
    sign_in(colleague, other.email, PASSWORD, HOME_ADDRESS)
    colleague.post("/sign-out")
    forger = visitor(web)
    for cookie in ("x", "WyJhIiwiYiJd.x.y", "null"):
        forger.client.set_cookie(DEVICE_COOKIE, cookie)
        assert sign_in(forger, email, "guess", "203.0.113.9").status_code == 200

    statuses = [sign_in(colleague, email, "guess", "203.0.113.9").status_code for _ in range(3)]

    assert statuses == [200, 200, 429]


def test_who_is_signed_in_notices_nothing(web: Flask, email: str) -> None:
    owner = visitor(web)
    sign_in(owner, email, PASSWORD, HOME_ADDRESS)
    attack(web, email)

    assert owner.get("/", environ_overrides={"REMOTE_ADDR": "203.0.113.1"}).status_code == 200


def test_successes_do_not_count(web: Flask, email: str) -> None:
    for _ in range(8):
        assert sign_in(visitor(web), email, PASSWORD, HOME_ADDRESS).status_code == 302
        sent = {"email": email, "password": PASSWORD}
        assert sign_in_by_json(visitor(web), sent, HOME_ADDRESS).status_code == 200


def test_it_says_in_how_many_seconds_there_is_room(web: Flask, email: str) -> None:
    for _ in range(5):
        sign_in(visitor(web), email, "guess", HOME_ADDRESS)

    refused = sign_in(visitor(web), email, PASSWORD, HOME_ADDRESS)

    seconds = int(refused.headers["Retry-After"])
    assert refused.status_code == 429
    assert 0 < seconds <= 60
    assert re.search(rf"Too many failed attempts\. Try again in {seconds} seconds?\.", refused.text)
    assert "minute" not in refused.text
    assert '<a class="button primary" href="/sign-in">Back to sign-in</a>' in refused.text


def test_a_long_wait_is_told_in_minutes() -> None:
    assert "Try again in 1 second." in str(throttle.TooManyTries(1))
    assert "Try again in 119 seconds." in str(throttle.TooManyTries(119))
    assert "Try again in 11 minutes." in str(throttle.TooManyTries(601))


def test_json_has_the_same_rules_and_one_count_an_account(web: Flask, email: str) -> None:
    wrong = {"email": email.upper(), "password": "guess"}
    statuses = [sign_in_by_json(visitor(web), wrong, HOME_ADDRESS).status_code for _ in range(6)]
    assert statuses == [400] * 5 + [429]

    refused = sign_in_by_json(visitor(web), {"email": email, "password": PASSWORD}, HOME_ADDRESS)
    assert (refused.status_code, refused.json["code"]) == (429, "rate_limited")
    assert int(refused.headers["Retry-After"]) > 0
    assert sign_in(visitor(web), email, PASSWORD, HOME_ADDRESS).status_code == 429
    other = browser(web, "admin").user
    assert other is not None
    sent = {"email": other.email, "password": PASSWORD}
    assert sign_in_by_json(visitor(web), sent, HOME_ADDRESS).status_code == 200


@pytest.mark.parametrize("sent", [[], "text", 7])
def test_json_that_is_no_object_is_refused(web: Flask, sent: Any) -> None:
    assert sign_in_by_json(visitor(web), sent, HOME_ADDRESS).status_code == 422


@pytest.mark.parametrize("sent", [{"email": ["a"]}, {"email": {"a": 1}}, {"email": None}, {}])
def test_json_of_any_form_is_a_failure_and_no_error(web: Flask, sent: Any) -> None:
    statuses = [sign_in_by_json(visitor(web), sent, HOME_ADDRESS).status_code for _ in range(6)]
    assert all(400 <= status < 500 for status in statuses)
    assert statuses[-1] == 429


def test_a_forwarded_address_is_not_believed(web: Flask, email: str) -> None:
    statuses = [
        sign_in(visitor(web), email, "guess", HOME_ADDRESS, **{"X-Forwarded-For": f"192.0.2.{n}"}).status_code
        for n in range(6)
    ]
    assert statuses == [200] * 5 + [429]


def test_an_address_that_tries_many_accounts_is_slowed_down(web: Flask) -> None:
    statuses = [sign_in(visitor(web), f"{n}@example.org", "guess", HOME_ADDRESS).status_code for n in range(8)]
    assert statuses == [200] * 7 + [429]


def test_confirming_who_one_is_counts_failures_of_this_user_only(web: Flask, email: str) -> None:
    owner = visitor(web)
    sign_in(owner, email, PASSWORD, HOME_ADDRESS)
    for _ in range(4):
        assert owner.post("/verify", {"password": PASSWORD}).status_code == 302

    statuses = [owner.post("/verify", {"password": "guess"}).status_code for _ in range(4)]

    assert statuses == [200] * 3 + [429]
    assert owner.post("/verify", {"password": PASSWORD}).status_code == 429
    assert owner.get("/").status_code == 200
