"""An agent, the admins who want a token of it, and a model that answers as it is told."""

from __future__ import annotations

import pytest
from flask import Flask

from app.asking.calls import Dependencies
from app.extensions import db, writing
from app.keys.agent_keys import open_keys
from app.keys.bearer import Bearer, authenticate
from app.keys.provision import provision_keys
from app.keys.tokens import issue_token
from app.models import COMMAND_LINE, Agent, AgentToken, TokenRequest, User
from app.models.key import SCOPES
from app.models.user import ADMIN
from app.silo import SealBroken, parse_token
from app.tokens.asking import ask_about_token
from app.tokens.request import WantedToken, request_token
from tests.support.factories import make_agent, make_user, remember
from tests.support.scripted import Scripted, ScriptedClient, ScriptedClients

LAPTOP = WantedToken("laptop", ["read", "write"])


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent("ezra", model_id="openai/gpt-5", system_prompt="You are Ezra.")
    remember(made, "Ann likes tea.")
    return made


@pytest.fixture
def ann(app: Flask) -> User:
    return make_user("ann@example.org", ADMIN)


@pytest.fixture
def bob(app: Flask) -> User:
    return make_user("bob@example.org", ADMIN)


def ask(agent: Agent, user: User, wish: WantedToken = LAPTOP) -> tuple[TokenRequest, str]:
    """Ask for a token; nobody has answered yet."""
    return request_token(agent.id, wish, for_user=user, by=user.actor)


def think(request: TokenRequest, *replies: Scripted) -> ScriptedClient:
    """Let a worker ask the model, and seal the keys as it does after a YES."""
    client = ScriptedClient(*replies)
    dependencies = Dependencies(ScriptedClients(client), pause=lambda _: None, monotonic=lambda: 0.0)
    agent_id = ask_about_token(request.id, dependencies)
    if agent_id is not None:
        provision_keys(agent_id)
    return client


def state(request: TokenRequest) -> str:
    db.session.rollback()
    return str(db.session.get_one(TokenRequest, request.id, populate_existing=True).status)


def held(agent: Agent, *scopes: str) -> tuple[str, Bearer]:
    """A token of the agent, as it is presented."""
    with writing():
        secret = issue_token(Agent.lock(agent.id), by=COMMAND_LINE, scopes=scopes or SCOPES)
    provision_keys(agent.id)
    return secret, presented(secret)


def presented(secret: str) -> Bearer:
    bearer = authenticate(secret)
    assert bearer is not None
    return bearer


def opens(agent: Agent, secret: str) -> bool:
    """Whether the agent's keys are sealed to it."""
    db.session.rollback()
    parsed = parse_token(secret)
    assert parsed is not None
    try:
        return open_keys(agent, parsed[1]).content_hash("tea") == open_keys(agent).content_hash("tea")
    except SealBroken:
        return False


def row_of(secret: str) -> AgentToken:
    db.session.rollback()
    query = db.select(AgentToken).where(AgentToken.public_id == secret.split("_")[1])
    return db.session.scalars(query.execution_options(populate_existing=True)).one()
