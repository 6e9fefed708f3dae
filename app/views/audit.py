"""The audit log: the account's and each agent's, filtered by the address, and as CSV and JSON Lines."""

from __future__ import annotations

from uuid import UUID

from flask import render_template, request
from flask.typing import ResponseReturnValue

from app.models import Refinement
from app.models.keyset import TimeCursor
from app.views.access import my_agent, my_row, signed_in_pages, viewer
from app.views.addresses import page_url, query_url
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
    return AuditPage(_read_form(agent_id), **_page_position())


@blueprint.get("/audit.csv", endpoint="index_csv")
@blueprint.get("/agents/<int:agent_id>/audit.csv", endpoint="agent_csv")
def download_csv(agent_id: int | None = None) -> ResponseReturnValue:
    return download_log(_read_form(agent_id), CSV)


@blueprint.get("/audit.jsonl", endpoint="index_jsonl")
@blueprint.get("/agents/<int:agent_id>/audit.jsonl", endpoint="agent_jsonl")
def download_jsonl(agent_id: int | None = None) -> ResponseReturnValue:
    return download_log(_read_form(agent_id), JSON_LINES)


@blueprint.get("/audit/newer", endpoint="index_newer")
@blueprint.get("/agents/<int:agent_id>/audit/newer", endpoint="agent_newer")
def count_newer(agent_id: int | None = None) -> ResponseReturnValue:
    """How many fitting entries came since the page was made: a part of it."""
    form, than = _read_form(agent_id), TimeCursor.parse(request.args.get("than", ""))
    count = newer_entries(form.filters, than) if than and not form.errors else 0
    url = log_url(form.agent, **form.typed)
    return render_template("audit/_newer.html", count=count, most=MOST_NEWER, url=url)


@blueprint.get("/audit/refinements/<uuid:refinement_id>")
def fold(refinement_id: UUID) -> ResponseReturnValue:
    """What a folded row opens to: a part of the page, not a page."""
    refinement = my_row(Refinement, refinement_id)
    rows, more = rows_of_fold(refinement)
    url, by = log_url(None, refinement=refinement.id), query_url(page_url("audit.index"), "actor")
    return render_template("audit/_opened.html", rows=rows, more=more, url=url, actor_url=by)


def _read_form(agent_id: int | None = None) -> FilterForm:
    return FilterForm.read(viewer().account_id, request.args, None if agent_id is None else my_agent(agent_id))


def _page_position() -> dict[str, str]:
    return {name: request.args.get(name, "") for name in ("before", "after")}
