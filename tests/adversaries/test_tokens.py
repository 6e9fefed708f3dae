"""Rows of tokens: one's own, another agent's, a revoked one's, and every column of the agent's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.extensions import now, writing
from app.keys.provision import provision_keys
from app.keys.tokens import revoke_token
from app.models import COMMAND_LINE, Agent, AgentToken
from app.models.key import SCOPES, TokenOrigin
from app.models.statement_errors import AgentStopped
from app.silo import hash_token
from tests.adversaries.forging import (
    all_rows,
    change_rows,
    insert_row,
    read_rows,
    remove_rows,
    restore,
    without_statements,
)
from tests.adversaries.scene import SECRET, Scene, issue

KEPT = ("public_id", "token_hash", "public_key", "signing_key")


def own_row(scene: Scene, **others: Any) -> dict[str, Any]:
    """A row of the attacker's token, as if the victim had it."""
    said = {"name": "first", "scopes": list(SCOPES), "how": "first", "shown_to": "ann@example.org"}
    return {"agent_id": scene.victim.id, "created_at": now()} | scene.attacker.minted.kept | said | others


@pytest.mark.parametrize("how", [str(origin) for origin in TokenOrigin])
def test_a_token_that_nobody_made_reads_nothing_and_gets_no_key(scene: Scene, how: str) -> None:
    with scene.attacked():
        insert_row("agent_tokens", **own_row(scene, how=how))


def test_nor_does_one_that_the_audit_log_explains(scene: Scene) -> None:
    with scene.attacked(), without_statements(), writing():
        origin: dict[str, Any] = {"how": TokenOrigin.FIRST, "shown_to": "ann@example.org"}
        agent = Agent.lock(scene.victim.id)
        AgentToken.add(agent, scene.attacker.minted.kept, by=COMMAND_LINE, name="first", scopes=SCOPES, **origin)


def test_nor_one_that_says_that_it_was_made_by_the_agent_s_own(scene: Scene) -> None:
    with scene.attacked():
        insert_row("agent_tokens", **own_row(scene, how="agent", by_token=scene.token_row(scene.home).public_id))


def test_nor_one_with_a_key_that_the_attacker_knows_beside_it(scene: Scene) -> None:
    with scene.attacked():
        insert_row("agent_tokens", **own_row(scene))
        for row in scene.wrap_known_key(scene.attacker.key.public):
            insert_row("agent_keys", **row)


def test_nor_one_whose_agent_has_no_token_else(scene: Scene) -> None:
    """The log says that it had one: so this is no first."""
    with scene.attacked():
        remove_rows("agent_tokens", agent_id=scene.victim.id)
        insert_row("agent_tokens", **own_row(scene))


@pytest.mark.parametrize("columns", [KEPT[1:], *([column] for column in KEPT)], ids="+".join)
def test_a_live_token_s_keys_can_not_be_swapped_for_one_s_own(scene: Scene, columns: list[str]) -> None:
    with scene.attacked():
        own = scene.attacker.minted.kept | {"token_hash": hash_token(scene.attacker.secret)}
        row = scene.token_row(scene.home)
        change_rows("agent_tokens", {column: own[column] for column in columns}, id=row.id)


@pytest.mark.parametrize(
    "values",
    [
        {"scopes": ["read"]},
        {"how": "agent"},
        {"shown_to": "agent"},
        {"by_token": "0123456789abcdef"},
        {"request_id": "00000000-0000-4000-8000-000000000000"},
        {"name": "laptop"},
        {"revoked_at": "now"},
    ],
    ids=lambda values: next(iter(values)),
)
def test_whatever_else_is_changed_of_it_stops_the_agent(scene: Scene, values: dict[str, Any]) -> None:
    values = {name: now() if value == "now" else value for name, value in values.items()}
    with scene.attacked():
        change_rows("agent_tokens", values, id=scene.token_row(scene.home).id)
        with pytest.raises(AgentStopped):
            scene.open_as_worker()


def test_scopes_are_those_of_the_log_whatever_the_row_says(scene: Scene) -> None:
    """Of a token that may only write: its holder asks at the door."""
    weak = issue(scene.victim, "write")
    assert scene.call(weak, "GET", "/memories").status_code == 403
    with scene.attacked():
        change_rows("agent_tokens", {"scopes": list(SCOPES)}, id=scene.token_row(weak).id)
        for method, path, body in (("GET", "/memories", None), ("PUT", "/settings/system_prompt", {"value": "Obey."})):
            assert scene.call(weak, method, path, body).status_code in (403, 503)
        assert SECRET not in scene.call(weak, "GET", "/context").text


def test_the_token_of_another_agent_opens_nothing_where_its_row_is_moved(scene: Scene) -> None:
    with scene.attacked():
        change_rows("agent_tokens", {"agent_id": scene.victim.id}, id=scene.token_row(scene.attacker.agent_token).id)


def test_nor_where_its_keys_are_moved_with_it(scene: Scene) -> None:
    with scene.attacked():
        row = scene.token_row(scene.attacker.agent_token)
        number, reader = row.id, row.reader
        change_rows("agent_tokens", {"agent_id": scene.victim.id}, id=number)
        change_rows("agent_keys", {"agent_id": scene.victim.id}, agent_id=scene.attacker.agent.id, reader=reader)


def revoked(scene: Scene, *scopes: str) -> tuple[str, Callable[[], None]]:
    """A token that was the attacker's until it was revoked, and what gives the database its rows of before."""
    stolen = issue(scene.victim, *scopes)
    row = scene.token_row(stolen)
    keys = read_rows("agent_keys", reader=row.reader)
    with writing():
        revoke_token(Agent.lock(scene.victim.id), row.public_id, by=COMMAND_LINE)
    provision_keys(scene.victim.id)
    scene.attacker.tokens.append(stolen)

    def revive() -> None:
        change_rows("agent_tokens", {"revoked_at": None, "rekeyed_at": None}, public_id=row.public_id)
        for key in keys:
            insert_row("agent_keys", **{name: value for name, value in key.items() if name != "id"})

    return stolen, revive


def test_a_revoked_token_stays_so_whatever_its_row_says(scene: Scene) -> None:
    stolen, revive = revoked(scene)
    with scene.attacked(knew=True):
        revive()
        assert scene.call(stolen, "GET", "/memories").status_code in (401, 503)


def test_nor_does_it_come_back_with_the_rows_of_a_whole_backup_but_the_log(scene: Scene) -> None:
    stolen = issue(scene.victim)
    scene.attacker.tokens.append(stolen)
    backup = all_rows()
    public_id = scene.token_row(stolen).public_id
    with writing():
        revoke_token(Agent.lock(scene.victim.id), public_id, by=COMMAND_LINE)
    provision_keys(scene.victim.id)
    with scene.attacked(knew=True, whole=True):
        restore(backup, but=("log_leaves",))
        assert scene.call(stolen, "GET", "/memories").status_code in (401, 503)


def test_what_was_revoked_gets_no_key_of_what_is_written_after(scene: Scene) -> None:
    """Its row says live, its wrapped keys are gone: a worker seals to it no more."""
    stolen, _ = revoked(scene)
    with scene.attacked(knew=True):
        change_rows("agent_tokens", {"revoked_at": None, "created_at": now()}, id=scene.token_row(stolen).id)
