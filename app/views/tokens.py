"""The tokens of an agent: made and rotated here, shown in that one answer, and revoked for good."""

from __future__ import annotations

from flask import render_template, request, url_for
from flask.typing import ResponseReturnValue

from app.errors import Invalid
from app.models import AgentToken
from app.models.key import clean_scopes
from app.silo import parse_token
from app.values.text import clean_name
from app.views.access import changing_agent, my_agent, post_act, signed_in_pages
from app.views.answers import answer_act, page
from app.views.live import parts_of
from app.views.shown.agent import MadeToken, TokenForm, TokensPage
from tasks import keys

blueprint = signed_in_pages("tokens", __name__)


@page(blueprint, "/agents/<int:agent_id>/tokens", "agents/tokens.html")
def index(agent_id: int) -> TokensPage:
    return TokensPage(my_agent(agent_id))


@post_act(blueprint, "/agents/<int:agent_id>/tokens")
def create(agent_id: int) -> ResponseReturnValue:
    agent = my_agent(agent_id)
    form = _read_form()
    if form.errors:
        return _render_page(TokensPage(agent, form=form), 422)
    with changing_agent(agent_id) as (locked, actor):
        token = AgentToken.issue(locked, by=actor, name=form.name, scopes=form.scopes)
    return _show_once(agent_id, clean_name(form.name), token)


@post_act(blueprint, "/agents/<int:agent_id>/tokens/<token_id>/revoke")
def revoke(agent_id: int, token_id: str) -> ResponseReturnValue:
    with changing_agent(my_agent(agent_id).id) as (agent, actor):
        token = AgentToken.lock(agent, token_id)
        was_live = token.revoke(agent, by=actor)
    words = f"The token {token.name} is revoked." if was_live else f"The token {token.name} was revoked already."
    to, tone = url_for("tokens.index", agent_id=agent_id), "success" if was_live else "info"
    return answer_act(words, to=to, tone=tone, parts=lambda: parts_of("tokens", my_agent(agent_id)))


@post_act(blueprint, "/agents/<int:agent_id>/tokens/<token_id>/rotate")
def rotate(agent_id: int, token_id: str) -> ResponseReturnValue:
    with changing_agent(my_agent(agent_id).id) as (agent, actor):
        old = AgentToken.lock(agent, token_id)
        token = old.rotate(agent, by=actor)
    return _show_once(agent_id, old.name, token, replaced=token_id)


def _show_once(agent_id: int, name: str, token: str, *, replaced: str = "") -> ResponseReturnValue:
    """The token is in this one answer and nowhere else: not in a redirect, a session or a log."""
    keys.enqueue(agent_id)
    parsed = parse_token(token)
    if parsed is None:
        raise RuntimeError("a new token does not parse")
    made = MadeToken(name, parsed[0], token, replaced)
    return _render_page(TokensPage(my_agent(agent_id), made=made), 201)


def _render_page(shown: TokensPage, status: int) -> ResponseReturnValue:
    return render_template("agents/tokens.html", page=shown, json_url=f"{shown.url}.json"), status


def _read_form() -> TokenForm:
    name, scopes = request.form.get("name", "")[:200], request.form.getlist("scope")
    errors: dict[str, str] = {}
    for field, check, given in (("name", clean_name, name), ("scope", clean_scopes, scopes)):
        try:
            check(given)
        except Invalid as error:
            errors[field] = error.sentence
    return TokenForm(name, scopes, errors)
