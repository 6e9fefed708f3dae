"""Tokens at the agents' door: what the web process leaves signed, a worker makes true, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask.testing import FlaskClient
from sqlalchemy import select, text

from app.extensions import db, writing
from app.history.verify import verify
from app.keys.agent_keys import open_keys
from app.keys.bearer import authenticate
from app.keys.provision import provision_keys
from app.models import Agent, IdempotencyKey, SignedRequest, TokenRequest, User
from app.models.statement_errors import AgentStopped
from app.models.statement_log import current_of
from tests.api.conftest import Door, issue, open_door
from tests.api.looking import assert_refused
from tests.api.telling import ask_for_token
from tests.support.factories import make_agent
from tests.tokens.conftest import opens

EVERYTHING = ("read", "write", "author", "decide")


def stated(agent: Agent) -> set[str]:
    """The live tokens by the log, once a worker has touched the agent."""
    provision_keys(agent.id)
    return set(current_of(agent.id, agent.uuid).tokens)


def asked(agent: Agent, *scopes: str, replaces: str | None = None) -> tuple[str, str]:
    """A request of the first admin: its id, and the secret that they were shown."""
    with writing():
        user = db.session.get_one(User, 1)
        named: dict[str, Any] = {"name": "laptop", "scopes": scopes or ("read",), "replaces": replaces}
        request, secret = TokenRequest.make(Agent.lock(agent.id), user, by=user.actor, **named)
    return request.id, secret


def decide(door: Door, request_id: str, decision: str = "grant") -> Any:
    return door("POST", f"/token-requests/{request_id}/decision", {"decision": decision, "reason": "So be it."})


def refused(agent: Agent) -> list[str | None]:
    db.session.rollback()
    waiting = select(SignedRequest.refused).where(
        SignedRequest.agent_id == agent.id, SignedRequest.refused.is_not(None)
    )
    return list(db.session.scalars(waiting))


def test_an_agent_says_yes_and_the_token_works_once_a_worker_has_seen_it(door: Door) -> None:
    request_id, secret = asked(door.agent, "read", "write")
    (waiting,) = door.get("/token-requests")["requests"]
    assert (waiting["id"], waiting["name"], waiting["scopes"]) == (request_id, "laptop", ["read", "write"])
    assert waiting["requested_by"].startswith("user:")
    assert secret not in str(waiting)

    assert decide(door, request_id).json["status"] == "granted"
    assert not opens(door.agent, secret)
    assert secret.split("_")[1] in stated(door.agent)
    assert opens(door.agent, secret)
    (new, mine) = door.get("/tokens")["tokens"]
    assert (new["how"], new["by_token"], new["request"]) == ("agent", mine["id"], request_id)
    assert mine["is_this"]
    assert "who asked for it" in new["seen_by"]
    assert door.get("/token-requests")["requests"] == []
    assert len(door.get("/token-requests?status=all")["requests"]) == 1
    assert refused(door.agent) == []
    assert verify().ok


def test_a_no_makes_nothing_and_an_answer_counts_once(door: Door) -> None:
    request_id, secret = asked(door.agent)
    assert decide(door, request_id, "deny").json["status"] == "denied"
    assert decide(door, request_id).status_code == 409
    assert authenticate(secret) is None
    assert len(stated(door.agent)) == 1


def test_a_token_gives_no_scope_that_it_lacks(client: FlaskClient, door: Door) -> None:
    request_id, secret = asked(door.agent, "read", "author")
    narrow = Door(client, door.agent, issue(door.agent, ("read", "decide")))
    answer = decide(narrow, request_id)
    assert_refused(answer, 403, "beyond_this_token")
    assert "lacks author" in answer.json["detail"]
    made = narrow("POST", "/tokens", {"name": "more", "scopes": ["write"]})
    assert_refused(made, 403, "beyond_this_token")
    assert authenticate(secret) is None


def test_an_agent_makes_itself_a_token_and_is_told_it_once(door: Door) -> None:
    made = door("POST", "/tokens", {"name": "spare", "scopes": ["read"]})
    assert made.status_code == 201
    secret = made.json["token"]
    assert made.json["shown_to"] == "agent"
    assert made.json["id"] in stated(door.agent)
    assert opens(door.agent, secret)
    assert secret not in str(door.get("/tokens"))
    assert refused(door.agent) == []


def test_an_agent_replaces_the_token_that_others_saw(client: FlaskClient, door: Door) -> None:
    """What else the old one had made ends with it; a worker finds every step signed by a token that was live then."""
    door("POST", "/tokens", {"name": "somebody else's", "scopes": ["read"]})
    secret = door("POST", "/tokens", {"name": "mine", "scopes": list(EVERYTHING)}).json["token"]
    mine = Door(client, door.agent, secret)
    provision_keys(door.agent.id)
    ended = mine("POST", f"/tokens/{door.token.split('_')[1]}/revocation", {})

    assert ended.status_code == 200
    assert len(ended.json["ended_tokens"]) == 1
    assert stated(door.agent) == {secret.split("_")[1]}
    assert door("GET", "/me").status_code == 401
    assert mine.get("/me")["token"]["name"] == "mine"
    assert open_keys(door.agent).current_version == 2
    assert refused(door.agent) == []
    assert verify().ok


def test_a_token_that_ends_itself_ends_what_it_made_first(door: Door) -> None:
    child = door("POST", "/tokens", {"name": "child", "scopes": ["read"]}).json
    answer = door("POST", f"/tokens/{door.token.split('_')[1]}/revocation", {})
    assert answer.json["ended_tokens"] == [child["id"]]
    assert stated(door.agent) == set()
    assert refused(door.agent) == []


def test_a_token_that_agrees_to_its_own_rotation_is_stated_in_that_order(door: Door) -> None:
    request_id, secret = asked(door.agent, *EVERYTHING, replaces=door.token.split("_")[1])
    assert decide(door, request_id).status_code == 200
    assert stated(door.agent) == {secret.split("_")[1]}
    assert opens(door.agent, secret)
    assert refused(door.agent) == []


def test_one_agent_s_requests_and_tokens_are_not_there_for_another(client: FlaskClient, door: Door) -> None:
    other = open_door(client, "wren")
    request_id, _ = asked(door.agent)
    assert decide(other, request_id).status_code == 404
    assert other("POST", f"/tokens/{door.token.split('_')[1]}/revocation", {}).status_code == 404
    assert other.get("/token-requests?status=all")["requests"] == []
    assert door("GET", "/me").status_code == 200


def test_a_secret_is_told_again_to_the_token_that_asked_and_to_no_other(client: FlaskClient, door: Door) -> None:
    """The kept answer is sealed; a token of fewer scopes that knows the word does not get one of more."""
    word = {"Idempotency-Key": "spare"}
    body = {"name": "spare", "scopes": ["read"]}
    first = door("POST", "/tokens", body, headers=word)
    again = door("POST", "/tokens", body, headers=word)
    assert again.json == first.json
    assert again.headers["Idempotent-Replayed"] == "true"

    narrow = Door(client, door.agent, issue(door.agent, ("decide",)))
    answer = narrow("POST", "/tokens", body, headers=word)
    assert_refused(answer, 422, "idempotency_key_reused")
    assert first.json["token"] not in answer.text
    db.session.rollback()
    (kept,) = db.session.scalars(select(IdempotencyKey))
    assert kept.answer is not None
    assert first.json["token"].encode() not in kept.answer.at_rest


FORGED: dict[str, Callable[[Agent, str], tuple[str, dict[str, Any]]]] = {
    "another key": lambda agent, _: ("public_key = :value", {"value": b"\x09" * 32}),
    "another secret": lambda agent, _: ("token_hash = :value", {"value": b"\x09" * 32}),
    "another signer": lambda agent, _: ("signing_key = :value", {"value": b"\x09" * 32}),
    "more scopes": lambda agent, _: ("scopes = :value", {"value": '["read", "write"]'}),
}


@pytest.mark.parametrize("how", FORGED)
def test_a_yes_to_a_row_that_no_web_process_signed_seals_nothing(door: Door, how: str) -> None:
    """Put in place after the web process signed it, before the agent reads it: the agent's YES is to the forgery."""
    request_id, secret = asked(door.agent)
    change, value = FORGED[how](door.agent, request_id)
    with writing() as session:
        session.execute(text(f"UPDATE token_requests SET {change} WHERE id = :id"), value | {"id": request_id})
    assert decide(door, request_id).status_code == 200

    with pytest.raises(AgentStopped):
        provision_keys(door.agent.id)
    db.session.rollback()
    assert current_of(door.agent.id, door.agent.uuid).answers == []
    sealed = db.session.execute(text("SELECT DISTINCT reader FROM agent_keys")).scalars().all()
    assert (b"\x09" * 32).hex() not in sealed
    assert not opens_quietly(door.agent, secret)


