"""An agent erases one of its memories over REST: by a token that may decide; gone everywhere, with a receipt."""

from __future__ import annotations

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import select

from app.extensions import db
from app.history.erasing import MOST_A_DAY, find_due_data_keys, renew_data_key
from app.history.verify import verify
from app.keys.agent_keys import open_keys
from app.keys.shredding import shred_files
from app.models import WORKER, Action, AuditLog, ContentKey
from app.silo.sealed import version_of_key
from tests.api.conftest import Door, issue
from tests.refinement.driving import call, carry, say
from tests.support.canary import assert_nowhere, canary
from tests.support.factories import begin

RECEIPT = {"id", "erased_at", "by", "reason", "states", "made", "copies", "entry", "entry_hash"}


def erase(door: Door, number: int, **more: str) -> dict[str, object]:
    answer = door("POST", f"/memories/{number}/erase", more)
    assert answer.status_code == 200, answer.text
    found: dict[str, object] = answer.json
    return found


def test_it_is_gone_from_every_answer_and_named_where_asked_for_by_id(door: Door) -> None:
    one, two = door.save(canary("ledger")), door.save("Bob likes rum.")

    receipt = erase(door, one["id"], reason="It was a slip.")

    assert set(receipt) == RECEIPT
    assert (receipt["id"], receipt["states"], receipt["reason"]) == (one["id"], 1, "It was a slip.")
    for path in ("/memories", "/context", "/export", "/memories/search?query=sang"):
        shown = door("GET", path)
        assert shown.status_code == 200
        assert_nowhere(shown.data, path)
    assert [each["id"] for each in door.get("/memories")["memories"]] == [two["id"]]
    for method, path in (("GET", f"/memories/{one['id']}"), ("POST", f"/memories/{one['id']}/erase")):
        gone = door(method, path, {} if method == "POST" else None)
        assert (gone.status_code, gone.json["code"], gone.json["receipt"]) == (410, "memory_erased", receipt)
        assert gone.content_type == "application/problem+json"
    assert verify().ok


def test_only_a_token_that_may_decide_erases(client: FlaskClient, door: Door) -> None:
    number = door.save("Ann likes tea.")["id"]
    weak = Door(client, door.agent, issue(door.agent, ("read", "write", "author")))
    refused = weak("POST", f"/memories/{number}/erase", {})
    assert (refused.status_code, refused.json["code"]) == (403, "scope_missing")
    assert weak.get(f"/memories/{number}")["content"] == "Ann likes tea."


def test_it_is_refused_while_a_refinement_is_open_and_after_ten_a_day(door: Door) -> None:
    ids = [door.save(f"Number {number}.")["id"] for number in range(MOST_A_DAY + 1)]
    run = begin(door.agent)
    refused = door("POST", f"/memories/{ids[0]}/erase", {})
    assert (refused.status_code, refused.json["code"]) == (409, "refused")
    assert run.refinement.id in refused.json["detail"]
    run.tool.execute("complete", summary="Fine.")
    for number in ids[:MOST_A_DAY]:
        erase(door, number)
    refused = door("POST", f"/memories/{ids[-1]}/erase", {})
    assert (refused.status_code, refused.json["code"]) == (409, "too_many_erasures")


def test_a_stored_answer_that_quotes_it_is_gone_and_others_stay(door: Door) -> None:
    sent = {"json": {"content": canary("answer"), "type": "core"}, "headers": {"Idempotency-Key": "one"}}
    other = {"json": {"content": "Bob likes rum.", "type": "core"}, "headers": {"Idempotency-Key": "two"}}
    first, second = door("POST", "/memories", **sent), door("POST", "/memories", **other)
    receipt = erase(door, first.json["id"])

    again = door("POST", "/memories", **sent)
    assert (again.status_code, again.json["receipt"]) == (410, receipt)
    assert_nowhere(again.data, "the answer")
    kept = door("POST", "/memories", **other)
    assert (kept.json, kept.headers["Idempotent-Replayed"]) == (second.json, "true")


def test_a_worker_makes_the_new_data_key_and_the_token_reads_on(app: Flask, door: Door) -> None:
    gone, stays = door.save("Ann likes tea.")["id"], door.save("Bob likes rum.")["id"]
    erase(door, gone)
    with app.app_context():
        assert find_due_data_keys() == [door.agent.id]
        db.session.rollback()
        renew_data_key(door.agent.id, by=WORKER)
        assert shred_files()
        sealed = db.session.scalars(select(ContentKey.sealed).where(ContentKey.memory_id == stays)).one()
        db.session.rollback()
    assert version_of_key(sealed) == 2
    assert door.get(f"/memories/{stays}")["content"] == "Bob likes rum."
    assert door.save("Cy left.")["created"] is True


def test_no_prompt_of_a_later_refinement_holds_it(door: Door) -> None:
    number = door.save(canary("ledger"))["id"]
    door.save("Bob likes rum.")
    erase(door, number)
    search, end = call("search_memories", query="sang"), call("complete_refinement", summary="Fine.")
    done = carry(door.agent, say("YES"), search, end)
    assert done.status == "completed"
    assert_nowhere("".join(str(asked.messages) for asked in done.client.asked).encode(), "what the model was sent")


@pytest.mark.parametrize("wrong", [{"reason": "x" * 501}, {"reason": 5}, {"why": "?"}])
def test_what_is_malformed_erases_nothing(door: Door, wrong: dict[str, object]) -> None:
    number = door.save("Ann likes tea.")["id"]
    assert door("POST", f"/memories/{number}/erase", wrong).status_code == 422
    assert door.get(f"/memories/{number}")["content"] == "Ann likes tea."
    db.session.rollback()
    assert not db.session.scalars(select(AuditLog).where(AuditLog.action == Action.ERASE)).all()
    assert open_keys(door.agent).versions == [1]
