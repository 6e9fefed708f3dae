"""The second factor: an authenticator app and recovery codes, at sign-in and under one's own account."""

from __future__ import annotations

import base64
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP
from flask import Flask
from limits import parse_many
from sqlalchemy import select, text
from werkzeug.test import TestResponse

from app.extensions import db, writing
from app.history.verify import verify
from app.models import Account, Action, AuditLog, User
from app.second_factor import TotpSetup
from app.silo import SecondFactorKey
from app.views import throttle
from tests.support.clock import FakeClock
from tests.support.factories import HOME
from tests.views.conftest import PASSWORD, Browser

PAGE = "/settings/account"
SET_UP, CONFIRM, TURN_OFF = (f"{PAGE}/authenticator{end}" for end in ("", "/confirm", "/remove"))
RENEW = f"{PAGE}/recovery-codes"
STEP = "/sign-in/code"
WRONG = "This code is not right, or was used before."
SECOND_STEP = {"second_step.show", "second_step.check", "passkeys.ask_second", "passkeys.check_second"}
BY_PASSWORD = {"factor_password": PASSWORD}


@dataclass
class Enrolled:
    """Somebody who has set up an authenticator app, and what they wrote down."""

    email: str
    secret: bytes
    codes: list[str]
    clock: FakeClock

    @property
    def code(self) -> str:
        """What the app shows now."""
        return TOTP(self.secret, 6, SHA1(), 30).generate(int(self.clock.now().timestamp())).decode()


def enroll(visitor: Browser, clock: FakeClock) -> Enrolled:
    shown = visitor.post(SET_UP, BY_PASSWORD)
    made = Enrolled(email_of(visitor), secret_on(shown), [], clock)
    done = visitor.post(CONFIRM, {"pending": pending_on(shown), "code": made.code})
    assert (shown.status_code, done.status_code) == (200, 201)
    made.codes += codes_on(done)
    clock.advance(seconds=30)
    return made


@pytest.fixture
def ann(admin: Browser, clock: FakeClock) -> Enrolled:
    return enroll(admin, clock)


def email_of(visitor: Browser) -> str:
    assert visitor.user is not None
    return visitor.user.email


def secret_on(page: TestResponse) -> bytes:
    shown = re.search(r'id="totp-secret">([A-Z2-7 ]+)<', page.text)
    assert shown
    return base64.b32decode(shown[1].replace(" ", ""))


def pending_on(page: TestResponse) -> str:
    found = re.search(r'name="pending" value="([^"]+)"', page.text)
    assert found
    return found[1]


def codes_on(page: TestResponse) -> list[str]:
    return re.findall(r"<li><code>([a-z0-9-]+)</code></li>", page.text)


def user_of(email: str) -> User:
    db.session.rollback()
    return db.session.scalars(select(User).where(User.email == email)).one()


def begin(web: Flask, email: str, **fields: str) -> Browser:
    """In a browser of its own, the password is shown and the code is not."""
    made = Browser(web, None)
    answer = made.post("/sign-in", {"email": email, "password": PASSWORD, **fields})
    assert (answer.status_code, answer.headers["Location"].split("?")[0]) == (303, STEP)
    return made


def is_in(visitor: Browser) -> bool:
    return visitor.get(PAGE).status_code == 200


def entries(action: Action) -> list[AuditLog]:
    db.session.rollback()
    return list(db.session.scalars(select(AuditLog).where(AuditLog.action == action).order_by(AuditLog.id)))


def test_an_app_is_set_up_by_the_password_and_a_code_and_nothing_is_stored_before(
    auditor: Browser, clock: FakeClock
) -> None:
    email = email_of(auditor)
    shown = auditor.post(SET_UP, BY_PASSWORD)
    secret = secret_on(shown)

    assert 'role="img" aria-label="QR code' in shown.text
    assert not user_of(email).has_second_factor
    wrong = auditor.post(CONFIRM, {"pending": pending_on(shown), "code": "12345"})
    assert (wrong.status_code, secret_on(wrong)) == (422, secret)
    assert not user_of(email).has_second_factor

    right = Enrolled(email, secret, [], clock).code
    done = auditor.post(CONFIRM, {"pending": pending_on(wrong), "code": f"{right[:3]} {right[3:]}"})

    assert done.status_code == 201
    assert len(set(codes_on(done))) == 10
    assert not codes_on(auditor.get(PAGE))
    told = auditor.get(f"{PAGE}.json").json
    assert told is not None
    assert (told["two_factor"], told["authenticator_app"], told["recovery_codes_left"]) == (True, True, 10)
    assert [(entry.actor, entry.data["kind"]) for entry in entries(Action.SECOND_FACTOR_ON)] == [
        (f"user:{email}", "authenticator app")
    ]
    assert verify().ok


