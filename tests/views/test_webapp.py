"""The agents' door does without what pages want done around each request, and people have no page there."""

from __future__ import annotations

import pytest
from flask import Flask

from app.api.operation import PREFIX
from app.views.frame import HEADERS
from app.views.webapp import DOOR
from tests.api.conftest import Door, client, door
from tests.test_statement_budgets import count
from tests.views.conftest import Browser

__all__ = ["client", "door"]


def test_nothing_but_operations_stands_at_the_door(web: Flask) -> None:
    at_the_door = {rule.endpoint for rule in web.url_map.iter_rules() if rule.rule.startswith(DOOR)}
    of_agents = {rule.endpoint for rule in web.url_map.iter_rules() if rule.endpoint.startswith("api.")}

    assert PREFIX.startswith(DOOR)
    assert at_the_door == of_agents


@pytest.mark.parametrize("path", ["/api/v1/me", "/api/v1/context", "/api/v1/nothing-here", "/api/"])
def test_a_cookie_opens_nothing_there_and_is_not_even_looked_at(admin: Browser, path: str) -> None:
    assert admin.get("/agents").status_code == 200

    answers = []
    assert count(lambda: answers.append(admin.get(path))) == 0
    (answer,) = answers
    assert answer.status_code in (401, 404)
    assert not {"Set-Cookie", "Vary", "Server-Timing"} & {*answer.headers.keys()}


@pytest.mark.parametrize("path", ["/context", "/nothing-here", "/memories/7"])
def test_its_answers_are_as_closed_as_those_of_pages(door: Door, path: str) -> None:
    answer = door("GET", path)

    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
