"""The installation's accounts under /settings/accounts: for its operators only, who need no role in any account."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, render_template, request, url_for
from flask.typing import ResponseReturnValue
from flask_security import current_user

from app.installation.accounts import AccountInvalid, open_account, set_limits
from app.models.account_limits import LIMIT_NAMES, LimitsInvalid
from app.models.user import SITE_ADMIN
from app.models.visits import InsideAlready
from app.views.access import needs, post_act, require_sign_in, viewer
from app.views.answers import answer_act, page
from app.views.shown.accounts import FIELDS, AccountList, OneAccount
from app.views.shown.users import MadeLink

blueprint = Blueprint("accounts", __name__)

LEAVE = "accounts.leave"
"""The one act for who is inside another account."""


@blueprint.before_request
def require_somebody() -> ResponseReturnValue | None:
    """Before every page here: send strangers to sign in, and who is inside an account back to it.

    Each view says that it needs an operator. Raises InsideAlready.
    """
    if not current_user.is_authenticated:
        return require_sign_in()
    if viewer().visit is not None and request.endpoint != LEAVE:
        raise InsideAlready
    return None


@page(blueprint, "/settings/accounts", "house/accounts.html")
@needs(SITE_ADMIN)
def index() -> AccountList:
    return AccountList(viewer(), after=request.args.get("after", "")[:80])


@page(blueprint, "/settings/accounts/<int:account_id>", "house/one_account.html")
@needs(SITE_ADMIN)
def show(account_id: int) -> OneAccount:
    return OneAccount(viewer(), account_id)


@post_act(blueprint, "/settings/accounts", SITE_ADMIN)
def create() -> ResponseReturnValue:
    """The owner's link is in this one answer and nowhere else: not in a redirect, a session or a log."""
    typed = {name: request.form.get(name, "")[:300] for name in FIELDS}
    actor = viewer().actor
    try:
        _, link, secret = open_account(typed, by=actor)
    except AccountInvalid as error:
        return _show_list(AccountList(viewer(), typed=typed, errors=error.errors)), 422
    return _show_list(AccountList(viewer(), made=MadeLink.of(link, secret))), 201


@post_act(blueprint, "/settings/accounts/<int:account_id>/limits", SITE_ADMIN)
def change_limits(account_id: int) -> ResponseReturnValue:
    """The limits stand in the form, or in the address of an Undo; an empty one is none."""
    typed = {name: request.values.get(name, "")[:40] for name in LIMIT_NAMES}
    try:
        account, before, changed = set_limits(account_id, typed, by=viewer().actor)
    except LimitsInvalid as error:
        return show_account(OneAccount(viewer(), account_id, typed=typed, errors=error.errors)), 422
    if not changed:
        words, undo = f"The limits of {account.name} are these already.", ""
    else:
        stored: dict[str, Any] = {name: value for name, value in before.as_json().items() if value is not None}
        words = f"The limits of {account.name} are saved."
        undo = url_for("accounts.change_limits", account_id=account_id, **stored)
    tone = "success" if changed else "info"
    return answer_act(words, to=url_for("accounts.show", account_id=account_id), undo=undo, tone=tone)


def show_account(shown: OneAccount) -> str:
    """Its page again, in answer to a form."""
    json_url = f"{url_for('accounts.show', account_id=shown.use.account.id)}.json"
    return render_template("house/one_account.html", page=shown, json_url=json_url)


def _show_list(shown: AccountList) -> str:
    return render_template("house/accounts.html", page=shown, json_url=f"{url_for('accounts.index')}.json")