def test_the_qr_code_holds_the_secret_for_this_user_and_every_square_is_drawn() -> None:
    setup = TotpSetup(b"12345678901234567890", "ann@example.org", "")

    assert setup.uri.startswith("otpauth://totp/Whetstone:ann%40example.org?")
    assert "secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ" in setup.uri
    assert setup.path.count("M") == sum(map(sum, setup.squares)) > 200
    assert "GEZD" not in repr(setup)


def test_neither_the_secret_nor_a_recovery_code_can_be_read_in_the_database(ann: Enrolled) -> None:
    row = db.session.execute(text("SELECT * FROM users WHERE email = :email"), {"email": ann.email}).mappings().one()
    logged = str([(entry.data, entry.said) for entry in entries(Action.SECOND_FACTOR_ON)])
    forms = [ann.secret.hex(), base64.b64encode(ann.secret).decode(), base64.b32encode(ann.secret).decode()]
    for hidden in (*forms, *ann.codes, *(code.replace("-", "") for code in ann.codes)):
        assert hidden not in str(dict(row))
        assert hidden not in logged


def test_a_sign_in_asks_for_the_code_and_then_leads_where_it_should(web: Flask, ann: Enrolled) -> None:
    visitor = begin(web, ann.email, next="/agents?state=paused")
    page = visitor.get(f"{STEP}?next=/agents?state%3Dpaused")
    assert page.status_code == 200
    assert not is_in(visitor)

    answer = visitor.post(STEP, {"code": ann.code, "next": "/agents?state=paused"})

    assert (answer.status_code, answer.headers["Location"]) == (303, "/agents?state=paused")
    assert is_in(visitor)
    assert entries(Action.SIGN_IN)[-1].data["with"] == ["password", "authenticator app"]
    assert visitor.get(STEP).headers["Location"] == "/sign-in"
    assert verify().ok


def test_it_never_leads_elsewhere(web: Flask, ann: Enrolled) -> None:
    visitor = begin(web, ann.email)
    answer = visitor.post(STEP, {"code": ann.code, "next": "//evil.example/"})

    assert "evil" not in answer.headers["Location"]


def test_who_shows_the_password_alone_opens_no_page_and_no_act(web: Flask, ann: Enrolled) -> None:
    """Whatever address is asked for with the cookie of the first step."""
    half = begin(web, ann.email)
    rules = [rule for rule in web.url_map.iter_rules() if not rule.arguments and not rule.rule.startswith("/api")]
    stranger = Browser(web, None)
    asked = 0
    for rule in rules:
        if rule.endpoint in SECOND_STEP or rule.endpoint == "security.login":
            continue
        if "GET" in (rule.methods or ()):
            first, second = half.get(rule.rule), stranger.get(rule.rule)
        else:
            first, second = half.post(rule.rule), stranger.post(rule.rule)
        asked += 1
        assert first.status_code == second.status_code, rule.rule
        assert first.headers.get("Location") == second.headers.get("Location"), rule.rule
    assert asked > 40
    assert not is_in(half)
    assert half.client.get_cookie("remember_token") is None
    assert not entries(Action.SIGN_IN)


def test_a_program_is_told_that_a_code_is_needed_and_is_not_signed_in(web: Flask, ann: Enrolled) -> None:
    visitor = Browser(web, None)
    headers = {"X-CSRFToken": visitor.token, "Accept": "application/json"}
    sent = {"email": ann.email, "password": PASSWORD}
    answer = visitor.client.post("/sign-in?include_auth_token", json=sent, headers=headers)

    assert answer.json == {"meta": {"code": 200}, "response": {"tf_required": True}}
    assert not is_in(visitor)


