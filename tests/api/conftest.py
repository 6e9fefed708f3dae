"""An agent at its door: the web application, which holds no master key, and a client that carries the agent's token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from app.extensions import writing
from app.keys.agent_keys import open_keys, share_with_tokens
from app.keys.tokens import issue_token
from app.models import COMMAND_LINE, Agent
from app.models.key import SCOPES
from tests.refinement.soundness import assert_sound
from tests.support.factories import make_agent


@dataclass
class Door:
    """One agent with one token, as its program sees Whetstone."""

    client: FlaskClient
    agent: Agent
    token: str

    def __call__(self, method: str, path: str, json: Any = None, **more: Any) -> TestResponse:
        headers = {"Authorization": f"Bearer {self.token}", **more.pop("headers", {})}
        more.setdefault("buffered", True)  # a stream left unread would keep its application's context open
        return self.client.open(f"/api/v1{path}", method=method, json=json, headers=headers, **more)

    def get(self, path: str, **more: Any) -> Any:
        """The answer's body, when all is well."""
        answer = self("GET", path, **more)
        assert answer.status_code == 200, answer.text
        return answer.json

    def save(self, content: str, type_: str = "core", **more: Any) -> Any:
        answer = self("POST", "/memories", {"content": content, "type": type_, **more})
        assert answer.status_code in (200, 201), answer.text
        return answer.json


@pytest.fixture(autouse=True)
def sound(request: pytest.FixtureRequest) -> Iterator[None]:
    """Totals, states and chains are true after every test that has a database."""
    app: Flask | None = request.getfixturevalue("app") if "app" in request.fixturenames else None
    yield
    if app is not None:
        assert_sound(app)


@pytest.fixture
def client(web: Flask) -> FlaskClient:
    return web.test_client()


def open_door(client: FlaskClient, name: str, scopes: tuple[str, ...] = SCOPES, **fields: Any) -> Door:
    """A new agent and its door."""
    agent = make_agent(name, **fields)
    return Door(client, agent, issue(agent, scopes))


def issue(agent: Agent, scopes: tuple[str, ...] = SCOPES) -> str:
    """One more token, its keys sealed to it as the worker does."""
    with writing():
        locked = Agent.lock(agent.id)
        token = issue_token(locked, by=COMMAND_LINE, name=" ".join(scopes), scopes=scopes)
        share_with_tokens(locked, open_keys(locked))
    return token


@pytest.fixture
def door(client: FlaskClient) -> Door:
    return open_door(client, "ezra")
