"""Import through the web: checked whole, sealed at once to the master public key, taken in by the worker."""

from __future__ import annotations

from io import BytesIO

import pytest
from flask import Flask
from sqlalchemy import select
from werkzeug.test import TestResponse

from app.extensions import db
from app.models import Agent, Intake, IntakeStatus
from app.models.intake import take_in
from tests.support.factories import make_agent
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
    assert "An import is on its way in." in admin.get(f"/agents/{agent.id}/imports").text
    take_in(waiting.id)
    taken = intake()
    assert taken is not None
    assert (taken.status, taken.imported, taken.sealed) == (IntakeStatus.TAKEN, 2, None)
    page = admin.get(f"/agents/{agent.id}/imports").text
    assert "2 taken in" in page
    assert admin.get(f"/agents/{agent.id}.json").json["core_count"] == 2  # type: ignore[index]


def test_one_broken_line_of_a_thousand_refuses_all_and_is_named(admin: Browser, agent: Agent) -> None:
    lines = [b'{"content": "Memory."}\n'] * 1000
    lines[500] = b'{"content": \n'
    answer = admin.post(f"/agents/{agent.id}/imports", {"file": (BytesIO(b"".join(lines)), "x.jsonl")})

    assert answer.status_code == 422
    assert "Line 501: it is not well-formed json" in answer.text.replace("It is", "it is").replace("JSON", "json")
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
    assert "larger than what is taken here" in answer.text
    assert intake() is None


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