def test_a_code_is_good_once_and_so_is_none_before_it(web: Flask, ann: Enrolled) -> None:
    earlier, code = ann.code, ""
    ann.clock.advance(seconds=30)
    code = ann.code
    assert begin(web, ann.email).post(STEP, {"code": code}).status_code == 303

    for again in (code, earlier):
        refused = begin(web, ann.email)
        answer = refused.post(STEP, {"code": again})
        assert (answer.status_code, WRONG in answer.text) == (422, True)
        assert not is_in(refused)


def test_the_code_that_set_the_app_up_signs_nobody_in(web: Flask, admin: Browser, clock: FakeClock) -> None:
    shown = admin.post(SET_UP, BY_PASSWORD)
    made = Enrolled(email_of(admin), secret_on(shown), [], clock)
    admin.post(CONFIRM, {"pending": pending_on(shown), "code": made.code})

    assert begin(web, made.email).post(STEP, {"code": made.code}).status_code == 422


@pytest.mark.parametrize("seconds", [-60, 90])
def test_a_code_of_another_time_is_refused(web: Flask, ann: Enrolled, seconds: int) -> None:
    ann.clock.advance(seconds=90)
    there = FakeClock(ann.clock.now())
    there.advance(seconds=seconds)
    code = Enrolled(ann.email, ann.secret, [], there).code

    assert begin(web, ann.email).post(STEP, {"code": code}).status_code == 422


def test_a_recovery_code_is_good_once(web: Flask, ann: Enrolled) -> None:
    typed = ann.codes[3].upper().replace("-", " ")
    first, second = begin(web, ann.email), begin(web, ann.email)

    assert first.post(STEP, {"code": typed}).status_code == 303
    assert is_in(first)
    assert second.post(STEP, {"code": ann.codes[3]}).status_code == 422
    assert not is_in(second)
    assert second.post(STEP, {"code": ann.codes[4]}).status_code == 303
    assert user_of(ann.email).recovery_codes_left == 8
    assert [entry.data["left"] for entry in entries(Action.RECOVERY_CODE_USE)] == [9, 8]
    assert verify().ok


@pytest.mark.parametrize("kind", ["recovery", "app"])
def test_of_requests_at_once_with_one_code_one_signs_in(web: Flask, ann: Enrolled, kind: str) -> None:
    code = ann.codes[0] if kind == "recovery" else ann.code
    visitors = [begin(web, ann.email) for _ in range(4)]
    db.session.rollback()
    with ThreadPoolExecutor(4) as pool:
        statuses = list(pool.map(lambda each: each.post(STEP, {"code": code}).status_code, visitors))

    assert sorted(statuses) == [303, 422, 422, 422]
    assert [is_in(each) for each in visitors].count(True) == 1


def test_a_wrong_code_counts_and_stands_in_the_log(
    web: Flask, ann: Enrolled, admin: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttle, "SECOND_STEP", parse_many("4/hour"))
    known = begin(web, ann.email)
    assert known.post(STEP, {"code": ann.code}).status_code == 303
    known.post("/sign-out")
    ann.clock.advance(seconds=60)
    visitors = [begin(web, ann.email) for _ in range(6)]

    statuses = [
        each.post(STEP, {"code": "abcdef"}, environ_overrides={"REMOTE_ADDR": f"203.0.113.{at}"}).status_code
        for at, each in enumerate(visitors)
    ]

    assert statuses == [422] * 4 + [429] * 2
    assert visitors[0].post(STEP, {"code": ann.code}).status_code == 429
    failed = entries(Action.SIGN_IN_FAILED)
    assert [(entry.actor, entry.data["second_step"]) for entry in failed] == [(f"user:{ann.email}", True)] * 4
    assert known.post("/sign-in", {"email": ann.email, "password": PASSWORD}).headers["Location"] == STEP
    assert known.post(STEP, {"code": ann.code}).status_code == 303, "a device that is known has tries of its own"


def test_the_right_password_before_the_code_is_no_failure(
    web: Flask, ann: Enrolled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttle, "BY_ADDRESS", parse_many("2/hour"))

    assert [begin(web, ann.email) is not None for _ in range(5)] == [True] * 5


