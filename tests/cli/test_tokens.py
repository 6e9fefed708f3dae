"""`whetstone agents token`: a token is printed once and works at once; a revoked one is out."""

from __future__ import annotations

import re

import pytest
from flask import Flask

from app.extensions import db
from app.keys.agent_keys import open_keys
from app.keys.bearer import authenticate
from app.keys.shredding import is_due
from app.models import Action, Agent, AgentToken, AuditLog
from app.silo import SealBroken, parse_token
from tests.cli.conftest import Whetstone
from tests.support.factories import make_agent


@pytest.fixture
def agent(app: Flask) -> Agent:
    return make_agent("wren")


def opens(agent: Agent, token: str) -> bool:
    db.session.rollback()
    parsed = parse_token(token)
    assert parsed is not None
    try:
        return open_keys(agent, parsed[1]).content_hash("tea") == open_keys(agent).content_hash("tea")
    except SealBroken:
        return False


def test_create_prints_a_token_that_opens_its_agent_s_keys_at_once(agent: Agent, whetstone: Whetstone) -> None:
    made = whetstone("agents", "token", "create", "wren", "--name", "laptop", "--scopes", "decide,read", "--json").json

    assert set(made) == {"id", "name", "scopes", "token"}
    assert (made["name"], made["scopes"]) == ("laptop", ["read", "decide"])
    assert made["token"].startswith(f"whet_{made['id']}_")
    assert opens(agent, made["token"])
    held = authenticate(made["token"])
    assert held is not None
    assert held.agent_id == agent.id


def test_create_gives_every_scope_unless_told(agent: Agent, whetstone: Whetstone) -> None:
    said = whetstone("agents", "token", "create", "wren")
    assert re.search(r"whet_[0-9a-f]{16}_\S{43}  \(shown only this once\)", said.out)
    assert "read, write, author, decide" in said.out
    listed = whetstone("agents", "token", "list", "wren")
    assert "command line" in listed.out
    assert "whet_" not in listed.out


@pytest.mark.parametrize("scopes", ["", ",", "read,rule", "READ", "all"])
def test_an_unknown_scope_or_none_is_wrong_usage(agent: Agent, whetstone: Whetstone, scopes: str) -> None:
    said = whetstone("agents", "token", "create", "wren", "--scopes", scopes)
    assert said.status == 2
    assert "read, write, author, decide" in said.err
    assert whetstone("agents", "token", "list", "wren", "--all", "--json").json == []


def test_a_name_that_can_not_be_one_is_wrong_usage(agent: Agent, whetstone: Whetstone) -> None:
    assert whetstone("agents", "token", "create", "wren", "--name", "x" * 81).status == 2


def test_list_shows_the_live_ones_and_all_when_asked(agent: Agent, whetstone: Whetstone) -> None:
    first = whetstone("agents", "token", "create", "wren", "--json").json
    second = whetstone("agents", "token", "create", "wren", "--name", "laptop", "--json").json
    whetstone("agents", "token", "revoke", "wren", first["id"])

    live = whetstone("agents", "token", "list", "wren", "--json").json
    everything = whetstone("agents", "token", "list", "wren", "--all", "--json").json

    assert [each["id"] for each in live] == [second["id"]]
    origin = {"how", "shown_to", "by_token", "request"}
    assert set(live[0]) == origin | {"id", "name", "scopes", "created_at", "last_used_at", "revoked_at"}
    assert (live[0]["how"], live[0]["shown_to"]) == ("command line", "command line")
    assert [(each["id"], each["revoked_at"] is None) for each in everything] == [
        (second["id"], True),
        (first["id"], False),
    ]
    assert first["token"] not in str(everything)
    assert "revoked 20" in whetstone("agents", "token", "list", "wren", "--all").out


def test_revoke_takes_an_id_its_beginning_or_a_name(agent: Agent, whetstone: Whetstone) -> None:
    made = [whetstone("agents", "token", "create", "wren", "--name", name, "--json").json for name in "abc"]

    assert whetstone("agents", "token", "revoke", "wren", made[0]["id"], "--json").json["changed"] is True
    assert whetstone("agents", "token", "revoke", "wren", made[1]["id"][:8]).status == 0
    last = whetstone("agents", "token", "revoke", "wren", "c")
    assert "It was the last one" in last.out
    assert [authenticate(each["token"]) for each in made] == [None, None, None]
    assert not opens(agent, made[0]["token"])
    assert not is_due()
    again = whetstone("agents", "token", "revoke", "wren", made[0]["id"], "--json")
    assert (again.status, again.json["changed"]) == (0, False)
    assert len(db.session.scalars(db.select(AuditLog).where(AuditLog.action == Action.TOKEN_REVOKE)).all()) == 3


def test_a_name_of_several_or_of_none_is_refused(agent: Agent, whetstone: Whetstone) -> None:
    for _ in range(2):
        whetstone("agents", "token", "create", "wren", "--name", "laptop")
    several = whetstone("agents", "token", "revoke", "wren", "laptop")
    assert several.status == 2
    assert "means several tokens" in several.err
    for which in ("desktop", "0000", "", "whet_"):
        none = whetstone("agents", "token", "rotate", "wren", which, "--json")
        assert (none.status, none.error["code"]) == (1, "not_found"), which
    assert len(whetstone("agents", "token", "list", "wren", "--json").json) == 2


def test_rotate_makes_another_like_it_and_the_old_one_is_out(agent: Agent, whetstone: Whetstone) -> None:
    old = whetstone("agents", "token", "create", "wren", "--name", "laptop", "--scopes", "read", "--json").json
    new = whetstone("agents", "token", "rotate", "wren", "laptop", "--json").json

    assert (new["name"], new["scopes"], new["replaced"]) == ("laptop", ["read"], old["id"])
    assert authenticate(old["token"]) is None
    assert not opens(agent, old["token"])
    assert opens(agent, new["token"])
    again = whetstone("agents", "token", "rotate", "wren", old["id"], "--json")
    assert (again.status, again.error["code"]) == (3, "refused")


def test_another_agent_s_token_is_not_found(agent: Agent, whetstone: Whetstone) -> None:
    make_agent("void")
    made = whetstone("agents", "token", "create", "wren", "--json").json
    assert whetstone("agents", "token", "revoke", "void", made["id"]).status == 1
    assert authenticate(made["token"]) is not None


def test_a_forgotten_agent_gets_none(agent: Agent, whetstone: Whetstone) -> None:
    whetstone("agents", "forget", "wren", "--yes-forget", "wren")
    said = whetstone("agents", "token", "create", "wren", "--json")
    assert (said.status, said.error["code"]) == (3, "agent_forgotten")
    assert db.session.scalars(db.select(AgentToken)).all() == []
