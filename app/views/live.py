"""The live parts of pages: the same partials serve the page, the event stream and the answer to an act.

The stream calls `stream_partials(topic, viewer)` after each event of the topic and sends what it returns; a part whose
element is not on the page is ignored there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

from flask import Flask, current_app, g, render_template, request
from markupsafe import Markup
from werkzeug.exceptions import HTTPException

from app.errors import NotFound
from app.models import AccessGrant, Agent, Refinement, Rollback
from app.models.user import ADMIN
from app.views.access import (
    agent_of,
    exception_of,
    may_act,
    my_agent,
    my_exception,
    my_refinement,
    my_rollback,
    refinement_of,
    rollback_of,
)
from app.views.access import viewer as asking_user
from app.views.filters import FilterForm
from app.views.shown.agent import LedgerPage
from app.views.shown.agents import recently_moved
from app.views.shown.exception import ExceptionList, ExceptionPage, ExceptionState, live_of
from app.views.shown.log import Log
from app.views.shown.overview import Overview
from app.views.shown.refinement import RefinementPage
from app.views.shown.rollback import RollbackPage
from app.views.shown.settings import SettingsParts
from app.views.shown.tokens import TokensPage


class StreamViewer(Protocol):
    """Who holds a stream open: plain facts, checked again while it lives."""

    @property
    def account_id(self) -> int: ...

    def may(self, role: str) -> bool: ...


def init_app(app: Flask) -> None:
    app.extensions["stream_partials"] = stream_partials


def stream_partials(topic: str, viewer: StreamViewer) -> str:
    """All live parts of a topic's page as they are now. Raises NotFound for what is not the viewer's."""
    g.streaming = True
    kind, _, name = topic.partition(":")
    act = viewer.may(ADMIN)
    match kind:
        case "overview":
            return overview_parts(viewer.account_id, act)
        case "agents":
            return rows_parts(viewer.account_id, act)
        case "agent" if name.isascii() and name.isdigit() and len(name) < 19:
            return agent_parts(agent_of(viewer.account_id, int(name)), act)
        case "audit" if not name:
            return audit_parts(FilterForm.read(viewer.account_id, {}), act)
        case "audit" if name.isascii() and name.isdigit() and len(name) < 19:
            agent = agent_of(viewer.account_id, int(name))
            return audit_parts(FilterForm.read(viewer.account_id, {}, agent), act)
        case "settings" if name.isascii() and name.isdigit() and len(name) < 19:
            return settings_parts(agent_of(viewer.account_id, int(name)), act)
        case "tokens" if name.isascii() and name.isdigit() and len(name) < 19:
            return tokens_parts(agent_of(viewer.account_id, int(name)), act)
        case "refinement":
            return refinement_parts(refinement_of(viewer.account_id, name), act)
        case "rollback":
            return rollback_parts(rollback_of(viewer.account_id, name), act)
        case "exceptions" if not name:
            return exceptions_parts(viewer.account_id, None, act)
        case "exceptions" if name.isascii() and name.isdigit() and len(name) < 19:
            return exceptions_parts(viewer.account_id, agent_of(viewer.account_id, int(name)), act)
        case "exception":
            return exception_parts(exception_of(viewer.account_id, name), act)
    raise NotFound("There is no such topic.")


def pressed_on() -> tuple[str, Mapping[str, Any]]:
    """Endpoint and arguments of the page on which a button was pressed; an empty name for what is no page of ours."""
    try:
        path = urlsplit(request.headers.get("HX-Current-URL", "")).path
        return current_app.url_map.bind("here").match(path, method="GET")
    except (HTTPException, ValueError):
        return "", {}


def parts_of_this_page() -> Callable[[], str] | None:
    """The live parts of the page on which a button was pressed; None for a page that has none."""
    endpoint, named = pressed_on()
    match endpoint:
        case "overview.index":
            return lambda: overview_parts(asking_user().account_id)
        case "refinements.show":
            return lambda: refinement_parts(my_refinement(named["refinement_id"]))
        case "rollbacks.show":
            return lambda: rollback_parts(my_rollback(named["rollback_id"]))
        case "agents.show":
            return lambda: agent_parts(my_agent(named["agent_id"]))
        case "exceptions.index":
            return lambda: exceptions_parts(asking_user().account_id, None)
        case "exceptions.agent":
            return lambda: exceptions_parts(asking_user().account_id, my_agent(named["agent_id"]))
        case "exceptions.show":
            return lambda: exception_parts(my_exception(named["exception_id"]))
    return None


def overview_parts(account_id: int, act: bool | None = None) -> str:
    page = Overview.load(account_id)
    return _parts(OVERVIEW, act, page=page)


def rows_parts(account_id: int, act: bool | None = None) -> str:
    rows = recently_moved(account_id)
    return Markup("").join(part(f"agent-{row.agent.id}", _render("agents/_row.html", act, row=row)) for row in rows)


def agent_parts(agent: Agent, act: bool | None = None) -> str:
    return _parts(AGENT, act, page=LedgerPage.load(agent))


def settings_parts(agent: Agent, act: bool | None = None) -> str:
    return _parts(SETTINGS, act, page=SettingsParts.load(agent))


def tokens_parts(agent: Agent, act: bool | None = None) -> str:
    return _parts(TOKENS, act, page=TokensPage.load(agent))


def refinement_parts(refinement: Refinement, act: bool | None = None) -> str:
    return _parts(REFINEMENT, act, page=RefinementPage.load(refinement))


def rollback_parts(rollback: Rollback, act: bool | None = None) -> str:
    return _parts(ROLLBACK, act, page=RollbackPage.load(rollback))


def exceptions_parts(account_id: int, agent: Agent | None, act: bool | None = None) -> str:
    return _parts(EXCEPTIONS, act, list=ExceptionList.load(account_id, agent))


def exception_parts(grant: AccessGrant, act: bool | None = None) -> str:
    return _parts(EXCEPTION, act, page=ExceptionPage.load(grant))


def mine_part() -> str:
    """The viewer's own live exceptions: on every page of theirs, and in no stream, which others share."""
    mine = my_live_exceptions()
    return part("my-exceptions", render_template("exceptions/_mine.html", my_exceptions=mine, follows_exceptions=True))


