"""Import through the web: checked whole, sealed at once to the master key, taken in by the worker; and export."""

from __future__ import annotations

from io import BytesIO
from threading import BoundedSemaphore

import pytest
from flask import Flask
from sqlalchemy import select
from werkzeug.test import TestResponse

from app.exchange.taking_in import take_in
from app.extensions import db
from app.models import Agent, Intake, IntakeStatus
from app.views.export import MOST_AT_ONCE
from tests.cli.conftest import Whetstone, whetstone  # noqa: F401 - a fixture
from tests.exchange.files import CANARY, agent_file, block, written
from tests.support.factories import make_agent, remember
from tests.views.conftest import Browser

LONG = b"".join(b'{"content": "' + f"{number:05} ".encode() * 1500 + b'"}\n' for number in range(300))
LINES = b'{"content": "Ann likes tea."}\n{"content": "Bob likes rum.", "tags": ["bob"], "constitutional": true}\n'


@pytest.fixture
def agent(app: Flask) -> Agent:
    return make_agent()


def upload(admin: Browser, agent: Agent, content: bytes) -> int:
    file = (BytesIO(content), "memories.jsonl")
    return admin.post(f"/agents/{agent.id}/imports", {"file": file}).status_code


def intake() -> Intake | None:
    db.session.rollback()
    return db.session.scalar(select(Intake).execution_options(populate_existing=True))


def test_what_is_uploaded_is_sealed_until_the_worker_takes_it_in(admin: Browser, agent: Agent) -> None:
    assert upload(admin, agent, LINES) == 303

    waiting = intake()
    assert waiting is not None
    assert waiting.status == IntakeStatus.WAITING
    assert b"Ann" not in (waiting.sealed or b"")
    assert "An import waits for a worker." in admin.get(f"/agents/{agent.id}/imports").text
    take_in(waiting.id)
    taken = intake()
    assert taken is not None
    assert (taken.status, taken.imported, taken.sealed) == (IntakeStatus.TAKEN, 2, None)
    page = admin.get(f"/agents/{agent.id}/imports").text
    assert "2 imported" in page
    assert admin.get(f"/agents/{agent.id}.json").json["core_count"] == 2  # type: ignore[index]


def test_one_broken_line_of_a_thousand_refuses_all_and_is_named(admin: Browser, agent: Agent) -> None:
    lines = [b'{"content": "Memory."}\n'] * 1000
    lines[500] = b'{"content": \n'
    answer = admin.post(f"/agents/{agent.id}/imports", {"file": (BytesIO(b"".join(lines)), "x.jsonl")})

    assert answer.status_code == 422
    assert "Line 501: It is not well-formed JSON" in answer.text
    assert intake() is None


@pytest.mark.parametrize("content", [b"", b"\n\n", b'{"content": "   "}', b'{"content": "a\\u0000b"}', b"\xff\xfe"])
def test_what_can_not_be_memories_is_refused(admin: Browser, agent: Agent, content: bytes) -> None:
    assert upload(admin, agent, content) == 422
    assert intake() is None


def test_no_file_is_no_import(admin: Browser, agent: Agent) -> None:
    answer = admin.post(f"/agents/{agent.id}/imports")

    assert answer.status_code == 422
    assert "No file was chosen" in answer.text


