"""Passkeys: added and removed under one's own account, asked for alone or after the password."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from flask import Flask
from limits import parse_many
from sqlalchemy import select
from werkzeug.test import TestResponse

from app.extensions import db, writing
from app.history.verify import verify
from app.models import Account, Action, Passkey, User
from app.models.passkey import MAX_PASSKEYS
from app.models.user import ADMIN
from app.passkeys import PasskeysUnavailable, RelyingParty
from app.views import throttle
from app.views.passkeys import KEPT
from tests.support.authenticator import PRESENT, SoftAuthenticator
from tests.support.clock import FakeClock
from tests.support.factories import HOME
from tests.views.conftest import PASSWORD, Browser, browser
from tests.views.test_second_factor import (
    BY_PASSWORD,
    CONFIRM,
    PAGE,
    RENEW,
    SET_UP,
    STEP,
    TURN_OFF,
    Enrolled,
    begin,
    codes_on,
    email_of,
    enroll,
    entries,
    is_in,
    pending_on,
    secret_on,
    user_of,
)

ADD, ASK_TO_ADD = f"{PAGE}/passkeys", f"{PAGE}/passkeys/challenge"
ALONE, ASK_ALONE = "/sign-in/passkey", "/sign-in/passkey/challenge"
SECOND, ASK_SECOND = f"{STEP}/passkey", f"{STEP}/challenge"
JSON = {"Accept": "application/json"}
NO = "This passkey was not accepted."
UNKNOWN = "This passkey is not known here"
OVER = "This took longer than 5 minutes"


@dataclass
class Device:
    """What somebody holds: passkeys, and the recovery codes that they wrote down."""

    email: str
    clock: FakeClock
    soft: SoftAuthenticator = field(default_factory=SoftAuthenticator)
    codes: list[str] = field(default_factory=list)

    def add(self, visitor: Browser, name: str = "phone") -> TestResponse:
        done = visitor.post(ADD, {"credential": self.soft.make(asked_to_add(visitor, name))})
        self.clock.advance(seconds=1)
        return done


def asked_to_add(visitor: Browser, name: str = "phone") -> dict[str, Any]:
    answer = visitor.post(ASK_TO_ADD, {"passkey_name": name, "passkey_password": PASSWORD}, headers=JSON)
    assert answer.status_code == 200, answer.text
    return dict(answer.json or {})


def asked(visitor: Browser, address: str = ASK_ALONE) -> dict[str, Any]:
    answer = visitor.post(address, headers=JSON)
    assert answer.status_code == 200, answer.text
    return dict(answer.json or {})


def send(visitor: Browser, credential: str, address: str = ALONE, **fields: str) -> TestResponse:
    return visitor.post(address, {"credential": credential, **fields}, headers=JSON)


def sign_in(web: Flask, device: Device, **instead: Any) -> tuple[Browser, TestResponse]:
    """By the passkey alone, in a browser of its own."""
    visitor = Browser(web, None)
    answer = send(visitor, device.soft.use(asked(visitor), **instead))
    device.clock.advance(seconds=1)
    return visitor, answer


def refused(answer: TestResponse, words: str = NO, status: int = 422) -> bool:
    told = answer.json or {}
    assert (answer.status_code, words in told.get("detail", "")) == (status, True), answer.text
    return True


def own_passkey(web: Flask, clock: FakeClock, visitor: Browser) -> Device:
    made = Device(email_of(visitor), clock)
    done = made.add(visitor)
    assert done.status_code == 201
    made.codes = codes_on(done)
    return made


@pytest.fixture
def ann(web: Flask, admin: Browser, clock: FakeClock) -> Device:
    return own_passkey(web, clock, admin)


@pytest.fixture
def bob(web: Flask, owner: Browser, clock: FakeClock) -> Device:
    return own_passkey(web, clock, owner)


@pytest.fixture
def proven(app: Flask) -> Iterator[None]:
    """Whatever a test did, the audit log fits it."""
    yield
    db.session.rollback()
    assert verify().ok


pytestmark = pytest.mark.usefixtures("proven")


def passkeys_of(email: str) -> list[Passkey]:
    return list(user_of(email).passkeys)


def test_one_is_added_by_the_password_and_a_name_with_recovery_codes(admin: Browser, clock: FakeClock) -> None:
    device = Device(email_of(admin), clock)
    options = asked_to_add(admin, "  My   phone ")
    assert options["authenticatorSelection"]["residentKey"] == "required"
    assert options["authenticatorSelection"]["userVerification"] == "required"
    assert (options["rp"]["id"], options["timeout"]) == ("localhost", 300_000)
    assert not passkeys_of(device.email)

    done = admin.post(ADD, {"credential": device.soft.make(options)})

    assert (done.status_code, len(set(codes_on(done)))) == (201, 10)
    page, told = admin.get(PAGE), admin.get(f"{PAGE}.json").json or {}
    assert not codes_on(page)
    assert [(each["name"], each["host"], each["used_at"]) for each in told["passkeys"]] == [
        ("My phone", "localhost", None)
    ]
    assert (told["two_factor"], told["authenticator_app"], told["recovery_codes_left"]) == (True, False, 10)
    (entry,) = entries(Action.PASSKEY_ADD)
    assert (entry.actor, entry.data["name"]) == (f"user:{device.email}", "My phone")


def test_a_further_one_leaves_the_recovery_codes_as_they_are(admin: Browser, ann: Device) -> None:
    done = ann.add(admin, "laptop")

    assert done.status_code == 303
    assert [each.name for each in passkeys_of(ann.email)] == ["phone", "laptop"]
    assert user_of(ann.email).recovery_codes_left == 10


def test_what_it_holds_is_not_asked_for_again(admin: Browser, ann: Device) -> None:
    (known,) = asked_to_add(admin, "laptop")["excludeCredentials"]

    assert known["id"] == passkeys_of(ann.email)[0].credential_id


@pytest.mark.parametrize("password", ["", "not the password"])
def test_without_the_password_none_is_added_and_guesses_count(
    admin: Browser, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttle, "BY_USER", parse_many("2/minute"))
    form = {"passkey_name": "phone", "passkey_password": password}

    answers = [admin.post(ASK_TO_ADD, form, headers=JSON) for _ in range(3)]

    assert [each.status_code for each in answers] == [422, 422, 429]
    with admin.client.session_transaction() as session:
        assert KEPT not in session


@pytest.mark.parametrize("name", ["", "  ", "x" * 81, "a\u202eb"])
def test_a_name_that_can_t_be_read_is_refused(admin: Browser, name: str) -> None:
    answer = admin.post(ASK_TO_ADD, {"passkey_name": name, "passkey_password": PASSWORD}, headers=JSON)

    assert answer.status_code == 422


def test_a_name_twice_and_more_than_there_is_room_for_are_refused(
    admin: Browser, ann: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = ann.add(admin)
    assert (again.status_code, "of this name" in again.text) == (409, True)

    monkeypatch.setattr("app.models.second_factor.MAX_PASSKEYS", 1)
    more = ann.add(admin, "laptop")
    assert (more.status_code, "Remove one first" in more.text) == (409, True)
    assert (len(passkeys_of(ann.email)), MAX_PASSKEYS) == (1, 20)


def test_the_same_one_is_not_added_twice_nor_after_it_was_removed(
    admin: Browser, owner: Browser, ann: Device, clock: FakeClock
) -> None:
    (key,), (row,) = ann.soft.held, passkeys_of(ann.email)
    mine = admin.post(ADD, {"credential": ann.soft.make(asked_to_add(admin, "copy"), again=key)})
    theirs = owner.post(ADD, {"credential": ann.soft.make(asked_to_add(owner, "copy"), again=key)})
    clock.advance(seconds=1)
    assert admin.post(f"{ADD}/{row.id}/remove", {"passkey_password": PASSWORD}).status_code == 303
    later = admin.post(ADD, {"credential": ann.soft.make(asked_to_add(admin, "copy"), again=key)})

    for answer in (mine, theirs, later):
        assert (answer.status_code, "registered already" in answer.text) == (409, True)
    assert not passkeys_of(ann.email)


@pytest.mark.parametrize(
    "instead",
    [
        {"origin": "https://evil.example"},
        {"host": "evil.example"},
        {"challenge": "AAAA"},
        {"type": "webauthn.get"},
        {"flags": PRESENT},
        {"flags": 0},
    ],
    ids=str,
)
def test_what_was_made_elsewhere_or_unseen_is_not_added(admin: Browser, instead: dict[str, Any]) -> None:
    answer = admin.post(ADD, {"credential": SoftAuthenticator().make(asked_to_add(admin), **instead)})

    assert (answer.status_code, "No passkey was added" in answer.text) == (422, True)
    assert not passkeys_of(email_of(admin))


def test_a_challenge_adds_one_passkey_and_no_second_one(admin: Browser, ann: Device) -> None:
    """Also for who kept the cookie in which the challenge stood."""
    options = asked_to_add(admin, "laptop")
    with admin.client.session_transaction() as session:
        kept = session[KEPT]
    assert admin.post(ADD, {"credential": ann.soft.make(options)}).status_code == 303

    gone = admin.post(ADD, {"credential": ann.soft.make(options)})
    with admin.client.session_transaction() as session:
        session[KEPT] = kept
    replayed = admin.post(ADD, {"credential": ann.soft.make(options)})

    for answer in (gone, replayed):
        assert (answer.status_code, OVER in answer.text) == (409, True)
    assert len(passkeys_of(ann.email)) == 2


def test_a_challenge_is_of_one_user_and_for_one_purpose(
    web: Flask, admin: Browser, owner: Browser, ann: Device
) -> None:
    options = asked_to_add(owner)
    with owner.client.session_transaction() as session:
        theirs = session[KEPT]
    with admin.client.session_transaction() as session:
        session[KEPT] = theirs
    answer = admin.post(ADD, {"credential": ann.soft.make(options)})
    assert (answer.status_code, OVER in answer.text) == (409, True)
    ann.soft.held.pop()

    visitor = Browser(web, None)
    sent = ann.soft.use(options)
    with visitor.client.session_transaction() as session:
        session[KEPT] = theirs
    assert refused(send(visitor, sent), OVER, 409)
    assert not is_in(visitor)


def test_it_signs_in_alone_for_good_and_is_logged(web: Flask, ann: Device) -> None:
    visitor = Browser(web, None)
    options = asked(visitor)
    assert (options["userVerification"], options["allowCredentials"]) == ("required", [])

    answer = send(visitor, ann.soft.use(options), next="/agents?state=paused", remember="1")

    assert answer.json == {"to": "/agents?state=paused"}
    assert is_in(visitor)
    assert entries(Action.SIGN_IN)[-1].data["with"] == ["passkey"]
    assert passkeys_of(ann.email)[0].used_at == ann.clock.now()
    assert visitor.client.get_cookie("remember_token") is not None
    assert send(visitor, ann.soft.use(options)).json == {"to": "/"}, "who is signed in stays so"


def test_it_never_leads_elsewhere_and_is_not_kept_unasked(web: Flask, ann: Device) -> None:
    visitor = Browser(web, None)
    answer = send(visitor, ann.soft.use(asked(visitor)), next="//evil.example/")

    assert answer.status_code == 200
    assert "evil" not in answer.text
    assert visitor.client.get_cookie("remember_token") is None


def test_one_that_does_not_count_signs_in_each_time(web: Flask, admin: Browser, clock: FakeClock) -> None:
    """As passkeys that are synchronized between devices."""
    device = Device(email_of(admin), clock, SoftAuthenticator(counts=False))
    device.add(admin)

    assert [sign_in(web, device)[1].status_code for _ in range(3)] == [200] * 3


@pytest.mark.parametrize(
    "instead",
    [
        {"origin": "https://evil.example"},
        {"origin": "http://localhost:8001"},
        {"host": "evil.example"},
        {"challenge": "AAAA"},
        {"type": "webauthn.create"},
        {"flags": PRESENT},
        {"flags": 0},
        {"tampered": True},
        {"handle": None},
        {"handle": b"somebody else"},
    ],
    ids=str,
)
def test_an_answer_that_is_not_right_in_all_signs_nobody_in(web: Flask, ann: Device, instead: dict[str, Any]) -> None:
    visitor, answer = sign_in(web, ann, **instead)

    assert refused(answer)
    assert not is_in(visitor)
    (failed,) = entries(Action.SIGN_IN_FAILED)
    assert (failed.actor, failed.data["with"]) == (f"user:{ann.email}", "passkey")
    assert sign_in(web, ann)[1].status_code == 200


def test_the_handle_of_another_user_signs_in_neither(web: Flask, ann: Device, bob: Device) -> None:
    visitor, answer = sign_in(web, ann, handle=user_of(bob.email).passkey_handle)

    assert refused(answer)
    assert not is_in(visitor)


def test_an_answer_is_good_once_and_so_is_none_to_an_earlier_challenge(web: Flask, ann: Device) -> None:
    early, visitor = Browser(web, None), Browser(web, None)
    before = asked(early)
    ann.clock.advance(seconds=1)
    sent = ann.soft.use(asked(visitor))
    with visitor.client.session_transaction() as session:
        kept = session[KEPT]
    assert send(visitor, sent).status_code == 200

    again = Browser(web, None)
    with again.client.session_transaction() as session:
        session[KEPT] = kept
    assert refused(send(again, sent), OVER, 409)
    assert refused(send(Browser(web, None), sent), OVER, 409)
    assert refused(send(early, ann.soft.use(before)), OVER, 409)
    assert not is_in(again)


def test_of_requests_at_once_with_one_answer_one_signs_in(web: Flask, admin: Browser, clock: FakeClock) -> None:
    device = Device(email_of(admin), clock, SoftAuthenticator(counts=False))
    device.add(admin)
    first = Browser(web, None)
    sent = device.soft.use(asked(first))
    with first.client.session_transaction() as session:
        kept = session[KEPT]
    visitors = [Browser(web, None) for _ in range(4)]
    for each in visitors:
        with each.client.session_transaction() as session:
            session[KEPT] = kept
    db.session.rollback()
    with ThreadPoolExecutor(4) as pool:
        statuses = list(pool.map(lambda each: send(each, sent).status_code, visitors))

    assert sorted(statuses) == [200, 409, 409, 409]
    assert [is_in(each) for each in visitors].count(True) == 1


def test_a_challenge_counts_for_five_minutes(web: Flask, ann: Device) -> None:
    late, early = Browser(web, None), Browser(web, None)
    options = asked(late)
    ann.clock.advance(seconds=2)
    other = asked(early)
    ann.clock.advance(seconds=299)

    assert refused(send(late, ann.soft.use(options)), OVER, 409)
    assert send(early, ann.soft.use(other)).status_code == 200


def test_a_count_that_goes_back_is_refused_and_logged(web: Flask, ann: Device) -> None:
    for _ in range(3):
        assert sign_in(web, ann)[1].status_code == 200

    for count in (3, 1, 0):
        visitor, answer = sign_in(web, ann, count=count)
        assert refused(answer, "it may have been copied")
        assert not is_in(visitor)

    assert [each.data["why"] for each in entries(Action.SIGN_IN_FAILED)] == ["sign count went back"] * 3
    assert passkeys_of(ann.email)[0].sign_count == 3


def test_a_passkey_that_was_removed_or_never_known_is_refused(web: Flask, admin: Browser, ann: Device) -> None:
    (row,) = passkeys_of(ann.email)
    assert admin.post(f"{ADD}/{row.id}/remove", {"passkey_password": PASSWORD}).status_code == 303

    assert refused(sign_in(web, ann)[1], UNKNOWN)
    stranger = replace(ann, soft=SoftAuthenticator())
    stranger.soft.make({"rp": {"id": "localhost"}, "user": {"id": "AAAA"}, "challenge": "AAAA"})
    assert refused(sign_in(web, stranger)[1], UNKNOWN)


def test_a_deactivated_user_is_refused_by_either_way(web: Flask, ann: Device) -> None:
    half = begin(web, ann.email)
    options = asked(half, ASK_SECOND)
    with writing() as session:
        session.scalars(select(User).where(User.email == ann.email)).one().active = False
        db.session.flush()

    visitor, answer = sign_in(web, ann)
    second = send(half, ann.soft.use(options), SECOND)

    assert refused(answer, UNKNOWN)
    assert second.json == {"to": "/sign-in"}
    assert not is_in(visitor)
    assert not is_in(half)
    with writing() as session:
        session.scalars(select(User).where(User.email == ann.email)).one().active = True


def test_failures_count_as_wrong_passwords_do(web: Flask, ann: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "BY_ACCOUNT_AND_ADDRESS", parse_many("2/hour"))

    statuses = [sign_in(web, ann, tampered=True)[1].status_code for _ in range(3)]

    assert statuses == [422, 422, 429]
    assert sign_in(web, ann)[1].status_code == 429
    stranger = Browser(web, None)
    assert stranger.post("/sign-in", {"email": ann.email, "password": PASSWORD}).status_code == 429


def test_unknown_ones_count_by_their_address(web: Flask, ann: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "BY_ADDRESS", parse_many("2/hour"))
    stranger = replace(ann, soft=SoftAuthenticator())
    stranger.soft.make({"rp": {"id": "localhost"}, "user": {"id": "AAAA"}, "challenge": "AAAA"})

    assert [sign_in(web, stranger)[1].status_code for _ in range(3)] == [422, 422, 429]
    assert not entries(Action.SIGN_IN_FAILED)


def test_after_the_password_it_stands_in_for_a_code(web: Flask, ann: Device) -> None:
    half = begin(web, ann.email, remember="y")
    assert "Sign in with a passkey" in half.get(STEP).text
    options = asked(half, ASK_SECOND)
    assert [each["id"] for each in options["allowCredentials"]] == [passkeys_of(ann.email)[0].credential_id]

    answer = send(half, ann.soft.use(options, flags=PRESENT, handle=None), SECOND, next="/agents")

    assert answer.json == {"to": "/agents"}
    assert is_in(half)
    assert entries(Action.SIGN_IN)[-1].data["with"] == ["password", "passkey"]
    assert half.client.get_cookie("remember_token") is not None


def test_after_the_password_of_one_user_the_passkey_of_another_is_refused(
    web: Flask, ann: Device, bob: Device, neighbour: Browser, clock: FakeClock
) -> None:
    """Of the same account, and of another one."""
    next_door = own_passkey(web, clock, neighbour)
    for other in (bob, next_door):
        half = begin(web, ann.email)
        options = asked(half, ASK_SECOND)
        assert refused(send(half, other.soft.use(options), SECOND), UNKNOWN)
        assert not is_in(half)
    assert [each.data["second_step"] for each in entries(Action.SIGN_IN_FAILED)] == [True, True]


def test_a_challenge_for_a_second_step_signs_nobody_in_alone(web: Flask, ann: Device, bob: Device) -> None:
    half = begin(web, ann.email)
    assert refused(send(half, bob.soft.use(asked(half, ASK_SECOND))), OVER, 409)
    assert refused(send(half, ann.soft.use(asked(half)), SECOND), OVER, 409)
    assert not is_in(half)


def test_wrong_ones_after_the_password_count_as_wrong_codes(
    web: Flask, ann: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttle, "SECOND_STEP", parse_many("2/hour"))
    half = begin(web, ann.email)

    answers = [send(half, ann.soft.use(asked(half, ASK_SECOND), tampered=True), SECOND) for _ in range(3)]

    assert [each.status_code for each in answers] == [422, 422, 429]
    assert half.post(STEP, {"code": ann.codes[0]}).status_code == 429


def test_without_a_password_there_is_no_second_step(web: Flask, stranger: Browser) -> None:
    assert stranger.post(ASK_SECOND, headers=JSON).json == {"to": "/sign-in"}
    assert send(stranger, "{}", SECOND).json == {"to": "/sign-in"}


def test_a_recovery_code_stands_in_for_it(web: Flask, ann: Device) -> None:
    half = begin(web, ann.email)
    assert "authenticator app shows" not in half.get(STEP).text

    assert half.post(STEP, {"code": ann.codes[0]}).status_code == 303
    assert is_in(half)
    assert user_of(ann.email).recovery_codes_left == 9


def test_beside_an_app_either_is_enough_and_either_may_go(web: Flask, admin: Browser, clock: FakeClock) -> None:
    app_of_hers = enroll(admin, clock)
    device = Device(app_of_hers.email, clock)
    assert device.add(admin).status_code == 303, "the recovery codes stay"
    half = begin(web, device.email)
    assert send(half, device.soft.use(asked(half, ASK_SECOND)), SECOND).status_code == 200
    clock.advance(seconds=30)
    assert begin(web, device.email).post(STEP, {"code": app_of_hers.code}).status_code == 303

    assert admin.post(TURN_OFF, BY_PASSWORD).status_code == 303

    assert (user_of(device.email).has_second_factor, user_of(device.email).recovery_codes_left) == (True, 10)
    assert begin(web, device.email).post(STEP, {"code": app_of_hers.codes[0]}).status_code == 303
    assert len(codes_on(admin.post(RENEW, BY_PASSWORD))) == 10


def test_an_app_beside_it_leaves_the_recovery_codes_as_they_are(admin: Browser, ann: Device, clock: FakeClock) -> None:
    shown = admin.post(SET_UP, BY_PASSWORD)
    code = Enrolled(ann.email, secret_on(shown), [], clock).code
    done = admin.post(CONFIRM, {"pending": pending_on(shown), "code": code})

    assert (done.status_code, codes_on(done)) == (303, [])
    assert user_of(ann.email).recovery_codes_left == 10


def test_the_last_one_takes_the_recovery_codes_with_it(web: Flask, admin: Browser, ann: Device) -> None:
    ann.add(admin, "laptop")
    first, last = passkeys_of(ann.email)
    remove = {"passkey_password": PASSWORD}
    assert admin.post(f"{ADD}/{first.id}/remove", remove).status_code == 303
    assert user_of(ann.email).recovery_codes_left == 10

    assert admin.post(f"{ADD}/{last.id}/remove", remove).status_code == 303

    user = user_of(ann.email)
    assert (user.has_second_factor, user.recovery_codes_left) == (False, 0)
    assert [each.data["name"] for each in entries(Action.PASSKEY_REMOVE)] == ["phone", "laptop"]
    visitor = Browser(web, None)
    assert visitor.post("/sign-in", {"email": ann.email, "password": PASSWORD}).status_code == 302
    assert is_in(visitor)
    assert admin.post(f"{ADD}/{last.id}/remove", remove).status_code == 404


def test_it_is_removed_by_nobody_else_and_not_without_the_password(
    web: Flask, admin: Browser, owner: Browser, neighbour: Browser, ann: Device
) -> None:
    act = f"{ADD}/{passkeys_of(ann.email)[0].id}/remove"
    wrong = admin.post(act, {"passkey_password": "not the password"})

    assert (wrong.status_code, "That is not your password" in wrong.text) == (422, True)
    for other in (owner, neighbour, browser(web, ADMIN, account_id=_another_account())):
        assert other.post(act, {"passkey_password": PASSWORD}).status_code == 404
    assert len(passkeys_of(ann.email)) == 1


def _another_account() -> int:
    with writing():
        return Account.create("Third door").id


def test_an_owner_who_takes_a_factor_off_removes_the_passkeys_and_is_told(
    web: Flask, owner: Browser, admin: Browser, ann: Device
) -> None:
    ann.add(admin, "laptop")
    user_id = user_of(ann.email).id
    assert "their passkeys are removed" in owner.get(f"/settings/users/{user_id}").text

    owner.post(f"/settings/users/{user_id}/second-factor/take-off", {"my_password": PASSWORD})

    assert "2 passkeys removed" in owner.get(f"/settings/users/{user_id}").text
    assert not passkeys_of(ann.email)
    assert refused(sign_in(web, ann)[1], UNKNOWN)
    assert entries(Action.SECOND_FACTOR_RESET)[0].data["passkeys"] == 2
    assert not is_in(admin)


def test_the_list_of_users_says_that_one_has_a_second_factor(owner: Browser, ann: Device) -> None:
    told = owner.get("/settings/users.json").json or {}

    assert [each["email"] for each in told["users"] if each["two_factor"]] == [ann.email]


def test_nothing_is_done_without_a_csrf_token(web: Flask, admin: Browser, stranger: Browser, ann: Device) -> None:
    sent = {"credential": ann.soft.use(asked(stranger))}
    for visitor, address in ((stranger, ASK_ALONE), (stranger, ALONE), (admin, ASK_TO_ADD), (admin, ADD)):
        assert visitor.client.post(address, data=sent, headers=JSON).status_code == 400
    assert not is_in(stranger)


def test_whatever_is_sent_is_an_answer_in_words(web: Flask, ann: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right answers with one part replaced, and what is none at all."""
    many = parse_many("100000/minute")
    for name in ("BY_ADDRESS", "BY_ACCOUNT_AND_ADDRESS", "WHILE_ATTACKED"):
        monkeypatch.setattr(throttle, name, many)
    chance, visitor = random.Random(13), Browser(web, None)
    junk: list[Any] = [None, 7, "", "é", "A", "////", [], {}, "AAAA", "o2NmbXQ", "x" * 30_000]
    sent = ["", "{", "7", "[]", "null", "{}", "\x00", "[" * 5_000]
    for _ in range(40):
        told: dict[str, Any] = json.loads(ann.soft.use(asked(visitor)))
        place = chance.choice([told, told["response"]])
        place[chance.choice(sorted(place))] = chance.choice(junk)
        sent.append(json.dumps(told))

    for each in sent:
        asked(visitor)
        assert send(visitor, each).status_code == 422, each[:200]
    assert not is_in(visitor)


