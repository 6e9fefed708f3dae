"""Agents: the list and what can be done to many, making one, its page, pausing and refining it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID, uuid4

from flask import abort, render_template, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy import select

from app.errors import Invalid, NotFound, Refused
from app.extensions import db, writing
from app.keys.tokens import issue_token
from app.models import Account, Actor, Agent, Mode, Trigger
from app.models.key import TokenOrigin
from app.models.user import ADMIN
from app.refinement.fleet import FILTERS, FilterRefused, Fleet
from app.refinement.pausing import set_paused, undo_pausing
from app.refinement.start import AlreadyRunning, start_refinement
from app.values.plural import count_nouns
from app.views.access import changing_agent, my_agent, needs, post_act, row_id, signed_in_pages, viewer
from app.views.answers import answer_act, is_htmx, page, redirect_to, wants_json
from app.views.errors import answer_error
from app.views.forms import AGENT_FIELDS, Form
from app.views.live import parts_of
from app.views.shown.agent import AgentPage, LedgerPage, RefinementsPage
from app.views.shown.agents import MOST_TYPED, AgentList
from app.views.shown.ledger import find_memory
from tasks import keys
from tasks import refinement as queue

blueprint = signed_in_pages("agents", __name__)

MOST_AT_ONCE = 200


class SelectionRefused(Invalid):
    """The selected agents can't be acted on together."""


@page(blueprint, "/agents", "agents/index.html")
def index() -> AgentList:
    return AgentList(viewer().account_id, request.args, after=request.args.get("after", "")[:80])


@page(blueprint, "/agents/<int:agent_id>", "agents/show.html")
def show(agent_id: int) -> AgentPage:
    """The summary; addresses of the ledger from when it stood here lead to its tab."""
    agent, wanted = my_agent(agent_id), _ledger_position()
    if any(wanted.values()) and not wants_json():
        abort(redirect_to(url_for("agents.ledger", agent_id=agent_id, **wanted)))
    return AgentPage(agent, **wanted)


@page(blueprint, "/agents/<int:agent_id>/ledger", "agents/ledger.html")
def ledger(agent_id: int) -> LedgerPage:
    """The sealed ledger; with `number`, the way to that memory's page."""
    agent, number, error = my_agent(agent_id), request.args.get("number", "")[:40], ""
    if number.strip():
        try:
            abort(redirect_to(url_for("memories.show", agent_id=agent_id, memory_id=find_memory(agent, number))))
        except NotFound as missing:
            if wants_json():
                raise
            error = missing.sentence
    return LedgerPage(agent, **_ledger_position(), number=number, error=error)


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
    return _set_paused(True)


@post_act(blueprint, "/agents/resume")
def resume_many() -> ResponseReturnValue:
    return _set_paused(False)


@post_act(blueprint, "/agents/acts/<uuid:act_id>/undo")
def undo_many(act_id: UUID) -> ResponseReturnValue:
    """Take back what one act paused or resumed, and nothing that somebody else did before or since."""
    user, new_act = viewer(), str(uuid4())
    undone = undo_pausing(user.account_id, str(act_id), by=user.actor, new_act=new_act)
    words = f"{count_nouns(undone.changed, 'agent')} {_PAUSED[undone.paused]} again."
    if undone.left:
        words += f" {count_nouns(undone.left, 'agent')} left alone: somebody paused or resumed them since."
    undo = url_for("agents.undo_many", act_id=new_act) if undone.changed else ""
    return answer_act(words, to=url_for("agents.index"), undo=undo, tone="info" if undone.left else "success")


@post_act(blueprint, "/agents/refinements")
def refine_many() -> ResponseReturnValue:
    chosen, refused = _chosen_agent_ids(most=MOST_AT_ONCE), list[str]()
    for agent_id in chosen:
        try:
            start_by_hand(agent_id, viewer().actor)
        except Refused as error:
            refused.append(error.sentence)
    words = f"{count_nouns(len(chosen) - len(refused), 'agent')} put on the queue."
    if refused:
        words += f" {count_nouns(len(refused), 'agent')} not: {' '.join(refused[:3])}"
    return answer_act(words, to=_list_url(), tone="warning" if refused else "success")


def _ledger_position() -> dict[str, Any]:
    return {name: request.args.get(name, "") for name in ("show", "after")}


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


_PAUSED = {True: "paused", False: "resumed"}


def _set_paused(paused: bool) -> ResponseReturnValue:
    chosen, user, act_id = _chosen_agent_ids(), viewer(), str(uuid4())
    changed = set_paused(user.account_id, chosen, paused, by=user.actor, act=act_id)
    words = f"{count_nouns(changed, 'agent')} {_PAUSED[paused]}."
    if len(chosen) > changed:
        words += f" {count_nouns(len(chosen) - changed, 'agent')} needed no change."
    undo = url_for("agents.undo_many", act_id=act_id) if changed else ""
    return answer_act(words, to=_list_url(), undo=undo, tone="success" if changed else "info")


def _chosen_agent_ids(most: int | None = None) -> Sequence[int]:
    """The selected agents, or all that match, of this account. Raises SelectionRefused or NotFound, before anything
    is done."""
    ids = _matching_ids() if _selects_all() else _selected_ids()
    if not ids:
        raise SelectionRefused("No agents selected. Select at least one.")
    most = most if _selects_all() else MOST_AT_ONCE
    if most is not None and len(ids) > most:
        raise SelectionRefused(f"{len(ids):,} agents selected. Select at most {most}.", "Nothing was changed.")
    return ids


def _matching_ids() -> Sequence[int]:
    """All that the list shows on its pages, as they are now."""
    try:
        return Fleet.read(viewer().account_id, _filters()).ids()
    except FilterRefused as error:
        raise SelectionRefused(error.sentence, "Nothing was changed.") from None


def _selected_ids() -> Sequence[int]:
    typed = list(dict.fromkeys(map(row_id, request.form.getlist("agent"))))
    mine = select(Agent.id).where(Agent.account_id == viewer().account_id, Agent.id.in_(typed[: MOST_AT_ONCE + 1]))
    known = set(db.session.scalars(mine))
    if known != {*typed[: MOST_AT_ONCE + 1]}:
        raise NotFound("There is no such agent in this account.", "Nothing was changed.")
    return typed


def _selects_all() -> bool:
    return bool(request.form.get("all"))


def _filters() -> dict[str, str]:
    return {name: request.form.get(name, "").strip()[:MOST_TYPED] for name in FILTERS}


def _list_again(problem: str = "") -> str:
    shown = AgentList(viewer().account_id, request.form, after=request.form.get("after", "")[:80])
    shown.selected, shown.problem = _selected_ids(), problem
    shown.selects_all = _selects_all()
    return render_template("agents/index.html", page=shown, json_url=f"{url_for('agents.index')}.json")


def _list_url() -> str:
    """The list as it was looked at."""
    typed = _filters() | {"after": request.form.get("after", "")[:80]}
    kept: dict[str, Any] = {name: value for name, value in typed.items() if value}
    return url_for("agents.index", **kept)