def test_the_first_step_counts_for_ten_minutes_and_no_longer(web: Flask, ann: Enrolled) -> None:
    visitor = begin(web, ann.email)
    ann.clock.advance(minutes=11)

    answer = visitor.post(STEP, {"code": ann.code})

    assert answer.headers["Location"] == "/sign-in"
    assert not is_in(visitor)


def test_a_new_password_ends_first_steps_and_leaves_the_factor_on(web: Flask, ann: Enrolled, admin: Browser) -> None:
    visitor = begin(web, ann.email)
    new = "a staple and a battery"
    admin.post(f"{PAGE}/password", {"old": PASSWORD, "password": new, "password_again": new})

    assert visitor.post(STEP, {"code": ann.code}).headers["Location"] == "/sign-in"
    assert not is_in(visitor)
    assert user_of(ann.email).has_second_factor


def test_a_deactivated_user_does_not_get_past_the_second_step(web: Flask, ann: Enrolled) -> None:
    visitor = begin(web, ann.email)
    with writing() as session:
        session.scalars(select(User).where(User.email == ann.email)).one().active = False

    assert visitor.post(STEP, {"code": ann.code}).headers["Location"] == "/sign-in"
    assert not is_in(visitor)


def test_without_a_first_step_there_is_no_second(web: Flask, ann: Enrolled) -> None:
    stranger = Browser(web, None)

    assert stranger.get(STEP).headers["Location"] == "/sign-in"
    assert stranger.post(STEP, {"code": ann.code}).headers["Location"] == "/sign-in"
    assert not is_in(stranger)


def test_it_needs_its_csrf_token(web: Flask, ann: Enrolled) -> None:
    visitor = begin(web, ann.email)

    assert visitor.client.post(STEP, data={"code": ann.code}).status_code == 400
    assert not is_in(visitor)


def test_the_code_of_another_user_is_refused(web: Flask, ann: Enrolled, owner: Browser, clock: FakeClock) -> None:
    other = enroll(owner, clock)
    visitor = begin(web, ann.email)

    for code in (other.code, other.codes[0]):
        assert visitor.post(STEP, {"code": code}).status_code == 422
    assert user_of(other.email).recovery_codes_left == 10


def test_who_is_kept_signed_in_stays_so(web: Flask, ann: Enrolled) -> None:
    visitor = begin(web, ann.email, remember="y")
    assert visitor.client.get_cookie("remember_token") is None
    visitor.post(STEP, {"code": ann.code})

    assert visitor.client.get_cookie("remember_token") is not None
    visitor.client.delete_cookie("whetstone")
    assert is_in(visitor)


@pytest.mark.parametrize("act", [TURN_OFF, RENEW])
@pytest.mark.parametrize("sent", [{}, {"factor_password": ""}, {"factor_password": "not the password"}])
def test_a_session_without_the_password_weakens_nothing(
    admin: Browser, ann: Enrolled, act: str, sent: dict[str, Any]
) -> None:
    before = user_of(ann.email).mf_recovery_codes
    answer = admin.post(act, sent)

    assert (answer.status_code, "That is not your password" in answer.text) == (422, True)
    assert (user_of(ann.email).has_second_factor, user_of(ann.email).mf_recovery_codes) == (True, before)


def test_nor_does_it_set_an_app_up_or_set_another_one_up(
    web: Flask, admin: Browser, auditor: Browser, ann: Enrolled
) -> None:
    assert auditor.post(SET_UP, {"factor_password": "not the password"}).status_code == 422
    assert admin.post(SET_UP, BY_PASSWORD).status_code == 409


def test_wrong_passwords_there_are_slowed_down(admin: Browser, ann: Enrolled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "BY_USER", parse_many("2/minute"))

    statuses = [admin.post(TURN_OFF, {"factor_password": "guess"}).status_code for _ in range(3)]

    assert statuses == [422, 422, 429]
    assert admin.post(TURN_OFF, BY_PASSWORD).status_code == 429


def test_what_another_user_was_shown_sets_nothing_up(
    web: Flask, admin: Browser, auditor: Browser, clock: FakeClock
) -> None:
    shown = admin.post(SET_UP, BY_PASSWORD)
    code = Enrolled("", secret_on(shown), [], clock).code

    assert auditor.post(CONFIRM, {"pending": pending_on(shown), "code": code}).status_code == 409
    assert not user_of(email_of(auditor)).has_second_factor


