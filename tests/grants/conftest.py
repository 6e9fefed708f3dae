"""An agent with something to hide, the admins who may ask, and a model that answers as it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask

from app.asking.calls import Dependencies
from app.extensions import db
from app.grants.asking import ask_agent
from app.grants.request import WantedException, request_access
from app.models import COMMAND_LINE, AccessGrant, Agent, GrantCategory, User
from app.models.user import ADMIN
from tests.support.factories import HOME, make_agent, make_user, remember
from tests.support.scripted import Scripted, ScriptedClient, ScriptedClients

SECRET = "Ann hides the key under the blue stone."
WISH = WantedException(GrantCategory.DEBUGGING, "She repeats herself", 15)


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent("wren", system_prompt="You are Wren.")
    remember(made, SECRET, "Ann likes tea.", "Bob moved to Oslo.")
    return made


@pytest.fixture
def people(app: Flask) -> Callable[..., User]:
    def make(email: str, role: str = ADMIN, account_id: int = HOME) -> User:
        return make_user(email, role, account_id=account_id)

    return make


@pytest.fixture
def ann(people: Callable[..., User]) -> User:
    return people("ann@example.org")


def put(
    agent: Agent, user: User, *replies: Scripted, wish: WantedException = WISH
) -> tuple[AccessGrant, ScriptedClient]:
    """Ask for an exception, and let the scripted model answer."""
    grant = request_access(agent.id, wish, for_user=user, by=user.actor)
    client = ScriptedClient(*replies)
    ask_agent(grant.id, Dependencies(ScriptedClients(client), pause=lambda _: None, monotonic=lambda: 0.0))
    return reload(grant), client


def reload(grant: AccessGrant) -> AccessGrant:
    db.session.rollback()
    return db.session.get_one(AccessGrant, grant.id, populate_existing=True)


def rows(query: str, **values: Any) -> list[Any]:
    db.session.rollback()
    return list(db.session.execute(db.text(query), values))


__all__ = ["COMMAND_LINE", "SECRET", "WISH", "put", "reload", "rows"]