def opens_quietly(agent: Agent, secret: str) -> bool:
    """Whether its keys are sealed to it, of an agent that is stopped."""
    db.session.rollback()
    readers = db.session.execute(text("SELECT DISTINCT reader FROM agent_keys WHERE agent_id = :id"), {"id": agent.id})
    row = db.session.execute(
        text("SELECT public_key FROM token_requests WHERE public_id = :id"), {"id": secret.split("_")[1]}
    ).scalar_one()
    return bytes(row).hex() in set(readers.scalars())


def test_a_row_of_a_token_that_nobody_stated_gets_no_keys_and_decides_nothing(client: FlaskClient, door: Door) -> None:
    """Whoever writes to the database puts in a token of their own."""
    thief = make_agent("thief")
    secret = issue(thief)
    request_id = ask_for_token(door.agent)
    with writing() as session:
        session.execute(
            text("UPDATE agent_tokens SET agent_id = :mine WHERE agent_id = :theirs"),
            {"mine": door.agent.id, "theirs": thief.id},
        )
    with pytest.raises(AgentStopped):
        provision_keys(door.agent.id)
    forged = Door(client, door.agent, secret)
    assert forged("GET", "/memories").status_code == 503
    assert decide(forged, request_id).status_code == 503
    with pytest.raises(AgentStopped):
        provision_keys(door.agent.id)
