"""The second step of a sign-in: after the password, a code or a passkey, for who set up a second factor.

Between the two steps nobody is signed in: the cookie names who showed the password and when, and opens this page alone.
"""

from __future__ import annotations

from typing import Any, cast

from flask import Blueprint, current_app, g, jsonify, render_template, request, session, url_for
from flask.typing import ResponseReturnValue
from flask_security import current_user, login_user
from flask_security.tf_plugin import TfPlugin
from flask_security.utils import _get_post_login_redirect
from sqlalchemy import select

from app import second_factor
from app.extensions import db, now
from app.models import User
from app.second_factor import UnreadableSecret, WrongCode
from app.views.answers import redirect_to
from app.views.throttle import FailureCounts, remember_device

blueprint = Blueprint("second_step", __name__)

HALF = "second_step"
"""The session's key: who showed the password, until when that counts, and whether to keep them signed in."""

HALF_SECONDS = 10 * 60


class SecondStep(TfPlugin):  # type: ignore[misc]
    """What Flask-Security asks after the password and before it signs anybody in."""

    def tf_enter(
        self, user: User, remember_me: bool | None, primary_authn_via: str, next_loc: str | None
    ) -> ResponseReturnValue | None:
        """Lead to the second step; None for who has no second factor."""
        session.pop(HALF, None)
        if not user.has_second_factor:
            return None
        session[HALF] = {
            "user": user.fs_uniquifier,
            "until": int(now().timestamp()) + HALF_SECONDS,
            "keep": bool(remember_me),
        }
        g.second_step_begins = True
        if request.is_json:
            return jsonify({"meta": {"code": 200}, "response": {"tf_required": True}})
        return redirect_to(url_for("second_step.show", next=_local(next_loc)))


def _local(address: str | None) -> str | None:
    """Flask-Security names the whole address of the sign-in where no page was asked for."""
    return address if address and address.startswith("/") else None


def begins() -> bool:
    """Whether this request showed the right password of somebody who has a second factor."""
    return bool(g.get("second_step_begins"))


@blueprint.get("/sign-in/code")
def show() -> ResponseReturnValue:
    user = who_showed_a_password()
    return _render_form(user) if user else _start_again()


@blueprint.post("/sign-in/code")
def check() -> ResponseReturnValue:
    """A failure counts like a wrong password, and stands in the audit log like one."""
    user = who_showed_a_password()
    if user is None:
        return _start_again()
    email, user_id, keep = user.email, user.id, is_to_be_kept()
    counts: FailureCounts = current_app.extensions["failure_counts"]
    counts.check_second_step(email, user_id)
    try:
        kind = second_factor.use_code(user, request.form.get("code", "")[:100])
    except WrongCode as error:
        counts.note_failed_second_step(email, user_id)
        current_app.extensions["note_failed_sign_in"](user, {"second_step": True})
        return _render_form(user, error.sentence), 422
    except UnreadableSecret as error:
        return _render_form(user, error.sentence), 409
    return finish(user, keep=keep, via=["password", kind])


def finish(user: User, *, keep: bool, via: list[str], as_json: bool = False) -> ResponseReturnValue:
    """Sign in for good, and make the device known. A script is told `to` where to go on."""
    session.pop(HALF, None)
    email = user.email
    login_user(user, remember=keep, authn_via=via)
    to = _get_post_login_redirect()
    response = current_app.make_response(jsonify(to=to) if as_json else redirect_to(to))
    remember_device(response, email)
    return response


def who_showed_a_password() -> User | None:
    """Not long ago, in this browser, and the password is still theirs; nobody who is signed in already."""
    half: dict[str, Any] = session.get(HALF) or {}
    if current_user.is_authenticated or half.get("until", 0) < now().timestamp():
        session.pop(HALF, None)
        return None
    found = select(User).where(User.fs_uniquifier == str(half["user"]), User.active.is_(True))
    return cast("User | None", db.session.scalar(found))


def is_to_be_kept() -> bool:
    """Whether who showed a password wants to stay signed in on this device."""
    return bool(session[HALF]["keep"])


def _start_again() -> ResponseReturnValue:
    return redirect_to(url_for("security.login"))


def _render_form(user: User, problem: str = "") -> str:
    following = request.values.get("next", "")[:2000]
    return render_template("auth/second_step.html", user=user, problem=problem, next=following)
