"""Receipts at the agent's door, and the public keys that anybody checks them with."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

import tasks.statements
from app.silo.notes import NoteVerifier
from app.statements.checkpointing import make_checkpoint
from app.statements.checks import settle_agent
from app.statements.receipts import check_receipt
from tests.api.conftest import Door, open_door
from tests.api.looking import NOBODY, assert_refused, unchanged
from tests.api.telling import ask_to_look
from tests.support.factories import remember

WELL_KNOWN = "/.well-known/whetstone.json"


@pytest.fixture
def worker(app: Flask, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A worker that makes a checkpoint at once, in an application of its own: the web's has no key."""
    asked: list[int] = []

    def cover(index: int, timeout: float = 5.0) -> bool:
        asked.append(index)
        with app.app_context():
            make_checkpoint()
        return True

    monkeypatch.setattr(tasks.statements, "wait_for_checkpoint", cover)
    return asked


def decide(door: Door, decision: str = "deny") -> str:
    """Answer a request to look; returns its id."""
    request_id = ask_to_look(door.agent)
    answer = door("POST", f"/access-requests/{request_id}/decision", {"decision": decision, "reason": "A secret why."})
    assert answer.status_code == 200, answer.text
    return request_id


def check(door: Door, receipt: dict[str, Any]) -> dict[str, Any]:
    """What a receipt proves, by the public keys alone."""
    keys = [NoteVerifier.parse(key["vkey"]) for key in door.client.get(WELL_KNOWN).json["signing_keys"]]  # type: ignore[index]
    file = f"{receipt['statement']}\n{receipt['proof']}".encode()
    return dict(check_receipt(file, *keys).said.body)


@pytest.mark.parametrize(("decision", "granted"), [("deny", False), ("grant", True)])
def test_an_answer_s_receipt_is_found_by_what_it_is_about(
    door: Door, worker: list[int], decision: str, granted: bool
) -> None:
    request_id = decide(door, decision)
    settle_agent(door.agent.id)

    receipt = door.get(f"/receipts/{request_id}")

    assert worker == [receipt["index"]]
    assert (receipt["kind"], receipt["subject"]) == ("exception-decided", f"exception:{request_id}")
    assert receipt["proof"].endswith(receipt["checkpoint"])
    said = check(door, receipt)
    assert (said["granted"], said["by_token"]) == (granted, door.token.split("_")[1])
    assert f"/token/{said['by_token']} " in receipt["statement"]
    assert "A secret why." not in str(receipt)
    assert door.get(f"/receipts/{receipt['index']}") == receipt
    assert worker == [receipt["index"]]


def test_an_answer_s_receipt_stays_that_of_the_answer(door: Door, worker: list[int]) -> None:
    request_id = decide(door, "grant")
    taken_back = door("POST", f"/access-requests/{request_id}/revocation")
    assert taken_back.status_code == 200, taken_back.text
    settle_agent(door.agent.id)

    kinds = [each["kind"] for each in door.get("/receipts?limit=2")["receipts"]]
    assert kinds == ["exception-ended", "exception-decided"]
    assert door.get(f"/receipts/{request_id}")["kind"] == "exception-decided"


def test_every_statement_in_the_list_has_a_receipt(door: Door, worker: list[int]) -> None:
    remember(door.agent, "Ann likes tea.")
    refinement = door("POST", "/refinements", {}).json["id"]
    decide(door)
    settle_agent(door.agent.id)

    pages: list[dict[str, Any]] = []
    following = None
    while not pages or following is not None:
        mark = "" if following is None else f"&before={following}"
        page = door.get(f"/receipts?limit=2{mark}")
        pages += page["receipts"]
        following = page["next"]

    kinds = [each["kind"] for each in pages]
    assert kinds == ["exception-decided", "own-request", "token-made", "model"]
    assert [each["answer"] for each in pages] == ["NO", None, None, None]
    for each in pages:
        receipt = door.get(f"/receipts/{each['index']}")
        assert {name: receipt[name] for name in ("index", "kind", "subject")}.items() <= each.items()
        check(door, receipt)
    assert door.get(f"/receipts/{refinement}")["kind"] == "own-request"


def test_what_no_worker_has_stated_yet_is_no_lost_answer(door: Door, client: FlaskClient, worker: list[int]) -> None:
    request_id = decide(door)

    answer = door("GET", f"/receipts/{request_id}")

    assert_refused(answer, 503, "receipt_pending", "It is signed")
    assert answer.headers["Retry-After"] == "1"
    assert_refused(open_door(client, "wren")("GET", f"/receipts/{request_id}"), 404, "not_found")


def test_without_a_worker_it_says_when_the_checkpoint_comes(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks.statements, "wait_for_checkpoint", lambda _: False)
    last = door.get("/receipts")["receipts"][0]["index"]

    answer = unchanged(lambda: door("GET", f"/receipts/{last}"))

    assert_refused(answer, 503, "receipt_pending", "It is in the log; the hourly checkpoint will cover it")
    assert answer.headers["Retry-After"] == "60"


def test_another_s_receipts_are_not_there(door: Door, client: FlaskClient, worker: list[int]) -> None:
    other = open_door(client, "wren")
    request_id = decide(door)
    settle_agent(door.agent.id)
    index = door.get(f"/receipts/{request_id}")["index"]

    for name in (request_id, index, NOBODY, 0, door.token.split("_")[1], door.agent.uuid):
        assert_refused(other("GET", f"/receipts/{name}"), 404, "not_found")
    assert {each["subject"] for each in other.get("/receipts")["receipts"]}.isdisjoint(
        each["subject"] for each in door.get("/receipts")["receipts"]
    )


def test_anybody_gets_the_public_keys_and_may_keep_them_for_a_while(client: FlaskClient, door: Door) -> None:
    make_checkpoint()
    answer = client.get(WELL_KNOWN)

    assert answer.headers["Cache-Control"] == "public, max-age=300"
    assert "Set-Cookie" not in answer.headers
    said = answer.json
    assert said is not None
    assert [key["from"] for key in said["signing_keys"]] == [0]
    key = NoteVerifier.parse(said["signing_keys"][0]["vkey"])
    assert key.name == f"whetstone/{said['installation']}"
    assert said["fingerprint"] == key.fingerprint
    assert said["checkpoint"].startswith(key.name)
