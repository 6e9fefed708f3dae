"""A full disk at the doors: 507 with the sentence; what can be read is read; what was done is never called undone."""

from __future__ import annotations

import errno
import os

import pytest
from flask import Flask

from tests.api.conftest import Door
from tests.support.clock import FakeClock
from tests.support.full_disk import ENTRIES, full_disk
from tests.views.conftest import browser

SENTENCE = "The disk of the database is full; nothing was written. Free some space, then try again."
USES = "UPDATE ON agent_tokens"
ANSWERS = "UPDATE ON idempotency_keys"
NOTE = {"content": "It rained.", "type": "core"}


def test_a_change_is_answered_507_and_a_look_as_ever(web: Flask, door: Door, clock: FakeClock) -> None:
    clock.advance(minutes=5)
    with full_disk(web, ENTRIES, USES):
        answer = door("POST", "/memories", NOTE)
        assert (answer.status_code, answer.content_type) == (507, "application/problem+json")
        assert (answer.json["code"], answer.json["detail"]) == ("disk_full", SENTENCE)
        assert door.get("/memories")["memories"] == []
    assert door.save("Now there is room.")["id"]


def test_what_was_done_is_said_although_its_answer_can_t_be_kept(web: Flask, door: Door) -> None:
    key = {"Idempotency-Key": "5f0c2a"}
    with full_disk(web, ANSWERS):
        assert door("POST", "/memories", NOTE, headers=key).status_code == 201
    again = door("POST", "/memories", NOTE, headers=key)
    assert (again.status_code, again.json["code"]) == (409, "idempotency_key_in_use")
    assert len(door.get("/memories")["memories"]) == 1


def test_an_admin_is_told_in_a_toast_or_on_a_page(web: Flask, door: Door) -> None:
    admin = browser(web, "admin")
    with full_disk(web):
        page = admin.post("/agents/pause", {"agent": str(door.agent.id)})
        toast = admin.post("/agents/pause", {"agent": str(door.agent.id)}, headers={"HX-Request": "true"})
    for answer in (page, toast):
        assert answer.status_code == 507
        assert SENTENCE in answer.text
    assert "hx-partial" in toast.text


def test_a_file_that_finds_no_room_is_no_riddle(web: Flask, door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(**_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setitem(web.view_functions, "api.whoami", write)
    answer = door("GET", "/me")
    assert (answer.status_code, answer.json["code"]) == (507, "disk_full")
    assert answer.json["detail"].startswith("The disk of this server is full. Nothing was written")
