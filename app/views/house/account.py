"""One's own password, time zone and sessions, and the account's name, which owners change."""

from __future__ import annotations

from flask import current_app, render_template, request, url_for
from flask.typing import ResponseReturnValue

from app import security
from app.errors import Invalid, Refused
from app.extensions import writing
from app.models import Account, User
from app.models.user import AUDITOR, OWNER
from app.security import WrongPassword
from app.values.plural import count_nouns
from app.views.access import post_act, row_id, viewer
from app.views.answers import answer_act, page
from app.views.house.shell import blueprint
from app.views.sessions import keep_in_cookies
from app.views.shown.account import AccountPage
from app.views.throttle import FailureCounts


@page(blueprint, "/settings/account", "house/account.html")
def account() -> AccountPage:
    return AccountPage(viewer())


@post_act(blueprint, "/settings/account/password", AUDITOR)
def change_password() -> ResponseReturnValue:
    """All other sessions end; this one goes on."""
    old, password, again = (request.form.get(name, "")[:1000] for name in ("old", "password", "password_again"))
    me = viewer()
    key = me.session_key
    counts: FailureCounts = current_app.extensions["failure_counts"]
    user_id = me.id
    try:
        counts.check_user(me.id)
        person = security.change_password(me, old, password, again, keeping=key)
    except WrongPassword as error:
        counts.note_failed_user(user_id)
        return _show_again({"old": error.sentence})
    except Invalid as error:
        return _show_again({"password": error.sentence})
    keep_in_cookies(person, key)
    return _done("Your password is changed. All your other sessions have ended.")


@post_act(blueprint, "/settings/account/time-zone", AUDITOR)
def set_time_zone() -> ResponseReturnValue:
    typed, me = request.form.get("time_zone", "")[:100], viewer()
    account_id, user_id, actor = me.account_id, me.id, me.actor
    try:
        with writing():
            home = Account.lock(account_id)
            User.of_account(home, user_id).set_time_zone(home, typed, by=actor)
    except Invalid as error:
        return _show_again({"time_zone": error.sentence}, {"time_zone": typed})
    return _done("Your time zone is saved.")


@post_act(blueprint, "/settings/account/name", OWNER)
def rename() -> ResponseReturnValue:
    typed, me = request.form.get("name", "")[:200], viewer()
    account_id, actor = me.account_id, me.actor
    try:
        with writing():
            Account.lock(account_id).rename(typed, by=actor)
    except (Invalid, Refused) as error:
        return _show_again({"name": error.sentence}, {"name": typed})
    return _done("The account's name is saved.")


@post_act(blueprint, "/settings/account/sessions/end", AUDITOR)
def end_sessions() -> ResponseReturnValue:
    """The one that the form names; without one, all but this."""
    typed, me = request.form.get("session", ""), viewer()
    account_id, user_id, actor, key = me.account_id, me.id, me.actor, me.session_key
    only = row_id(typed) if typed else None
    with writing():
        home = Account.lock(account_id)
        count = User.of_account(home, user_id).end_sessions(home, but=key, only=only, by=actor)
    return _done(f"{count_nouns(count, 'session')} ended.", "success" if count else "info")


def _done(words: str, tone: str = "success") -> ResponseReturnValue:
    return answer_act(words, to=url_for("house.account"), tone=tone)


def _show_again(errors: dict[str, str], typed: dict[str, str] | None = None) -> ResponseReturnValue:
    shown = AccountPage(viewer(), errors=errors, typed=typed or {})
    return render_template("house/account.html", page=shown, json_url=f"{url_for('house.account')}.json"), 422
