"""Sign-in by a passkey: alone from the sign-in page, or after the password in the place of a code.

A script of ours asks here for a challenge, has the browser answer it, and sends the answer: JSON both times, `to` is
where to go on. A failure counts like a wrong password, and stands in the audit log like one.
"""

from __future__ import annotations

from typing import Any

from flask import Blueprint, current_app, jsonify, request, session, url_for
from flask.typing import ResponseReturnValue
from flask_security import current_user

from app.config import Settings
from app.models import User
from app.passkeys import (
    Assertion,
    Challenge,
    CountWentBack,
    PasskeyRefused,
    PasskeysUnavailable,
    RelyingParty,
    UnknownPasskey,
    begin_sign_in,
)
from app.views import second_step
from app.views.throttle import FailureCounts

blueprint = Blueprint("passkeys", __name__)

KEPT = "passkey_challenge"
"""The session's key: the one challenge that this browser may answer."""


def relying_party() -> RelyingParty:
    """Raises PasskeysUnavailable."""
    settings: Settings = current_app.extensions["settings"]
    return RelyingParty.of(settings.base_url, request.host_url)


def passkey_problem(user: User | None = None) -> str:
    """Why no passkey, or none of this user, can be used at this address; empty where one can."""
    try:
        party = relying_party()
    except PasskeysUnavailable as error:
        return error.sentence
    hosts = {each.host for each in user.passkeys} if user else {party.id}
    return "" if party.id in hosts else f"Your passkeys are for {', '.join(sorted(hosts))}: open Whetstone there."


def keep_challenge(asked: tuple[Challenge, dict[str, Any]]) -> ResponseReturnValue:
    """In the cookie, in the place of any before it; the browser is asked for an answer."""
    challenge, options = asked
    session[KEPT] = challenge.as_cookie()
    return jsonify(options)


def take_challenge(purpose: str, user: User | None = None) -> Challenge:
    """The one that was kept, which the cookie then names no more. Raises ChallengeOver."""
    return Challenge.of_cookie(session.pop(KEPT, None), purpose, user_id=user.id if user else 0)


@blueprint.post("/sign-in/passkey/challenge")
def ask() -> ResponseReturnValue:
    return keep_challenge(begin_sign_in(relying_party()))


@blueprint.post("/sign-in/passkey")
def sign_in() -> ResponseReturnValue:
    if current_user.is_authenticated:
        return jsonify(to=url_for("overview.index"))
    party, challenge = relying_party(), take_challenge("sign in")
    counts: FailureCounts = current_app.extensions["failure_counts"]
    user, email = None, ""
    try:
        assertion = _sent_assertion()
        user = assertion.find_user()
        email = user.email if user else ""
        counts.check_sign_in(email)
        if user is None:
            raise UnknownPasskey
        assertion.accept(challenge, user, party)
    except PasskeyRefused as error:
        counts.note_failed_sign_in(email)
        if user is not None:
            _note_failure(user, error, {})
        raise
    return second_step.finish(user, keep=bool(request.form.get("remember")), via=["passkey"], as_json=True)


@blueprint.post("/sign-in/code/challenge")
def ask_second() -> ResponseReturnValue:
    user = second_step.who_showed_a_password()
    if user is None:
        return _start_again()
    return keep_challenge(begin_sign_in(relying_party(), user))


@blueprint.post("/sign-in/code/passkey")
def check_second() -> ResponseReturnValue:
    user = second_step.who_showed_a_password()
    if user is None:
        return _start_again()
    party, challenge = relying_party(), take_challenge("second step", user)
    email, user_id, keep = user.email, user.id, second_step.is_to_be_kept()
    counts: FailureCounts = current_app.extensions["failure_counts"]
    counts.check_second_step(email, user_id)
    try:
        _sent_assertion().accept(challenge, user, party)
    except PasskeyRefused as error:
        counts.note_failed_second_step(email, user_id)
        _note_failure(user, error, {"second_step": True})
        raise
    return second_step.finish(user, keep=keep, via=["password", "passkey"], as_json=True)


def _sent_assertion() -> Assertion:
    return Assertion.parse(request.form.get("credential", ""))


def _note_failure(user: User, error: PasskeyRefused, more: dict[str, Any]) -> None:
    """A count that went back is worth a word of its own: somebody may have copied the key."""
    data = {"with": "passkey"} | more | ({"why": "sign count went back"} if isinstance(error, CountWentBack) else {})
    current_app.extensions["note_failed_sign_in"](user, data)


def _start_again() -> ResponseReturnValue:
    return jsonify(to=url_for("security.login"))