def my_live_exceptions() -> list[ExceptionState]:
    """Of the user who asks, while an admin."""
    return live_of(asking_user().id) if may_act() else []


def audit_parts(form: FilterForm, act: bool | None = None) -> str:
    return _parts(AUDIT, act, log=Log.load(form))


OVERVIEW = {
    "attention": "attention/_unseen.html",
    "overview-figures": "overview/_figures.html",
    "overview-attention": "overview/_attention.html",
    "overview-running": "overview/_running.html",
    "overview-recent": "overview/_recent.html",
}
AGENT = {
    "attention": "attention/_unseen.html",
    "agent-state": "agents/_state.html",
    "agent-recent": "agents/_recent.html",
    "agent-intakes": "agents/_intakes.html",
    "agent-mass": "agents/_mass.html",
    "ledger": "agents/_ledger.html",
}
SETTINGS = {"settings-waiting": "agents/_waiting.html", "settings-history": "agents/_history.html"}
TOKENS = {"agent-tokens": "agents/_tokens.html"}
REFINEMENT = {
    "refinement-status": "refinements/_status.html",
    "refinement-figures": "refinements/_figures.html",
    "refinement-outcome": "refinements/_outcome.html",
    "refinement-rollback": "refinements/_rollback.html",
    "refinement-timeline": "refinements/_timeline.html",
}
ROLLBACK = {"rollback-state": "rollbacks/_state.html"}
AUDIT = {"audit-live": "audit/_log.html"}
EXCEPTIONS = {"exceptions-open": "exceptions/_open.html", "exceptions-ended": "exceptions/_ended.html"}
EXCEPTION = {
    "exception-state": "exceptions/_state.html",
    "exception-facts": "exceptions/_facts.html",
    "exception-views": "exceptions/_views.html",
}
"""By the id of each partial's one root element."""


def part(element_id: str, markup: str) -> Markup:
    """One partial for htmx, which morphs the element of that id into it."""
    opening = Markup('<hx-partial hx-target="#{}" hx-swap="outerMorph">').format(element_id)
    return opening + Markup(markup) + Markup("</hx-partial>\n")  # noqa: S704 - rendered by our templates


def _parts(templates: Mapping[str, str], act: bool | None, **shown: Any) -> str:
    return Markup("").join(part(name, _render(template, act, **shown)) for name, template in templates.items())


def _render(template: str, act: bool | None, **shown: Any) -> str:
    return render_template(template, **shown, may_act=may_act() if act is None else act)
