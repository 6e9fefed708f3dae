"""The live pages: what each listens to, loads and renders; one entry a page.

The same partials serve the page, the event stream and the answer to an act. The stream calls `stream_partials(topic,
viewer)` after each event of the topic and sends what it returns; a part whose element is not on the page is ignored
there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from flask import Flask, current_app, g, render_template, request
from markupsafe import Markup
from werkzeug.exceptions import HTTPException

from app.errors import NotFound
from app.events.topics import LiveRow, Topic, TopicKind, Viewer, register_topic_kinds
from app.models import AccessGrant, Agent, Refinement, Rollback
from app.models.rollback import ROLLED_BACK
from app.models.user import ADMIN
from app.views.access import may_act, own_row
from app.views.access import viewer as asking_user
from app.views.filters import FilterForm
from app.views.shown.agent import AgentPage, LedgerPage
from app.views.shown.agents import recently_moved
from app.views.shown.exception import ExceptionList, ExceptionPage, ExceptionState, live_of
from app.views.shown.log import Log
from app.views.shown.notices import NoticesPage
from app.views.shown.overview import Overview
from app.views.shown.refinement import RefinementPage
from app.views.shown.rollback import RollbackPage
from app.views.shown.settings import SettingsPage
from app.views.shown.token import TokensPage

_ROOT = re.compile(r'\s*<\w+ id="([\w-]+)"')


@dataclass(frozen=True, eq=False)
class LivePage(TopicKind):
    """`load` takes the row, or the account's id where there is none, and gives what the templates of its parts read as
    `reads`: of a list, each in turn. A button pressed on the page of `endpoint` is answered with all its parts.
    """

    load: Callable[[Any], Any] = lambda _: []
    templates: Sequence[str] = ()
    endpoint: str = ""
    reads: str = "page"

    def render(self, account_id: int, row: LiveRow | None = None, act: bool | None = None) -> Markup:
        """All of its parts as they are now; with buttons where `act`, or whoever asks, may act."""
        acts = may_act() if act is None else act
        loaded = self.load(account_id if row is None else row)
        shown = loaded if isinstance(loaded, list) else [loaded]
        parts = (_render_part(path, may_act=acts, **{self.reads: each}) for each in shown for path in self.templates)
        return Markup("").join(parts)


def init_app(app: Flask) -> None:
    app.extensions["stream_partials"] = stream_partials


def stream_partials(topic: str, viewer: Viewer) -> str:
    """All live parts of a topic's page as they are now. Raises NotFound for what is not the viewer's."""
    g.streaming = True
    found = Topic.parse(topic)
    if found is None or not isinstance(found.kind, LivePage):
        raise NotFound("There is no such topic.")
    row = _find_page_row(found.kind, viewer.account_id, found.id)
    return found.kind.render(viewer.account_id, row, viewer.may(ADMIN))


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
    return lambda: page.render(account_id, _find_page_row(page, account_id, next(iter(named.values()), None)))


def mine_part() -> str:
    """The viewer's own live exceptions: on every page of theirs, and in no stream, which others share."""
    mine = my_live_exceptions()
    return wrap_part(
        "my-exceptions", render_template("exceptions/_mine.html", my_exceptions=mine, follows_exceptions=True)
    )


def my_live_exceptions() -> list[ExceptionState]:
    """Of the user who asks, while an admin of their own account: another one's pages show nothing of it."""
    user = asking_user()
    return live_of(user.id) if may_act() and user.visit is None else []


def wrap_part(element_id: str, markup: str) -> Markup:
    """One partial for htmx, which morphs the element of that id into it."""
    opening = Markup('<hx-partial hx-target="#{}" hx-swap="outerMorph">').format(element_id)
    return opening + Markup(markup) + Markup("</hx-partial>\n")  # noqa: S704 - rendered by our templates


def _find_page_row(page: TopicKind, account_id: int, row_id: Any) -> LiveRow | None:
    """Raises NotFound."""
    return None if page.row is None else own_row(page.row, account_id, row_id)


