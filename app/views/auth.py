"""Sign-in and sign-out: Flask-Security does them; here they are audited, throttled and given our page.

Flask-Security only reads until the password is checked. What is written, the audit entry, then goes into a `writing()`
transaction of its own, so that no slow password hash is made while SQLite's one write lock is held. A sign-in whose
entry can't be written does not happen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Flask, Request, Response, g, request, session
from flask_limiter import Limiter
from flask_limiter.util import get_remote_address
from flask_security import current_user, user_authenticated, user_failed_authn

from app import security
from app.config import Settings
from app.extensions import writing
from app.models import Account, Action, User, announce, record
from app.views.access import viewer

ATTEMPTS_PER_ADDRESS = "10 per minute;60 per hour"
FAILURES_PER_USER = "30 per hour"
"""Of one e-mail address, from wherever: slow enough against guessing, and no easy way to lock somebody out."""


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
    app.login_manager.request_loader(_by_no_token)  # type: ignore[attr-defined]
    user_authenticated.connect(_on_sign_in, app)
    user_failed_authn.connect(_on_failure, app)
    _throttle(app)
    _wrap(app, "security.logout", _audited_sign_out)


def _by_no_token(_request: Request) -> None:
    """People come with a cookie, and with nothing else: Flask-Security would also take a token in an address."""


def _on_sign_in(app: Flask, user: User, **_details: Any) -> None:
    """A page from before is worth nothing after: whoever planted its cookie would know its CSRF token."""
    try:
        _record(Action.SIGN_IN, user)
    except BaseException:
        session.clear()
        raise
    token = app.config["WTF_CSRF_FIELD_NAME"]
    session.pop(token, None)
    g.pop(token, None)


def _on_failure(app: Flask, user: User, **_details: Any) -> None:
    """Only for users that exist: no chain stands ready for the names that strangers try."""
    _record(Action.SIGN_IN_FAILED, user)


def _audited_sign_out(view: Callable[..., Any]) -> Callable[..., Any]:
    """The entry first: without it nobody is signed out. CSRF was checked before."""

    def sign_out(**arguments: Any) -> Any:
        if current_user.is_authenticated:
            _record(Action.SIGN_OUT, viewer())
        return view(**arguments)

    return sign_out


def _record(action: Action, user: User) -> None:
    account_id, user_id, actor = user.account_id, user.id, user.actor
    with writing():
        account = Account.lock(account_id)
        record(action, actor=actor, of=account, subject=f"user:{user_id}", data={"address": request.remote_addr})
        announce(f"account.{action}", account_id=account_id)


def _throttle(app: Flask) -> None:
    """Counters live in the broker where one is set up for all web processes, else in this one."""
    settings: Settings = app.extensions["settings"]
    limiter = Limiter(
        key_func=get_remote_address,
        storage_uri=settings.redis_url or "memory://",
        in_memory_fallback_enabled=bool(settings.redis_url),
        headers_enabled=False,
    )
    limiter.init_app(app)
    by_user = limiter.limit(FAILURES_PER_USER, key_func=_asked_for, methods=["POST"], deduct_when=_failed)
    by_address = limiter.limit(ATTEMPTS_PER_ADDRESS, methods=["POST"])
    _wrap(app, "security.login", lambda view: by_address(by_user(view)))
    _wrap(app, "security.verify", limiter.limit(ATTEMPTS_PER_ADDRESS, methods=["POST"]))


def _asked_for() -> str:
    return "user:" + request.form.get("email", "").strip().lower()[:254]


def _failed(response: Response) -> bool:
    return response.status_code != 302


def _wrap(app: Flask, endpoint: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    app.view_functions[endpoint] = around(app.view_functions[endpoint])
