"""The live pages: what each listens to, loads and renders; one entry a page.

The same partials serve the page, the event stream and the answer to an act. The stream calls `stream_partials(topic,
viewer)` after each event of the topic and sends what it returns; a part whose element is not on the page is ignored
there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from flask import Flask, current_app, g, render_template, request
from markupsafe import Markup
from werkzeug.exceptions import HTTPException

from app.errors import NotFound
from app.events.topics import LiveRow, Topic, TopicKind, register
from app.models import AccessGrant, Agent, Refinement, Rollback
from app.models.rollback import ROLLED_BACK
from app.models.user import ADMIN
from app.views.access import may_act, own_row
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

Parts = Iterator[tuple[str, str, dict[str, Any]]]
"""Of each: the id of the partial's one root element, its template, and what that reads."""


class StreamViewer(Protocol):
    """Who holds a stream open: plain facts, checked again while it lives."""

    @property
    def account_id(self) -> int: ...

    def may(self, role: str) -> bool: ...


@dataclass(frozen=True, eq=False)
class LivePage(TopicKind):
    """`load` gives its parts, of an account and of its row. An act on the page of `endpoint` is answered with them."""

    load: Callable[[int, Any], Parts] = lambda account_id, row: iter(())
    endpoint: str = ""

    def render(self, account_id: int, row: LiveRow | None = None, act: bool | None = None) -> Markup:
        """All of its parts as they are now; with buttons where `act`, or whoever asks, may act."""
        acts = may_act() if act is None else act
        parts = self.load(account_id, row)
        return Markup("").join(part(name, render_template(path, **shown, may_act=acts)) for name, path, shown in parts)


def init_app(app: Flask) -> None:
    app.extensions["stream_partials"] = stream_partials


def stream_partials(topic: str, viewer: StreamViewer) -> str:
    """All live parts of a topic's page as they are now. Raises NotFound for what is not the viewer's."""
    g.streaming = True
    found = Topic.parse(topic)
    if found is None or not isinstance(found.kind, LivePage):
        raise NotFound("There is no such topic.")
    return found.kind.render(viewer.account_id, _row(found.kind, viewer.account_id, found.id), viewer.may(ADMIN))


def parts_of(page: str, row: LiveRow) -> str:
    """The live parts of one row's page."""
    (found,) = (each for each in LIVE_PAGES if each.name == page and isinstance(row, each.row or ()))
    return found.render(row.account_id, row)


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
    page = next((each for each in LIVE_PAGES if endpoint and each.endpoint == endpoint), None)
    if page is None:
        return None
    account_id = asking_user().account_id
    return lambda: page.render(account_id, _row(page, account_id, next(iter(named.values()), None)))


def mine_part() -> str:
    """The viewer's own live exceptions: on every page of theirs, and in no stream, which others share."""
    mine = my_live_exceptions()
    return part("my-exceptions", render_template("exceptions/_mine.html", my_exceptions=mine, follows_exceptions=True))


def my_live_exceptions() -> list[ExceptionState]:
    """Of the user who asks, while an admin."""
    return live_of(asking_user().id) if may_act() else []


def part(element_id: str, markup: str) -> Markup:
    """One partial for htmx, which morphs the element of that id into it."""
    opening = Markup('<hx-partial hx-target="#{}" hx-swap="outerMorph">').format(element_id)
    return opening + Markup(markup) + Markup("</hx-partial>\n")  # noqa: S704 - rendered by our templates


def _row(page: TopicKind, account_id: int, row_id: Any) -> LiveRow | None:
    """Raises NotFound."""
    return None if page.row is None else own_row(page.row, account_id, row_id)


def _parts(load: Callable[[int, Any], Any], /, *, name: str = "page", **templates: str) -> Callable[[int, Any], Parts]:
    """Templates by the ids of their elements, with `_` for `-`; each reads what is loaded under one name."""

    def loaded(account_id: int, row: Any) -> Parts:
        shown = {name: load(account_id, row)}
        return ((element.replace("_", "-"), template, shown) for element, template in templates.items())

    return loaded


def _agent_rows(account_id: int, row: None) -> Parts:
    """A part an agent that may have changed."""
    return ((f"agent-{each.agent.id}", "agents/_row.html", {"row": each}) for each in recently_moved(account_id))


def _of_agent(event: Any, agent_id: int) -> Any:
    return event.agent_id == agent_id


