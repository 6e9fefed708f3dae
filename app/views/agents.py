"""Agents: the list and what can be done to many, making one, its page, pausing and refining it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flask import render_template, request, url_for
from flask.typing import ResponseReturnValue

from app.errors import Invalid, Refused
from app.extensions import writing
from app.keys.tokens import issue_token
from app.models import Account, Actor, Agent, Mode, Trigger
from app.models.key import TokenOrigin
from app.models.user import ADMIN
from app.refinement.start import AlreadyRunning, start_refinement
from app.values.plural import count_nouns
from app.views.access import changing_agent, my_agent, needs, post_act, row_id, signed_in_pages, viewer
from app.views.answers import answer_act, is_htmx, page, redirect_to, wants_json
from app.views.errors import answer_error
from app.views.forms import AGENT_FIELDS, Form
from app.views.live import parts_of
from app.views.shown.agent import LedgerPage, RefinementsPage
from app.views.shown.agents import AgentList
from tasks import keys
from tasks import refinement as queue

blueprint = signed_in_pages("agents", __name__)

MOST_AT_ONCE = 200
FILTERS = ("query", "state", "after")


class SelectionRefused(Invalid):
    """The selected agents can't be acted on together."""


@page(blueprint, "/agents", "agents/index.html")
def index() -> AgentList:
    asked = {name: request.args.get(name, "")[:80] for name in FILTERS}
    return AgentList(viewer().account_id, **asked)


@page(blueprint, "/agents/<int:agent_id>", "agents/show.html")
def show(agent_id: int) -> LedgerPage:
    return LedgerPage(my_agent(agent_id), show=request.args.get("show", ""), after=request.args.get("after", ""))


@page(blueprint, "/agents/<int:agent_id>/refinements", "agents/refinements.html")
def refinements(agent_id: int) -> RefinementsPage:
    wanted = {name: request.args.get(name, "")[:36] for name in ("show", "before")}
    return RefinementsPage(my_agent(agent_id), **wanted)


@blueprint.get("/agents/new")
@needs(ADMIN)
def new() -> ResponseReturnValue:
    return render_template("agents/new.html", form=Form.empty(AGENT_FIELDS))


@post_act(blueprint, "/agents")
def create() -> ResponseReturnValue:
    """The token is in this one answer and nowhere else: not in a redirect, a session or a log."""
    form = Form.read(AGENT_FIELDS, request.form)
    user = viewer()
    account_id, actor, email = user.account_id, user.actor, user.email
    try:
        values = form.checked_values()
        with writing():
            Account.lock(account_id)
            agent = Agent.create(account_id, by=actor, **values)
            token = issue_token(agent, by=actor, how=TokenOrigin.FIRST, shown_to=email)
    except (Invalid, Refused) as error:
        return render_template("agents/new.html", form=form.blame(error)), 422
    keys.enqueue(agent.id)
    return render_template("agents/created.html", agent=agent, token=token, shown_to=email), 201


@post_act(blueprint, "/agents/<int:agent_id>/refinements")
def refine(agent_id: int) -> ResponseReturnValue:
    agent = my_agent(agent_id)
    mode = Mode.DEDUP_ONLY if request.form.get("mode") == Mode.DEDUP_ONLY else Mode.FULL
    try:
        refinement_id = start_by_hand(agent.id, viewer().actor, mode)
    except AlreadyRunning as error:
        to = url_for("refinements.show", refinement_id=error.refinement_id)
        return answer_act("Already running: this is the open one. Nothing else was started.", to=to, tone="info")
    return redirect_to(url_for("refinements.show", refinement_id=refinement_id))


@post_act(blueprint, "/agents/<int:agent_id>/pause")
def pause(agent_id: int) -> ResponseReturnValue:
    name = _change_agent(my_agent(agent_id).id, Agent.pause)
    undo = url_for("agents.resume", agent_id=agent_id)
    return _stay_on_page(agent_id, f"{name} is paused: no refinement starts by itself.", undo)


