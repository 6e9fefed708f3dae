"""The tokens of an agent: asked for here, decided by the agent, shown in that one answer, and revoked for good."""

from __future__ import annotations

from uuid import UUID

from flask import render_template, request, url_for
from flask.typing import ResponseReturnValue

from app.errors import Invalid, Refused
from app.keys.tokens import revoke_token
from app.models import TokenRequest
from app.models.key import clean_scopes
from app.tokens.request import WantedToken, request_token, withdraw_request
from app.values.text import clean_name
from app.views.access import changing_agent, my_agent, my_row, post_act, signed_in_pages, signed_in_user, viewer
from app.views.answers import answer_act, page
from app.views.live import parts_of
from app.views.shown.token import ShownSecret, TokenForm, TokensPage
from tasks import keys
from tasks import tokens as queue

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
    return _ask(agent_id, WantedToken(form.name, form.scopes), form)


@post_act(blueprint, "/agents/<int:agent_id>/tokens/<token_id>/rotate")
def rotate(agent_id: int, token_id: str) -> ResponseReturnValue:
    wish = WantedToken.like(my_agent(agent_id), token_id)
    return _ask(agent_id, wish, TokenForm())


@post_act(blueprint, "/agents/<int:agent_id>/tokens/<token_id>/revoke")
def revoke(agent_id: int, token_id: str) -> ResponseReturnValue:
    with changing_agent(my_agent(agent_id).id) as (agent, actor):
        ended = revoke_token(agent, token_id, by=actor)
    keys.enqueue(agent_id)
    name = ended.token.name
    words = f"The token {name} is revoked." if ended.was_live else f"The token {name} was revoked already."
    words += f" With it ended {ended.with_it}." if ended.with_it else ""
    return _stay_on_page(agent_id, words, tone="success" if ended.was_live else "info")


@post_act(blueprint, "/token-requests/<uuid:request_id>/withdraw")
def withdraw(request_id: UUID) -> ResponseReturnValue:
    asked = my_row(TokenRequest, request_id)
    was_open = asked.is_open
    withdraw_request(asked.id, by=viewer().actor)
    words = f"The request for the token {asked.name} is taken back." if was_open else "It has ended already."
    return _stay_on_page(asked.agent_id, words, tone="success" if was_open else "info")


def _ask(agent_id: int, wish: WantedToken, form: TokenForm) -> ResponseReturnValue:
    """The secret is in this one answer and nowhere else: not in a redirect, a session or a log."""
    user = signed_in_user()
    try:
        asked, secret = request_token(agent_id, wish, for_user=user, by=user.actor)
    except Refused as error:
        return _render_page(TokensPage(my_agent(agent_id), form=form, refusal=error.sentence), error.http_status)
    queue.enqueue(asked.id)
    made = ShownSecret(asked.name, asked.public_id, secret, asked.id, asked.replaces or "")
    return _render_page(TokensPage(my_agent(agent_id), made=made), 201)


def _stay_on_page(agent_id: int, words: str, *, tone: str) -> ResponseReturnValue:
    to = url_for("tokens.index", agent_id=agent_id)
    return answer_act(words, to=to, tone=tone, parts=lambda: parts_of("tokens", my_agent(agent_id)))


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