def _render_part(template: str, **shown: Any) -> Markup:
    """As a part of the id of the template's one root element."""
    markup = render_template(template, **shown)
    root = _ROOT.match(markup)
    if root is None:
        raise RuntimeError(f"{template} begins with no element that has an id")
    return wrap_part(root[1], markup)


def _of_agent(event: Any, agent_id: int) -> Any:
    return event.agent_id == agent_id


def _of_exceptions(event: Any, grant_id: str | None) -> Any:
    """One exception's page hears of them all: they are few, and each event of one says only that there is news."""
    return event.kind.startswith("exception.")


def _of_notices(event: Any, _: str | None) -> Any:
    return event.kind == "account.notices"


def _of_rollbacks(event: Any, rollback_id: str) -> Any:
    """Any rollback may say of another one whether it stands; and they are few."""
    return event.kind == ROLLED_BACK


def _of_refinement(event: Any, refinement_id: str) -> Any:
    """Any rollback may say of it whether it stands."""
    return (event.refinement_id == refinement_id) | (event.kind == ROLLED_BACK)


def _template_paths(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/_{name}.html" for name in names)


_LOG = _template_paths("audit", "log")
_EXCEPTIONS = _template_paths("exceptions", "open", "ended")

LIVE_PAGES = (
    LivePage(
        "overview",
        load=Overview,
        templates=_template_paths("overview", "first_run", "attention", "figures", "outlook", "running", "recent"),
        endpoint="overview.index",
    ),
    LivePage("agents", None, None, recently_moved, _template_paths("agents", "row"), reads="row"),
    LivePage(
        "agent",
        Agent,
        _of_agent,
        AgentPage,
        (
            "attention/_unseen.html",
            *_template_paths("agents", "stopped", "state", "tokens_said", "recent", "intakes", "mass", "figures"),
        ),
        "agents.show",
    ),
    LivePage(
        "ledger",
        Agent,
        _of_agent,
        LedgerPage,
        _template_paths("agents", "stopped", "intakes", "ledger_figures", "ledger"),
        "agents.ledger",
    ),
    LivePage(
        "settings",
        Agent,
        _of_agent,
        SettingsPage,
        _template_paths("agents", "asked", "waiting", "model_test", "history"),
    ),
    LivePage("tokens", Agent, _of_agent, TokensPage, _template_paths("agents", "token_requests", "tokens")),
    LivePage(
        "refinement",
        Refinement,
        _of_refinement,
        RefinementPage,
        _template_paths("refinements", "status", "figures", "outcome", "rollback", "timeline"),
        "refinements.show",
    ),
    LivePage(
        "rollback", Rollback, _of_rollbacks, RollbackPage, _template_paths("rollbacks", "state"), "rollbacks.show"
    ),
    LivePage("audit", None, None, lambda account_id: Log(FilterForm.read(account_id, {})), _LOG, reads="log"),
    LivePage(
        "audit", Agent, _of_agent, lambda agent: Log(FilterForm.read(agent.account_id, {}, agent)), _LOG, reads="log"
    ),
    LivePage("exceptions", None, _of_exceptions, ExceptionList, _EXCEPTIONS, "exceptions.index", "list"),
    LivePage(
        "exceptions",
        Agent,
        lambda event, agent_id: _of_exceptions(event, None) & _of_agent(event, agent_id),
        lambda agent: ExceptionList(agent.account_id, agent),
        _EXCEPTIONS,
        "exceptions.agent",
        "list",
    ),
    LivePage("notices", None, _of_notices, NoticesPage, _template_paths("house", "deliveries")),
    LivePage(
        "exception",
        AccessGrant,
        _of_exceptions,
        ExceptionPage,
        _template_paths("exceptions", "state", "facts", "views"),
        "exceptions.show",
    ),
)
"""Every page that updates itself."""

register_topic_kinds(LIVE_PAGES)