def test_whatever_is_sent_to_add_one_is_refused_in_words(admin: Browser) -> None:
    chance, soft = random.Random(14), SoftAuthenticator()
    junk: list[Any] = [None, 7, "", "é", "A", "////", [], {}, "AAAA", "o2NmbXQ", "x" * 30_000]
    for _ in range(12):
        told: dict[str, Any] = json.loads(soft.make(asked_to_add(admin)))
        place = chance.choice([told, told["response"]])
        place[chance.choice(sorted(place))] = chance.choice(junk)
        assert admin.post(ADD, {"credential": json.dumps(told)}).status_code == 422
    assert not passkeys_of(email_of(admin))


NUMBER = "Passkeys need a host name, not a number"


@pytest.mark.parametrize(
    ("base_url", "asked_for", "words"),
    [
        ("", "http://127.0.0.1:8000/", f"{NUMBER}: open http://localhost:8000, or set WHETSTONE_BASE_URL."),
        ("", "http://[::1]/", f"{NUMBER}: open http://localhost, or set"),
        ("", "http://10.1.2.3:8000/", "not a number: set WHETSTONE_BASE_URL"),
        ("", "http://whetstone.example/", "Passkeys need HTTPS"),
        ("https://whetstone.example", "http://127.0.0.1:8000/", "Passkeys are for https://whetstone.example"),
        ("https://whetstone.example", "https://other.example/", "Passkeys are for https://whetstone.example"),
    ],
)
def test_where_they_can_t_work_a_sentence_says_where_they_do(base_url: str, asked_for: str, words: str) -> None:
    with pytest.raises(PasskeysUnavailable, match=words.replace("[", r"\[")):
        RelyingParty.of(base_url, asked_for)


