"""Idempotency keys: what is sent twice is done once, and answered alike; what is kept for that is sealed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import func, select

import tasks.celery
from app.api.memories import SavedMemory
from app.extensions import db
from app.keys.agent_keys import open_keys
from app.models import IdempotencyKey, Intake, Memory, Refinement
from tasks.upkeep import drop_old_answers
from tests.api.conftest import Door, issue, open_door
from tests.api.looking import assert_refused, unchanged
from tests.api.telling import CONVERSATION, ask_to_look
from tests.support.canary import assert_nowhere_at_rest, canary
from tests.support.clock import FakeClock
from tests.support.factories import remember

NOTE = {"content": "It rained.", "type": "journal"}
KEY = {"Idempotency-Key": "5f0c2a"}


def count(model: type[Any]) -> int:
    db.session.rollback()
    return db.session.scalar(select(func.count()).select_from(model)) or 0


def test_a_request_sent_twice_is_done_once_and_answered_alike(door: Door) -> None:
    first = door("POST", "/memories", NOTE, headers=KEY)
    second = unchanged(lambda: door("POST", "/memories", NOTE, headers=KEY))

    assert (first.status_code, second.status_code) == (201, 201)
    assert first.data == second.data
    assert "Idempotent-Replayed" not in first.headers
    assert second.headers["Idempotent-Replayed"] == "true"
    assert count(Memory) == 1
    assert door("POST", "/memories", NOTE).json["id"] != first.json["id"]


def test_it_holds_for_every_kind_of_post(door: Door) -> None:
    remember(door.agent, "Ann likes tea.")
    request_id = ask_to_look(door.agent)
    posts: dict[str, Any] = {
        "/conversations": {"messages": CONVERSATION},
        "/imports": {"data": "One line.", "format": "text"},
        "/refinements": {},
        f"/access-requests/{request_id}/decision": {"decision": "deny"},
    }
    for number, (path, body) in enumerate(posts.items()):
        headers = {"Idempotency-Key": str(number)}
        first = door("POST", path, body, headers=headers)
        second = unchanged(lambda path=path, body=body, headers=headers: door("POST", path, body, headers=headers))
        assert first.status_code in (200, 202), path
        assert (second.status_code, second.data) == (first.status_code, first.data)
        assert second.headers["Idempotent-Replayed"] == "true"
    assert (count(Intake), count(Refinement)) == (2, 1)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/memories", b'{"content": "It snowed.", "type": "journal"}'),
        ("/memories", b'{"type": "journal", "content": "It rained."}'),
        ("/conversations", b'{"content": "It rained.", "type": "journal"}'),
        ("/refinements", b"{}"),
    ],
)
def test_another_request_with_the_same_key_is_refused(door: Door, path: str, body: bytes) -> None:
    remember(door.agent, "Ann likes tea.")
    door("POST", "/memories", data=b'{"content": "It rained.", "type": "journal"}', headers=KEY)
    answer = unchanged(lambda: door("POST", path, data=body, headers=KEY))

    assert answer.status_code == 422
    if answer.json["code"] != "invalid":
        assert_refused(answer, 422, "idempotency_key_reused", "Nothing was written")


def test_keys_are_the_agent_s_own_and_serve_all_of_its_tokens(door: Door) -> None:
    first = door("POST", "/memories", NOTE, headers=KEY)
    other = open_door(door.client, "wren")
    theirs = other("POST", "/memories", NOTE, headers=KEY)
    again = Door(door.client, door.agent, issue(door.agent))("POST", "/memories", NOTE, headers=KEY)

    assert theirs.status_code == 201
    assert theirs.json["id"] != first.json["id"]
    assert (again.data, again.headers["Idempotent-Replayed"]) == (first.data, "true")


def test_many_at_once_do_it_once(web: Flask, door: Door) -> None:
    start = Barrier(8)

    def send(_: int) -> Any:
        mine = Door(web.test_client(), door.agent, door.token)
        start.wait()
        return mine("POST", "/memories", NOTE, headers=KEY)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(send, range(8)))

    done = [each for each in answers if each.status_code == 201]
    assert len({each.data for each in done}) == 1
    assert sum("Idempotent-Replayed" not in each.headers for each in done) == 1
    for each in answers:
        if each not in done:
            assert_refused(each, 409, "idempotency_key_in_use", "Look at what was done")
    assert count(Memory) == 1


def test_one_that_comes_while_it_is_being_done_is_told_so(
    web: Flask, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    with_pause(monkeypatch, lambda: seen.append(door("POST", "/memories", NOTE, headers=KEY)))
    other = Door(web.test_client(), door.agent, door.token)

    assert other("POST", "/memories", NOTE, headers=KEY).status_code == 201
    assert_refused(seen[0], 409, "idempotency_key_in_use")
    assert count(Memory) == 1


def with_pause(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], None]) -> None:
    """Once the next key is claimed, something else happens first, in another request."""
    claim = IdempotencyKey.claim

    def paused(*given: Any) -> Any:
        monkeypatch.setattr(IdempotencyKey, "claim", claim)
        claimed = claim(*given)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(meanwhile).result()
        return claimed

    monkeypatch.setattr(IdempotencyKey, "claim", paused)


def test_what_was_refused_may_be_sent_again(door: Door) -> None:
    """Here, once there is something to refine; and where only the body was wrong, with another one."""
    assert_refused(door("POST", "/refinements", {}, headers=KEY), 409, "ledger_empty")
    blank = {"content": " "}
    assert_refused(door("POST", "/memories", blank, headers={"Idempotency-Key": "b"}), 422, "invalid")
    assert count(IdempotencyKey) == 0

    remember(door.agent, "Ann likes tea.")
    answer = door("POST", "/refinements", {}, headers=KEY)
    assert answer.status_code == 202
    assert "Idempotent-Replayed" not in answer.headers
    assert door("POST", "/memories", NOTE, headers={"Idempotency-Key": "b"}).status_code == 201


def test_what_broke_stays_claimed_because_nobody_knows_what_was_done(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Memory, **_more: object) -> None:
        raise ValueError(canary("raised"))

    with monkeypatch.context() as patched:
        patched.setattr(SavedMemory, "of", broken)
        assert_refused(door("POST", "/memories", NOTE, headers=KEY), 500, "unexpected")
    assert count(Memory) == 1
    assert_refused(door("POST", "/memories", NOTE, headers=KEY), 409, "idempotency_key_in_use")


@pytest.mark.parametrize("key", ["", " ", "a ", " a", "x" * 201, "a\tb", "naïve", "a\x7f"])
def test_an_odd_key_is_refused(door: Door, key: str) -> None:
    answer = unchanged(lambda: door("POST", "/memories", NOTE, headers={"Idempotency-Key": key}))
    assert_refused(answer, 422, "invalid", "Idempotency-Key")
    assert door("POST", "/memories", NOTE, headers={"Idempotency-Key": "x  y" * 50}).status_code == 201


def test_other_methods_need_no_key(door: Door) -> None:
    for value in ("one", "two"):
        answer = door("PUT", "/settings/system_prompt", {"value": value}, headers=KEY)
        assert (answer.status_code, answer.json["value"]) == (200, value)
    assert door("GET", "/me", headers=KEY).status_code == 200
    assert count(IdempotencyKey) == 0


def test_an_answer_is_forgotten_after_a_day(
    app: Flask, door: Door, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks.celery, "flask_app", lambda: app)
    first = door("POST", "/memories", NOTE, headers=KEY)
    clock.advance(hours=24)
    drop_old_answers.apply()
    assert door("POST", "/memories", NOTE, headers=KEY).data == first.data
    clock.advance(microseconds=1)
    drop_old_answers.apply()
    assert count(IdempotencyKey) == 0
    assert door("POST", "/memories", NOTE, headers=KEY).json["id"] != first.json["id"]


def test_after_a_day_it_is_a_new_request_whether_or_not_a_worker_has_tidied_up(door: Door, clock: FakeClock) -> None:
    first = door("POST", "/memories", NOTE, headers=KEY)
    clock.advance(hours=24)
    assert door("POST", "/memories", NOTE, headers=KEY).headers["Idempotent-Replayed"] == "true"
    clock.advance(microseconds=1)
    anew = door("POST", "/memories", NOTE, headers=KEY)

    assert (anew.status_code, anew.json["id"] != first.json["id"]) == (201, True)
    assert "Idempotent-Replayed" not in anew.headers
    assert door("POST", "/memories", NOTE, headers=KEY).data == anew.data
    assert count(IdempotencyKey) == 1


def test_what_was_answered_can_not_be_given_back(door: Door) -> None:
    first = door("POST", "/memories", NOTE, headers=KEY)
    IdempotencyKey.give_back(door.agent.id, KEY["Idempotency-Key"])
    assert door("POST", "/memories", NOTE, headers=KEY).data == first.data
    assert count(Memory) == 1


def test_a_worker_is_told_hourly_to_forget_them() -> None:
    tasks.celery.app.loader.import_default_modules()
    entries = tasks.celery.app.conf.beat_schedule.values()
    (entry,) = [each for each in entries if each["task"] == drop_old_answers.name]
    assert entry["schedule"].total_seconds() == 3600


def test_what_is_kept_is_sealed_and_only_the_agent_opens_it(app: Flask, door: Door) -> None:
    said = {"content": canary("answer"), "type": "journal"}
    answer = door("POST", "/memories", said, headers=KEY)
    assert answer.json["content"] == canary("answer")

    assert_nowhere_at_rest(app)
    row = db.session.scalars(select(IdempotencyKey)).one()
    assert canary("answer") not in repr(row.answer)
    assert row.reveal(open_keys(door.agent)) == answer.text
    with pytest.raises(Exception, match=r"seal|open"):
        row.reveal(open_keys(open_door(door.client, "wren").agent))


def test_many_who_save_the_same_core_memory_at_once_save_one(web: Flask, door: Door) -> None:
    start = Barrier(8)

    def send(number: int) -> Any:
        mine = Door(web.test_client(), door.agent, door.token)
        start.wait()
        return mine(
            "POST", "/memories", {"content": "I promised to write." if number % 2 else " I promised to write. "}
        )

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(send, range(8)))

    assert sorted(each.status_code for each in answers) == [200] * 7 + [201]
    assert len({each.json["id"] for each in answers}) == count(Memory) == 1
