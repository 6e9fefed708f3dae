"""What every page shares: its top bar and footer, the words for times, and the headers that keep it closed."""

from __future__ import annotations

import io
import shlex
from functools import cache
from typing import IO, Any

from flask import Flask, Request, Response, g, request
from flask_security import current_user
from flask_wtf.csrf import CSRFProtect, generate_csrf
from jinja2 import Template
from jinja2.environment import TemplateModule
from jinja2.runtime import Context
from sqlalchemy import bindparam, exists, select
from sqlalchemy.orm import aliased

from app.config import Settings
from app.extensions import db, read_rows
from app.models import AccessGrant, Account
from app.models.user import ROLES
from app.prepared import Prepared
from app.values.durations import running_words
from app.values.mass_story import exact_percent, percent
from app.values.plural import count_nouns, noun_for
from app.version import app_version
from app.views import addresses
from app.views.access import may_act, viewer
from app.views.addresses import page_url
from app.views.assets import asset_url
from app.views.inert import inert
from app.views.live import my_live_exceptions
from app.views.markup import FOR_JINJA as PIECES
from app.views.rows import FOR_JINJA as ROWS
from app.views.shown.entry import actor_name
from app.views.shown.exception import ExceptionState
from app.views.words import ago_words, left_words
from app.vocabulary import FOR_TEMPLATES

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; font-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=()",
    "Cache-Control": "no-store",
}
"""Of every answer that does not say otherwise."""

MAX_FORM_BYTES = 1_000_000
MAX_FILE_BYTES = 64_000_000
TAKES_FILES = {"imports.receive"}

NAVIGATION = (
    ("Overview", "overview.index", "overview", "o"),
    ("Refinements", "refinements.index", "refine", "r"),
    ("Agents", "agents.index", "agent", "a"),
    ("Exceptions", "exceptions.index", "eye", "e"),
    ("Audit", "audit.index", "audit", "u"),
    ("Settings", "house.index", "settings", "s"),
)
"""The top bar: label, endpoint, icon, and the key that goes there behind `g`."""

_NAVIGATION_SECTIONS = {
    **dict.fromkeys(("overview", "attention"), "overview"),
    **dict.fromkeys(("agents", "memories", "settings", "tokens", "imports", "receipts", "rollbacks"), "agents"),
}
"""Of a page's blueprint, where the navigation says that it stands, unless under its own name."""

_OTHER = aliased(Account)


@cache
def _account_query(_dialect: str) -> Prepared:
    """The name of an account; whether there are others: then every command names it; and whether the user has a live
    exception there: hardly any page has to load one."""
    others = exists().where(_OTHER.id != Account.id)
    live = exists().where(AccessGrant.user_id == bindparam("user_id"), AccessGrant.is_live())
    return Prepared(select(Account.name, others, live).where(Account.id == bindparam("id")))


csrf = CSRFProtect()


class MemoryRequest(Request):
    """Uploads stay in memory: werkzeug would write larger ones to the disk, where content must not be."""

    def _get_file_stream(self, *_about: Any, **_more: Any) -> IO[bytes]:
        return io.BytesIO()


class PageTemplate(Template):
    """Jinja compares at each import of a macro which names its importer has: all of ours have the same."""

    def _get_default_module(self, ctx: Context | None = None) -> TemplateModule:
        knows_all = ctx is None or ctx.globals_keys.issubset(self.environment.globals)
        return super()._get_default_module(None if knows_all else ctx)


def init_app(app: Flask) -> None:
    settings: Settings = app.extensions["settings"]
    app.request_class = MemoryRequest
    app.config.update(
        WTF_CSRF_TIME_LIMIT=None,
        MAX_CONTENT_LENGTH=MAX_FORM_BYTES,
        SESSION_COOKIE_NAME="whetstone",
        SESSION_COOKIE_HTTPONLY=True,
        SESSION_COOKIE_SAMESITE="Lax",
        SESSION_COOKIE_SECURE=settings.secure_cookies,
    )
    app.before_request(_allow_files)
    csrf.init_app(app)
    addresses.init_app(app)
    app.jinja_env.template_class = PageTemplate
    app.jinja_env.globals.update(csrf_token=_csrf_token, vocabulary=FOR_TEMPLATES, asset_url=asset_url)
    app.jinja_env.globals.update({**PIECES, **ROWS})
    app.jinja_env.filters.update(ago_words=ago_words, left_words=left_words, shell=quote_for_shell, inert=inert)
    app.jinja_env.filters.update(number="{:,}".format, percent=percent, exact_percent=exact_percent)
    app.jinja_env.filters.update(count_nouns=count_nouns, noun_for=noun_for, actor_name=actor_name)
    app.jinja_env.filters["running_words"] = running_words
    app.context_processor(_template_context)
    app.after_request(add_headers)


def _allow_files() -> None:
    """Before anything of the body is read, and only for those who may send files."""
    if request.endpoint in TAKES_FILES and may_act():
        request.max_content_length = MAX_FILE_BYTES


def quote_for_shell(value: object) -> str:
    """One word of a command that people copy into a shell, whatever an agent or an address called it."""
    return shlex.quote(str(value))


def _csrf_token() -> str:
    """None in parts that the stream sends: they are rendered without a session, and htmx carries the token anyway."""
    return "" if g.get("streaming") else generate_csrf()


def _template_context() -> dict[str, Any]:
    """What templates/base.html reads. Error pages of a broken server get only what needs no database."""
    common = {"home_url": page_url("overview.index"), "app_version": app_version(), "nav": []}
    if g.get("bare") or g.get("streaming") or not current_user.is_authenticated:
        return common
    user = viewer()
    asked = {"id": user.account_id, "user_id": user.id}
    query = _account_query(db.session().get_bind().dialect.name)
    ((account_name, has_others, has_exceptions),) = read_rows(query, asked)
    held = [role for role in reversed(ROLES) if user.may(role)]
    role = next((role for role in held if role in ROLES[:3]), held[0] if held else "no role")
    return common | {
        "nav": _navigation_items(),
        "account_name": account_name,
        "account_option": f" --account {quote_for_shell(account_name)}" if has_others else "",
        "viewer": {"email": user.email, "role": role.replace("_", " "), "time_zone": user.time_zone},
        "sign_out_url": page_url("security.logout"),
        "may_act": may_act(),
        "my_exceptions": _my_exceptions() if has_exceptions else [],
        "visit": user.visit,
        "leave_url": page_url("accounts.leave"),
    }


def _my_exceptions() -> list[ExceptionState]:
    """Looked for once a request, however many parts it renders."""
    if "my_exceptions" not in g:
        g.my_exceptions = my_live_exceptions()
    found: list[ExceptionState] = g.my_exceptions
    return found


def _navigation_items() -> list[dict[str, Any]]:
    blueprint = request.blueprint or ""
    here = "agents" if "agent_id" in (request.view_args or {}) else _NAVIGATION_SECTIONS.get(blueprint, blueprint)
    return [
        {"label": label, "url": page_url(endpoint), "icon": icon, "key": key, "current": here == endpoint.split(".")[0]}
        for label, endpoint, icon, key in NAVIGATION
    ]


def add_headers(response: Response) -> Response:
    """Those of every answer."""
    said = {name.lower() for name in response.headers.keys()}  # noqa: SIM118 - it is a list of pairs
    for name, value in HEADERS.items():
        if name.lower() not in said:
            response.headers.add(name, value)
    return response
