"""What the pages under /settings share: their blueprint, and the one table of their tabs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flask import current_app, jsonify, request
from flask.typing import ResponseReturnValue

from app.errors import NotFound, Refused
from app.models.user import AUDITOR, SITE_ADMIN
from app.views.access import signed_in_pages, viewer
from app.views.addresses import page_url
from app.views.answers import redirect_to

blueprint = signed_in_pages("house", __name__)

ABOUT_ONESELF = "/settings/account"
"""The page about the person who is signed in; all that they do to themselves stands below it."""


class AboutYourself(Refused):
    """This page is about your own password, sessions and sign-in. Leave the account that you entered first."""

    code = "inside_another_account"
    outcome = "Nothing was changed."


@blueprint.before_request
def refuse_inside() -> None:
    """Who is inside another account changes nothing of their own from there, and its name is its owner's."""
    path = request.path.removesuffix(".json")
    if (path == ABOUT_ONESELF or path.startswith(f"{ABOUT_ONESELF}/")) and viewer().visit is not None:
        raise AboutYourself


@dataclass(frozen=True)
class Tab:
    """A page under /settings: its endpoint, and the role that may open it. There is no tab without its endpoint."""

    label: str
    endpoint: str
    role: str = AUDITOR


TABS = (
    Tab("Users", "house.users"),
    Tab("Account", "house.account"),
    Tab("Schedule", "house.schedule"),
    Tab("Limits", "house.limits"),
    Tab("Models", "house.models"),
    Tab("Health", "house.health"),
    Tab("Notices", "house.notices"),
    Tab("Accounts", "accounts.index", SITE_ADMIN),
)


_SHOWN_UNDER = {
    "house.invite": "house.users",
    **dict.fromkeys(
        ("house.set_up_authenticator", "house.confirm_authenticator", "house.renew_recovery_codes"), "house.account"
    ),
    **dict.fromkeys(("accounts.create", "accounts.show", "accounts.change_limits", "accounts.enter"), "accounts.index"),
}
"""Acts that answer with a page, and pages below a tab: whose tab it is."""


@blueprint.get("/settings")
def index() -> ResponseReturnValue:
    """Leads to the first page that the viewer may open."""
    return redirect_to(_first_tab()["url"])


@blueprint.get("/settings.json")
def index_json() -> ResponseReturnValue:
    return jsonify({"tabs": [{"label": tab["label"], "url": tab["url"]} for tab in tabs()]})


@blueprint.app_template_global("house_tabs")
def tabs() -> Sequence[dict[str, Any]]:
    """Of the viewer, as the macro `tabs` reads them."""
    here = _SHOWN_UNDER.get(request.endpoint or "", request.endpoint)
    inside = viewer().visit is not None
    tabs_here = [tab for tab in TABS if not (inside and tab.endpoint == "house.account")]
    mine = [tab for tab in tabs_here if tab.endpoint in current_app.view_functions and viewer().may(tab.role)]
    return [{"label": tab.label, "url": page_url(tab.endpoint), "current": here == tab.endpoint} for tab in mine]


def _first_tab() -> dict[str, Any]:
    found = tabs()
    if not found:
        raise NotFound("There is no page of settings for you.")
    return found[0]