@pytest.mark.parametrize(
    ("base_url", "asked_for", "host", "origin"),
    [
        ("", "http://localhost:8000/", "localhost", "http://localhost:8000"),
        ("", "https://Whetstone.example/", "whetstone.example", "https://whetstone.example"),
        (
            "https://whetstone.example:443/sub",
            "https://whetstone.example/",
            "whetstone.example",
            "https://whetstone.example",
        ),
    ],
)
def test_elsewhere_they_are_bound_to_the_host(base_url: str, asked_for: str, host: str, origin: str) -> None:
    assert RelyingParty.of(base_url, asked_for) == RelyingParty(host, origin)


def test_under_a_number_pages_show_the_sentence_and_no_button(web: Flask, admin: Browser, stranger: Browser) -> None:
    there = {"base_url": "http://127.0.0.1:8000"}
    for visitor, path in ((stranger, "/sign-in"), (admin, PAGE)):
        with visitor.client.session_transaction() as here, visitor.client.session_transaction(**there) as session:
            session.update(here)
        page = visitor.get(path, **there).text
        assert f"{NUMBER}: open http://localhost:8000" in page
        assert "data-passkey-button" not in page
        assert "data-passkey-button" in visitor.get(path).text
        assert "JavaScript" in visitor.get(path).text
    assert refused(stranger.post(ASK_ALONE, headers=JSON, **there), NUMBER, 409)


def test_one_that_was_made_for_another_host_is_named_and_not_taken(web: Flask, ann: Device) -> None:
    ann_id = user_of(ann.email).id
    with writing():
        account = Account.lock(HOME)
        user = User.of_account(account, ann_id)
        (row,) = user.passkeys
        row.host = "whetstone.example"
        user._record(account, Action.PASSKEY_ADD, {})

    half = begin(web, ann.email)
    assert "Your passkeys are for whetstone.example" in half.get(STEP).text
    assert refused(send(half, ann.soft.use(asked(half, ASK_SECOND)), SECOND), UNKNOWN)
    assert refused(sign_in(web, ann)[1], UNKNOWN)
