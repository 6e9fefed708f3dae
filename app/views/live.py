"""The live parts of pages: the same partials serve the page, the event stream and the answer to an act.

The stream calls `stream_partials(topic, viewer)` after each event of the topic and sends what it returns; a part whose
element is not on the page is ignored there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from flask import Flask, g, render_template
from markupsafe import Markup

from app.errors import NotFound
from app.models import Agent, Refinement
from app.models.user import ADMIN
from app.views.access import agent_of, may_act, refinement_of
from app.views.shown.agent import LedgerPage
from app.views.shown.agents import recently_moved
from app.views.shown.overview import Overview
from app.views.shown.refinement import RefinementPage


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
        case "refinement":
            return refinement_parts(refinement_of(viewer.account_id, name), act)
    raise NotFound("There is no such topic.")


def overview_parts(account_id: int, act: bool | None = None) -> str:
    page = Overview.load(account_id)
    return _parts(OVERVIEW, act, page=page)


def rows_parts(account_id: int, act: bool | None = None) -> str:
    rows = recently_moved(account_id)
    return Markup("").join(part(f"agent-{row.agent.id}", _render("agents/_row.html", act, row=row)) for row in rows)


def agent_parts(agent: Agent, act: bool | None = None) -> str:
    return _parts(AGENT, act, page=LedgerPage.load(agent))


def refinement_parts(refinement: Refinement, act: bool | None = None) -> str:
    return _parts(REFINEMENT, act, page=RefinementPage.load(refinement))


OVERVIEW = {
    "overview-figures": "overview/_figures.html",
    "overview-attention": "overview/_attention.html",
    "overview-running": "overview/_running.html",
    "overview-recent": "overview/_recent.html",
}
AGENT = {
    "agent-state": "agents/_state.html",
    "agent-recent": "agents/_recent.html",
    "agent-intakes": "agents/_intakes.html",
    "ledger": "agents/_ledger.html",
}
REFINEMENT = {
    "refinement-status": "refinements/_status.html",
    "refinement-figures": "refinements/_figures.html",
    "refinement-outcome": "refinements/_outcome.html",
    "refinement-timeline": "refinements/_timeline.html",
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