def test_a_file_that_is_too_large_is_refused_in_a_sentence(
    admin: Browser, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.views.frame.MAX_FILE_BYTES", 10_000)
    answer = send_raw(admin, agent, LINES * 200)

    assert answer.status_code == 413
    assert "larger than allowed" in answer.text
    assert intake() is None


def test_the_toast_says_what_was_recognised_and_what_is_left_out(admin: Browser, agent: Agent) -> None:
    document = written(agent_file(block("human", CANARY)))

    answer = admin.press(f"/agents/{agent.id}/imports", {"file": (BytesIO(document), f"{CANARY}.txt")})

    assert answer.headers["HX-Redirect"] == f"/agents/{agent.id}/imports"
    said = admin.get(f"/agents/{agent.id}/imports").text
    assert "Detected format: a Letta agent file. 1 memory is checked and sealed." in said
    assert "Left out: 3 messages, 1 system prompt, 2 tools. A worker takes them in now." in said
    waiting = intake()
    assert waiting is not None
    take_in(waiting.id)
    later = admin.get(f"/agents/{agent.id}/imports").text
    assert "1 imported" in later
    assert "Left out: 3 messages, 1 system prompt, 2 tools." in later
    assert CANARY not in said + later
    (told,) = admin.get(f"/agents/{agent.id}/imports.json").json["imports"]  # type: ignore[index]
    assert (told["format"], told["left_out"]) == ("af", {"messages": 3, "system_prompts": 1, "tools": 2})


@pytest.mark.parametrize("chosen", ["text", ""])
def test_the_form_can_say_what_a_file_is(admin: Browser, agent: Agent, chosen: str) -> None:
    file = (BytesIO(b"Ann likes tea.\nBob likes rum.\n"), "notes.md")

    answer = admin.post(f"/agents/{agent.id}/imports", {"file": file, "format": chosen})

    waiting = intake()
    assert answer.status_code == (303 if chosen else 422)
    assert (waiting.format if waiting else None) == (chosen or None)
    assert ("its name does not say what it is" in answer.text) is not bool(chosen)


def test_a_format_that_there_is_not_is_refused(admin: Browser, agent: Agent) -> None:
    answer = admin.post(f"/agents/{agent.id}/imports", {"file": (BytesIO(LINES), "x.jsonl"), "format": "yaml"})

    assert answer.status_code == 422
    assert "There is no such format." in answer.text
    assert intake() is None


def test_what_is_wrong_in_an_agent_file_is_named_without_its_content(admin: Browser, agent: Agent) -> None:
    blocks = [block("human", [CANARY], number) for number in range(12)]

    answer = admin.post(f"/agents/{agent.id}/imports", {"file": (BytesIO(written(agent_file(*blocks))), "x.af")})

    assert answer.status_code == 422
    assert "Blocks item 1: The content must be text." in answer.text
    assert "And 2 more items." in answer.text
    assert CANARY not in answer.text


def test_the_blind_record_is_that_of_the_command_line(
    auditor: Browser,
    agent: Agent,
    whetstone: Whetstone,  # noqa: F811
) -> None:
    remember(agent, CANARY, CANARY, tags=["bird"])
    whetstone("refine", agent.name, "--mode", "dedup_only", "--wait")

    for query, options in (("", ()), ("?discarded=1", ("--discarded",))):
        answer = auditor.get(f"/agents/{agent.id}/memories.jsonl{query}")
        assert answer.text == whetstone("memories", "export", agent.name, *options).out
        assert answer.headers["Content-Type"] == "application/jsonl; charset=utf-8"
        assert answer.headers["Content-Disposition"] == f'attachment; filename="memories-agent-{agent.id}.jsonl"'
        assert answer.headers["Cache-Control"] == "no-store"
        assert CANARY not in answer.text
    assert answer.text.count("\n") == 2


def test_the_blind_record_is_for_this_accounts_readers_only(
    stranger: Browser, neighbour: Browser, auditor: Browser, agent: Agent
) -> None:
    path = f"/agents/{agent.id}/memories.jsonl"

    assert auditor.get(path).text == ""
    assert neighbour.get(path).status_code == 404
    assert stranger.get(path).status_code == 302
    assert path in auditor.get(f"/agents/{agent.id}/imports").text


def test_only_so_many_files_are_sent_at_once(auditor: Browser, agent: Agent, web: Flask) -> None:
    remember(agent, "Ann likes tea.")
    path = f"/agents/{agent.id}/memories.jsonl"
    places = web.extensions.setdefault("exports", BoundedSemaphore(MOST_AT_ONCE))
    for _ in range(MOST_AT_ONCE):
        assert places.acquire(blocking=False)

    assert auditor.get(path).status_code == 429
    places.release()
    assert auditor.get(path).status_code == 200


def test_only_who_may_import_can_send_much(auditor: Browser, stranger: Browser, agent: Agent) -> None:
    for person in (auditor, stranger):
        assert send_raw(person, agent, LONG).status_code == 413


def test_uploads_are_taken_whole_and_never_touch_the_disk(
    admin: Browser, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a temporary file was made")

    for name in ("SpooledTemporaryFile", "TemporaryFile"):
        monkeypatch.setattr(f"tempfile.{name}", refuse)
        monkeypatch.setattr(f"werkzeug.formparser.{name}", refuse, raising=False)

    assert send_raw(admin, agent, LONG).status_code == 303
    waiting = intake()
    assert waiting is not None
    assert len(waiting.sealed or b"") > len(LONG)


def send_raw(person: Browser, agent: Agent, content: bytes) -> TestResponse:
    """An upload whose body is made here: the test client would use a temporary file itself."""
    head = b'--X\r\nContent-Disposition: form-data; name="file"; filename="m.jsonl"\r\n\r\n'
    return person.client.post(
        f"/agents/{agent.id}/imports",
        data=head + content + b"\r\n--X--\r\n",
        content_type="multipart/form-data; boundary=X",
        headers={"X-CSRFToken": person.token},
    )