def test_it_is_turned_off_by_the_password_with_all_recovery_codes(web: Flask, admin: Browser, ann: Enrolled) -> None:
    assert admin.post(TURN_OFF, BY_PASSWORD).status_code == 303
    assert admin.post(TURN_OFF, BY_PASSWORD).status_code == 303

    user = user_of(ann.email)
    assert (user.has_second_factor, user.mf_recovery_codes or None, user.tf_totp_secret) == (False, None, None)
    assert len(entries(Action.SECOND_FACTOR_OFF)) == 1
    visitor = Browser(web, None)
    assert visitor.post("/sign-in", {"email": ann.email, "password": PASSWORD}).status_code == 302
    assert is_in(visitor)
    assert admin.post(RENEW, BY_PASSWORD).status_code == 409
    assert verify().ok


def test_new_recovery_codes_end_all_earlier_ones(web: Flask, admin: Browser, ann: Enrolled) -> None:
    made = admin.post(RENEW, BY_PASSWORD)

    assert (made.status_code, len(codes_on(made))) == (201, 10)
    assert begin(web, ann.email).post(STEP, {"code": ann.codes[0]}).status_code == 422
    assert begin(web, ann.email).post(STEP, {"code": codes_on(made)[0]}).status_code == 303
    assert len(entries(Action.RECOVERY_CODES_RENEW)) == 1
    assert verify().ok


def test_an_owner_takes_off_what_somebody_lost_by_their_own_password(
    web: Flask, owner: Browser, admin: Browser, ann: Enrolled
) -> None:
    user_id = user_of(ann.email).id
    page, act = f"/settings/users/{user_id}", f"/settings/users/{user_id}/second-factor/take-off"
    assert 'name="my_password"' in owner.get(page).text
    wrong = owner.post(act, {"my_password": "not the password"})
    assert (wrong.status_code, user_of(ann.email).has_second_factor) == (422, True)
    assert admin.post(act, {"my_password": PASSWORD}).status_code == 403

    done = owner.post(act, {"my_password": PASSWORD})

    assert (done.status_code, done.headers["Location"]) == (303, page)
    assert not user_of(ann.email).has_second_factor
    assert not is_in(admin)
    visitor = Browser(web, None)
    assert visitor.post("/sign-in", {"email": ann.email, "password": PASSWORD}).status_code == 302
    told = [(entry.actor, entry.data["email"]) for entry in entries(Action.SECOND_FACTOR_RESET)]
    assert told == [(f"user:{email_of(owner)}", ann.email)]
    assert 'name="my_password"' not in owner.get(page).text
    assert verify().ok


def test_an_owner_takes_off_nobody_s_of_another_account_and_not_their_own(
    web: Flask, owner: Browser, neighbour: Browser, ann: Enrolled
) -> None:
    act = f"/settings/users/{user_of(ann.email).id}/second-factor/take-off"
    assert neighbour.post(act, {"my_password": PASSWORD}).status_code in (403, 404)
    own = f"/settings/users/{user_of(email_of(owner)).id}/second-factor/take-off"
    assert owner.post(own, {"my_password": PASSWORD}).status_code == 409
    assert user_of(ann.email).has_second_factor


def test_the_list_of_users_says_who_has_one(owner: Browser, ann: Enrolled) -> None:
    told = owner.get("/settings/users.json").json
    assert told is not None
    assert [each["email"] for each in told["users"] if each["two_factor"]] == [ann.email]
    assert '<td data-label="Two-factor">Yes</td>' in owner.get("/settings/users").text


def test_codes_that_can_t_be_checked_any_more_are_refused_in_words(web: Flask, ann: Enrolled) -> None:
    other = SecondFactorKey("another secret that signs cookies").seal(ann.secret, user_id=user_of(ann.email).id)
    with writing() as session:
        Account.lock(HOME)
        session.scalars(select(User).where(User.email == ann.email)).one().tf_totp_secret = other
    visitor = begin(web, ann.email)

    answer = visitor.post(STEP, {"code": ann.code})

    assert answer.status_code == 409
    assert "ask an owner" in answer.text
    assert not is_in(visitor)
    assert not verify().ok
