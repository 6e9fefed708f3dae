"""Sign-in and sign-out: Flask-Security does them; here they are audited, throttled and given our page.

Flask-Security only reads until the password is checked. What is written, the audit entry, then goes into a `writing()`
transaction of its own, so that no slow password hash is made while SQLite's one write lock is held. A sign-in whose
entry can't be written does not happen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flask import Flask, Request, current_app, request, session
from flask_security import current_user, user_authenticated, user_failed_authn

from app import security
from app.errors import Invalid
from app.extensions import writing
from app.models import Account, Action, User, UserSession, announce, record
from app.models.visits import leave_account
from app.views import passkeys, second_step, sessions
from app.views.access import signed_in_user, viewer
from app.views.sessions import begin_session, name_in_cookie, renew_token
from app.views.throttle import FailureCounts, remember_device


def init_app(app: Flask) -> None:
    app.config.update(
        SECURITY_LOGIN_URL="/sign-in",
        SECURITY_LOGOUT_URL="/sign-out",
        SECURITY_LOGOUT_METHODS=["POST"],
        SECURITY_LOGOUT_CSRF=True,
        SECURITY_LOGIN_USER_TEMPLATE="auth/sign_in.html",
        SECURITY_LOGOUT_USER_TEMPLATE="auth/sign_out.html",
        SECURITY_VERIFY_TEMPLATE="auth/verify.html",
        SECURITY_POST_LOGOUT_VIEW="/sign-in",
        SECURITY_RETURN_GENERIC_RESPONSES=True,
        SECURITY_FLASH_MESSAGES=False,
        REMEMBER_COOKIE_HTTPONLY=True,
        REMEMBER_COOKIE_SAMESITE="Lax",
        REMEMBER_COOKIE_SECURE=app.extensions["settings"].secure_cookies,
    )
    security.init_app(app, views=True)
    app.extensions["security"].two_factor_plugins = second_step.SecondStep()
    app.extensions["note_failed_sign_in"] = _note_failed_factor
    app.register_blueprint(second_step.blueprint)
    app.register_blueprint(passkeys.blueprint)
    app.jinja_env.globals["passkey_problem"] = passkeys.passkey_problem
    sessions.init_app(app)
    app.login_manager.request_loader(_by_no_token)  # type: ignore[attr-defined]
    user_authenticated.connect(_on_sign_in, app)
    user_failed_authn.connect(_on_failure, app)
    app.extensions["failure_counts"] = FailureCounts(app.extensions["settings"])
    views = app.view_functions
    views["security.login"] = _throttled_sign_in(views["security.login"])
    views["security.verify"] = _throttled_verify(views["security.verify"])
    views["security.logout"] = _audited_sign_out(views["security.logout"])


def _by_no_token(_request: Request) -> None:
    """People come with a cookie, and with nothing else: Flask-Security would also take a token in an address."""


def _on_sign_in(app: Flask, user: User, authn_via: list[str] | None = None, **_details: Any) -> None:
    """A page from before is worth nothing after: whoever planted its cookie would know its CSRF token."""
    try:
        key = _record_action(Action.SIGN_IN, user, _with_factors(authn_via))
    except BaseException:
        session.clear()
        raise
    name_in_cookie(user, key)
    renew_token()


def _on_failure(app: Flask, user: User, **_details: Any) -> None:
    """Only for users that exist: no chain stands ready for the names that strangers try."""
    _record_action(Action.SIGN_IN_FAILED, user)


def _note_failed_factor(user: User, data: Mapping[str, Any]) -> None:
    _record_action(Action.SIGN_IN_FAILED, user, data)


def _with_factors(authn_via: list[str] | None) -> dict[str, Any]:
    """For the entry, where it was more than the password."""
    return {"with": authn_via} if authn_via and authn_via != ["password"] else {}


def _audited_sign_out(view: Callable[..., Any]) -> Callable[..., Any]:
    """The entry first: without it nobody is signed out. CSRF was checked before."""

    def sign_out(**arguments: Any) -> Any:
        if current_user.is_authenticated:
            leave_account(signed_in_user(), why="signed out")
            _record_action(Action.SIGN_OUT, signed_in_user())
        return view(**arguments)

    return sign_out


def _record_action(action: Action, user: User, more: Mapping[str, Any] | None = None) -> str:
    """Returns the key of the session that a sign-in begins; a sign-out ends the one that asks."""
    key = user.session_key
    account_id, user_id, actor = user.account_id, user.id, user.actor
    with writing():
        account = Account.lock(account_id)
        if action is Action.SIGN_IN:
            user.renew_password_hash()
            user.note_sign_in()
            key = begin_session(user).key
        if action is Action.SIGN_OUT:
            UserSession.end_by_key(key)
        data = {"address": request.remote_addr, **(more or {})}
        record(action, actor=actor, of=account, subject=f"user:{user_id}", data=data)
        announce(f"account.{action}", account_id)
    return key


def _throttled_sign_in(view: Callable[..., Any]) -> Callable[..., Any]:
    """A failure counts, however it was sent; a success never does. It makes the device known, once it is whole."""

    def sign_in(**arguments: Any) -> Any:
        if request.method != "POST" or current_user.is_authenticated:
            return view(**arguments)
        email, counts = _asked_for(), _failure_counts()
        counts.check_sign_in(email)
        response = current_app.make_response(view(**arguments))
        if current_user.is_authenticated:
            remember_device(response, email)
        elif not second_step.begins():
            counts.note_failed_sign_in(email)
        return response

    return sign_in


def _throttled_verify(view: Callable[..., Any]) -> Callable[..., Any]:
    def verify(**arguments: Any) -> Any:
        if request.method != "POST" or not current_user.is_authenticated:
            return view(**arguments)
        counts, earlier, user_id = _failure_counts(), session.get("fs_paa"), viewer().id
        counts.check_user(user_id)
        response = view(**arguments)
        if session.get("fs_paa") == earlier:
            counts.note_failed_user(user_id)
        return response

    return verify


def _failure_counts() -> FailureCounts:
    found: FailureCounts = current_app.extensions["failure_counts"]
    return found


def _asked_for() -> str:
    """The address that a form or a JSON document names, as sign-in looks it up. Raises Invalid."""
    sent = request.get_json(silent=True) if request.is_json else request.form
    if not isinstance(sent, Mapping):
        raise Invalid("Send a JSON object with email and password.")
    email = sent.get("email", "")
    return email.strip().lower()[:254] if isinstance(email, str) else ""