def _of_exceptions(event: Any, grant_id: str | None) -> Any:
    """One exception's page hears of them all: they are few, and each event of one says only that there is news."""
    return event.kind.startswith("exception.")


def _of_exceptions_of_agent(event: Any, agent_id: int) -> Any:
    return _of_exceptions(event, None) & _of_agent(event, agent_id)


def _of_rollbacks(event: Any, rollback_id: str) -> Any:
    """Any rollback may say of another one whether it stands; and they are few."""
    return event.kind == ROLLED_BACK


def _of_refinement(event: Any, refinement_id: str) -> Any:
    """Any rollback may say of it whether it stands."""
    return (event.refinement_id == refinement_id) | (event.kind == ROLLED_BACK)


LIVE_PAGES = (
    LivePage(
        "overview",
        endpoint="overview.index",
        load=_parts(
            lambda account_id, _: Overview.load(account_id),
            attention="attention/_unseen.html",
            overview_figures="overview/_figures.html",
            overview_attention="overview/_attention.html",
            overview_running="overview/_running.html",
            overview_recent="overview/_recent.html",
        ),
    ),
    LivePage("agents", load=_agent_rows),
    LivePage(
        "agent",
        Agent,
        _of_agent,
        endpoint="agents.show",
        load=_parts(
            lambda _, agent: LedgerPage.load(agent),
            attention="attention/_unseen.html",
            agent_state="agents/_state.html",
            agent_recent="agents/_recent.html",
            agent_intakes="agents/_intakes.html",
            agent_mass="agents/_mass.html",
            ledger="agents/_ledger.html",
        ),
    ),
    LivePage(
        "settings",
        Agent,
        _of_agent,
        load=_parts(
            lambda _, agent: SettingsParts.load(agent),
            settings_waiting="agents/_waiting.html",
            settings_history="agents/_history.html",
        ),
    ),
    LivePage(
        "tokens",
        Agent,
        _of_agent,
        load=_parts(lambda _, agent: TokensPage.load(agent), agent_tokens="agents/_tokens.html"),
    ),
    LivePage(
        "refinement",
        Refinement,
        _of_refinement,
        endpoint="refinements.show",
        load=_parts(
            lambda _, refinement: RefinementPage.load(refinement),
            refinement_status="refinements/_status.html",
            refinement_figures="refinements/_figures.html",
            refinement_outcome="refinements/_outcome.html",
            refinement_rollback="refinements/_rollback.html",
            refinement_timeline="refinements/_timeline.html",
        ),
    ),
    LivePage(
        "rollback",
        Rollback,
        _of_rollbacks,
        endpoint="rollbacks.show",
        load=_parts(lambda _, rollback: RollbackPage.load(rollback), rollback_state="rollbacks/_state.html"),
    ),
    LivePage(
        "audit",
        load=_parts(
            lambda account_id, _: Log.load(FilterForm.read(account_id, {})), name="log", audit_live="audit/_log.html"
        ),
    ),
    LivePage(
        "audit",
        Agent,
        _of_agent,
        load=_parts(
            lambda account_id, agent: Log.load(FilterForm.read(account_id, {}, agent)),
            name="log",
            audit_live="audit/_log.html",
        ),
    ),
    LivePage(
        "exceptions",
        None,
        _of_exceptions,
        endpoint="exceptions.index",
        load=_parts(
            lambda account_id, _: ExceptionList.load(account_id),
            name="list",
            exceptions_open="exceptions/_open.html",
            exceptions_ended="exceptions/_ended.html",
        ),
    ),
    LivePage(
        "exceptions",
        Agent,
        _of_exceptions_of_agent,
        endpoint="exceptions.agent",
        load=_parts(
            lambda account_id, agent: ExceptionList.load(account_id, agent),
            name="list",
            exceptions_open="exceptions/_open.html",
            exceptions_ended="exceptions/_ended.html",
        ),
    ),
    LivePage(
        "exception",
        AccessGrant,
        _of_exceptions,
        endpoint="exceptions.show",
        load=_parts(
            lambda _, grant: ExceptionPage.load(grant),
            exception_state="exceptions/_state.html",
            exception_facts="exceptions/_facts.html",
            exception_views="exceptions/_views.html",
        ),
    ),
)
"""Every page that updates itself."""

register(LIVE_PAGES)
