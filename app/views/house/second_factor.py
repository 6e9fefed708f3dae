"""One's own second factor: an authenticator app, confirmed by a code; recovery codes; and turning it off again.

Each of these needs the password: who finds a browser open changes nothing of how its user signs in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from flask import current_app, render_template, request, url_for
from flask.typing import ResponseReturnValue

from app import second_factor
from app.models import User
from app.models.user import AUDITOR
from app.second_factor import TotpSetup, WrongCode
from app.security import WrongPassword
from app.views.access import post_act, viewer
from app.views.answers import answer_act
from app.views.house.shell import blueprint
from app.views.shown.account import AccountPage
from app.views.throttle import FailureCounts

R = TypeVar("R")


@post_act(blueprint, "/settings/account/authenticator", AUDITOR)
def set_up_authenticator() -> ResponseReturnValue:
    """The secret is in this one answer and the next; it is not stored before a code confirms it."""
    try:
        setup = _by_password(second_factor.begin_totp)
    except WrongPassword as error:
        return show_account(errors={"factor_password": error.sentence}), 422
    return show_account(setup=setup)


@post_act(blueprint, "/settings/account/authenticator/confirm", AUDITOR)
def confirm_authenticator() -> ResponseReturnValue:
    setup = second_factor.resume_totp(viewer(), request.form.get("pending", "")[:2000])
    try:
        codes = second_factor.confirm_totp(viewer(), setup, request.form.get("code", "")[:100])
    except WrongCode:
        problem = "This is not the code of this moment. Is the clock of your phone right?"
        return show_account(setup=setup, errors={"code": problem}), 422
    if codes:
        return show_account(codes=codes), 201
    return answer_act("Your authenticator app is on.", to=url_for("house.account"))


@post_act(blueprint, "/settings/account/authenticator/remove", AUDITOR)
def remove_authenticator() -> ResponseReturnValue:
    try:
        was_on = _by_password(second_factor.turn_off_totp)
    except WrongPassword as error:
        return show_account(errors={"factor_password": error.sentence}), 422
    words = "Your authenticator app is off." if was_on else "Your authenticator app was off already."
    return answer_act(words, to=url_for("house.account"), tone="success" if was_on else "info")


@post_act(blueprint, "/settings/account/recovery-codes", AUDITOR)
def renew_recovery_codes() -> ResponseReturnValue:
    try:
        codes = _by_password(second_factor.renew_recovery_codes)
    except WrongPassword as error:
        return show_account(errors={"factor_password": error.sentence}), 422
    return show_account(codes=codes), 201


def check_my_password(me: User, password: str) -> None:
    """Raises WrongPassword, which counts, and TooManyTries."""
    count_failures(me, lambda: second_factor.require_password(me, password))


def _by_password(act: Callable[[User, str], R]) -> R:
    """Do it with the password of the form. A wrong one counts."""
    me, password = viewer(), request.form.get("factor_password", "")[:1000]
    return count_failures(me, lambda: act(me, password))


def count_failures(me: User, act: Callable[[], R]) -> R:
    """Do it, unless too many passwords were wrong lately. Raises TooManyTries."""
    counts: FailureCounts = current_app.extensions["failure_counts"]
    user_id = me.id
    counts.check_user(user_id)
    try:
        return act()
    except WrongPassword:
        counts.note_failed_user(user_id)
        raise


def show_account(
    *, errors: dict[str, str] | None = None, setup: TotpSetup | None = None, codes: Sequence[str] = ()
) -> str:
    """The page with sentences beside its fields, with an app that is being set up, or with new recovery codes."""
    shown = AccountPage(viewer(), errors=errors, setup=setup, codes=codes)
    return render_template("house/account.html", page=shown, json_url=f"{url_for('house.account')}.json")
