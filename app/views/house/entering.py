"""Entering an account as its admin, by an operator who has just shown the password; and leaving it."""

from __future__ import annotations

from flask import current_app, request, session, url_for
from flask.typing import ResponseReturnValue

from app import second_factor
from app.errors import Invalid, WhetstoneError
from app.models import User
from app.models.user import AUDITOR, SITE_ADMIN
from app.models.visits import NotInside, clean_reason, enter_account, leave_account
from app.second_factor import UnreadableSecret, WrongCode
from app.security import WrongPassword
from app.views.access import post_act, signed_in_user, viewer
from app.views.answers import answer_act, redirect_to
from app.views.house.accounts import blueprint, show_account
from app.views.house.second_factor import check_my_password
from app.views.sessions import INSIDE, renew_token
from app.views.shown.accounts import OneAccount
from app.views.throttle import FailureCounts


@post_act(blueprint, "/settings/accounts/<int:account_id>/enter", SITE_ADMIN)
def enter(account_id: int) -> ResponseReturnValue:
    """The password, the code and the reason stand in the form. A wrong password or code counts like one at sign-in."""
    page, me = OneAccount(viewer(), account_id), viewer()
    if page.is_home:
        raise NotInside(f"You are in {page.use.account.name} already: it is your own account.")
    typed = {"reason": request.form.get("reason", "")[:1000]}
    try:
        reason = clean_reason(typed["reason"])
    except Invalid as error:
        return _show_again(account_id, typed, "reason", error)
    try:
        check_my_password(me, request.form.get("my_password", "")[:1000])
    except WrongPassword as error:
        return _show_again(account_id, typed, "my_password", error)
    try:
        _check_my_code(me)
    except (WrongCode, UnreadableSecret) as error:
        return _show_again(account_id, typed, "code", error)
    enter_account(account_id, user=signed_in_user(), reason=reason)
    session[INSIDE] = account_id
    renew_token()
    return redirect_to(url_for("overview.index"))


@post_act(blueprint, "/settings/accounts/leave", AUDITOR)
def leave() -> ResponseReturnValue:
    """To the page of the account that was left."""
    me = signed_in_user()
    if me.visit is None or not leave_account(me):
        return answer_act("You are in your own account.", to=url_for("house.index"), tone="info")
    left_id = me.visit.account_id
    session.pop(INSIDE, None)
    renew_token()
    return answer_act("You have left the account.", to=url_for("accounts.show", account_id=left_id))


def _check_my_code(me: User) -> None:
    """Of who has a second factor. Raises WrongCode, which counts, UnreadableSecret and TooManyTries."""
    if not me.has_second_factor:
        return
    counts: FailureCounts = current_app.extensions["failure_counts"]
    email, user_id = me.email, me.id
    counts.check_second_step(email, user_id)
    try:
        second_factor.use_code(me, request.form.get("code", "")[:100])
    except WrongCode:
        counts.note_failed_second_step(email, user_id)
        current_app.extensions["note_failed_sign_in"](me, {"second_step": True})
        raise


def _show_again(account_id: int, typed: dict[str, str], field: str, error: WhetstoneError) -> ResponseReturnValue:
    shown = OneAccount(viewer(), account_id, typed=typed, errors={field: error.sentence})
    return show_account(shown), 422
