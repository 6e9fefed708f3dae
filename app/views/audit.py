"""The audit log: the account's and each agent's, filtered by the address, and as CSV and JSON Lines."""

from __future__ import annotations

from functools import partial
from uuid import UUID

from flask import render_template, request
from flask.typing import ResponseReturnValue

from app.models import Agent
from app.models.keyset import TimeCursor
from app.views.access import my_agent, my_refinement, signed_in_pages, viewer
from app.views.answers import page
from app.views.export import CSV, JSON_LINES, download_log
from app.views.filters import FilterForm
from app.views.shown.log import MOST_NEWER, AuditPage, log_url, newer_entries, rows_of_fold

blueprint = signed_in_pages("audit", __name__)


@page(blueprint, "/audit", "audit/index.html")
def index() -> AuditPage:
    return AuditPage(_read_form(), **_page_position())


@page(blueprint, "/agents/<int:agent_id>/audit", "audit/agent.html")
def agent(agent_id: int) -> AuditPage:
    return AuditPage(_read_form(my_agent(agent_id)), **_page_position())


@blueprint.get("/audit.csv")
def index_csv() -> ResponseReturnValue:
    return download_log(_read_form(), CSV)


@blueprint.get("/audit.jsonl")
def index_jsonl() -> ResponseReturnValue:
    return download_log(_read_form(), JSON_LINES)


@blueprint.get("/agents/<int:agent_id>/audit.csv")
def agent_csv(agent_id: int) -> ResponseReturnValue:
    return download_log(_read_form(my_agent(agent_id)), CSV)


@blueprint.get("/agents/<int:agent_id>/audit.jsonl")
def agent_jsonl(agent_id: int) -> ResponseReturnValue:
    return download_log(_read_form(my_agent(agent_id)), JSON_LINES)


@blueprint.get("/audit/newer")
def index_newer() -> ResponseReturnValue:
    return _render_newer(_read_form())


@blueprint.get("/agents/<int:agent_id>/audit/newer")
def agent_newer(agent_id: int) -> ResponseReturnValue:
    return _render_newer(_read_form(my_agent(agent_id)))


@blueprint.get("/audit/refinements/<uuid:refinement_id>")
def fold(refinement_id: UUID) -> ResponseReturnValue:
    """What a folded row opens to: a part of the page, not a page."""
    refinement = my_refinement(refinement_id)
    rows, more = rows_of_fold(refinement)
    anywhere = partial(log_url, None)
    url = anywhere(refinement=refinement.id)
    return render_template("audit/_opened.html", rows=rows, more=more, url=url, actor_url=anywhere)


def _render_newer(form: FilterForm) -> ResponseReturnValue:
    """How many fitting entries came since the page was made: a part of it."""
    than = TimeCursor.parse(request.args.get("than", ""))
    count = newer_entries(form.filters, than) if than and not form.errors else 0
    url = log_url(form.agent, **form.typed)
    return render_template("audit/_newer.html", count=count, most=MOST_NEWER, url=url)


def _read_form(whose: Agent | None = None) -> FilterForm:
    return FilterForm.read(viewer().account_id, request.args, whose)


def _page_position() -> dict[str, str]:
    return {name: request.args.get(name, "") for name in ("before", "after")}
