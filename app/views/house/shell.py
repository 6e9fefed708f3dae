"""What the pages under /settings share: their blueprint, and the one table of their tabs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flask import current_app, jsonify, request, url_for
from flask.typing import ResponseReturnValue

from app.errors import NotFound
from app.models.user import AUDITOR, SITE_ADMIN
from app.views.access import signed_in_pages, viewer
from app.views.answers import redirect_to

blueprint = signed_in_pages("house", __name__)


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
    **dict.fromkeys(("accounts.create", "accounts.show", "accounts.change_limits"), "accounts.index"),
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
    mine = [tab for tab in TABS if tab.endpoint in current_app.view_functions and viewer().may(tab.role)]
    return [{"label": tab.label, "url": url_for(tab.endpoint), "current": here == tab.endpoint} for tab in mine]


def _first_tab() -> dict[str, Any]:
    found = tabs()
    if not found:
        raise NotFound("There is no page of settings for you.")
    return found[0]