@post_act(blueprint, "/agents/<int:agent_id>/resume")
def resume(agent_id: int) -> ResponseReturnValue:
    name = _change_agent(my_agent(agent_id).id, Agent.resume)
    return _stay_on_page(agent_id, f"{name} is resumed.", url_for("agents.pause", agent_id=agent_id))


@post_act(blueprint, "/agents/selection")
def show_selection() -> ResponseReturnValue:
    """What Enter on a box does without scripts: the same list with the same boxes checked. Nothing is done."""
    _chosen_agent_ids()
    return _list_again()


@blueprint.errorhandler(SelectionRefused)
def refuse_selection(error: SelectionRefused) -> ResponseReturnValue:
    """The list as it was, with its boxes checked and the reason above them."""
    if wants_json() or is_htmx():
        return answer_error(error.http_status, error.code, error.sentence)
    return _list_again(problem=error.sentence), error.http_status


@post_act(blueprint, "/agents/pause")
def pause_many() -> ResponseReturnValue:
    return _change_chosen(Agent.pause, "paused")


@post_act(blueprint, "/agents/resume")
def resume_many() -> ResponseReturnValue:
    return _change_chosen(Agent.resume, "resumed")


@post_act(blueprint, "/agents/refinements")
def refine_many() -> ResponseReturnValue:
    chosen, refused = _chosen_agent_ids(), list[str]()
    for agent_id in chosen:
        try:
            start_by_hand(agent_id, viewer().actor)
        except Refused as error:
            refused.append(error.sentence)
    words = f"{count_nouns(len(chosen) - len(refused), 'agent')} put on the queue."
    if refused:
        words += f" {count_nouns(len(refused), 'agent')} not: {' '.join(refused[:3])}"
    return answer_act(words, to=_list_url(), tone="warning" if refused else "success")


def start_by_hand(agent_id: int, actor: Actor, mode: Mode = Mode.FULL) -> str:
    """Start a refinement and put it on the queue; returns its id. Raises Refused."""
    refinement = start_refinement(agent_id, trigger=Trigger.ADMIN, by=actor, mode=mode)
    queue.enqueue(refinement.id)
    return refinement.id


def _change_agent(agent_id: int, change: Callable[..., None]) -> str:
    with changing_agent(agent_id) as (agent, actor):
        change(agent, by=actor)
    return agent.name


def _stay_on_page(agent_id: int, text: str, undo: str) -> ResponseReturnValue:
    to = url_for("agents.show", agent_id=agent_id)
    return answer_act(text, to=to, undo=undo, parts=lambda: parts_of("agent", my_agent(agent_id)))


def _change_chosen(change: Callable[..., None], done: str) -> ResponseReturnValue:
    """Each in a transaction of its own: one refusal leaves the others."""
    chosen = _chosen_agent_ids()
    for agent_id in chosen:
        _change_agent(agent_id, change)
    return answer_act(f"{count_nouns(len(chosen), 'agent')} {done}.", to=_list_url())


def _chosen_agent_ids() -> Sequence[int]:
    """The selected agents, all of this account. Raises SelectionRefused or NotFound before anything is done."""
    ids = _selected_ids()
    if not ids:
        raise SelectionRefused("No agents selected. Select at least one.")
    if len(ids) > MOST_AT_ONCE:
        raise SelectionRefused(f"{len(ids):,} agents selected. Select at most {MOST_AT_ONCE}.", "Nothing was changed.")
    return [my_agent(agent_id).id for agent_id in ids]


def _selected_ids() -> list[int]:
    return list(dict.fromkeys(map(row_id, request.form.getlist("agent"))))


def _list_again(problem: str = "") -> str:
    shown = AgentList(viewer().account_id, **{name: request.form.get(name, "")[:80] for name in FILTERS})
    shown.selected, shown.problem = _selected_ids(), problem
    return render_template("agents/index.html", page=shown, json_url=f"{url_for('agents.index')}.json")


def _list_url() -> str:
    """The list as it was looked at."""
    kept: dict[str, Any] = {name: request.form[name] for name in FILTERS if request.form.get(name)}
    return url_for("agents.index", **kept)
