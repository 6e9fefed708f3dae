"""A stolen token of each scope: what every operation of the agents' door gives it, for its agent and for another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask

from app.api.operation import Operation
from app.api.operations import OPERATIONS
from app.models.key import SCOPES
from tests.adversaries.scene import LATER, Scene
from tests.adversaries.test_tokens import revoked
from tests.api.conftest import Door, open_door
from tests.api.conftest import issue as issue_to
from tests.api.test_mcp import over_http, speak
from tests.api.test_strangers import BODIES, NEEDED, NOTHING, QUERIES, call, named, something_of_each_kind
from tests.support.pages import Site, serving

pytestmark = pytest.mark.once

STOLEN = pytest.mark.parametrize("scopes", [*((scope,) for scope in SCOPES), SCOPES], ids="+".join)

DONE = "done"

NOT_NOW = {"already_running", "refused"}
"""Codes of what the scope allows and the state of things does not."""


@pytest.fixture
def site(web: Flask) -> Iterator[Site]:
    with serving(web) as made:
        yield made


@pytest.fixture
def door(web: Flask) -> Door:
    return open_door(web.test_client(), "ezra")


def ask_tools(site: Site, token: str, values: dict[str, object]) -> dict[str, str]:
    """Every operation as a tool: what each answers, `done` or the code of its refusal."""

    async def talk(client: Any) -> dict[str, str]:
        told = {}
        for operation in OPERATIONS:
            result = await client.call_tool(operation.name, arguments_of(operation, values))
            told[operation.name] = result.content[0].text.partition(":")[0] if result.is_error else DONE
        return told

    return dict(speak(over_http(site), token, talk))


def arguments_of(operation: Operation, values: dict[str, object]) -> dict[str, object]:
    place = {operation.at.name: values[operation.at.name]} if operation.at else {}
    return place | BODIES.get(operation.name, {}) | QUERIES.get(operation.name, {})


@STOLEN
def test_each_tool_gives_it_what_its_scopes_allow_and_of_another_agent_nothing(
    site: Site, door: Door, scopes: tuple[str, ...]
) -> None:
    """Exactly as over REST, which tests/api/test_strangers.py has."""
    known = something_of_each_kind(door)
    other = open_door(door.client, "wren")
    elsewhere = ask_tools(site, issue_to(other.agent, scopes), known)
    for operation in named():
        expected = "not_found" if operation.scope in scopes else "scope_missing"
        assert elsewhere[operation.name] == expected, operation.name
    own = ask_tools(site, issue_to(door.agent, scopes), known)
    refused = {name for name, code in own.items() if code == "scope_missing"}
    assert refused == {name for name, scope in NEEDED.items() if scope not in scopes}
    assert {own[name] for name in NEEDED.keys() - refused} <= {DONE, *NOT_NOW}, own


@STOLEN
def test_after_its_revocation_every_operation_refuses_it_whatever_rows_come_back(
    scene: Scene, scopes: tuple[str, ...]
) -> None:
    """Its row is live again, and the keys that were sealed to it are there: what is written now is for others."""
    stolen, revive = revoked(scene, *scopes)
    with scene.attacked(knew=True):
        revive()
        scene.save_as_victim()
        door = Door(scene.web.test_client(), scene.victim_now(), stolen)
        for operation in OPERATIONS:
            answer = call(door, operation, NOTHING)
            assert (answer.status_code, answer.json["code"]) in REFUSED, operation.name
            assert LATER not in answer.text


REFUSED = {(401, "unauthorized"), (503, "agent_stopped")}
