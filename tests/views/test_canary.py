"""The silo on screen: every route, for every role, in every state of an exception, and what it may show."""

from __future__ import annotations

import io
import json
import logging
import os
import re
from collections.abc import Callable, Iterator
from html import unescape
from typing import Any
from urllib.parse import unquote

import pytest
from flask import Flask
from sqlalchemy.exc import OperationalError
from werkzeug.routing import Rule
from werkzeug.test import TestResponse

from app.extensions import db
from app.grants import opening
from app.models import AccessGrant, User
from app.models.user import ADMIN, OWNER
from tests.support.canary import assert_nowhere, assert_nowhere_at_rest, canary, places_in
from tests.support.factories import begin, make_agent, remember
from tests.support.life import LEDGER, SEALED, places_by_column, sealed_columns
from tests.views.conftest import Browser
from tests.views.crowd import COVERED, ROLES, Crowd, Person, gather
from tests.views.site import CONTENT, SIGN_IN, act_of, make_subject, routes

LONG_RUN = bool(os.environ.get("WHETSTONE_LONG"))
"""Every route × every role × every state, and each POST twice. Otherwise a page that names no exception is asked for in
a fifth of the states, each in turn; those without an exception send nonsense, those with a live one do each act."""

Heard = Callable[[], bytes]


@pytest.fixture
def heard(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Heard:
    """Everything that was logged and printed so far, at any level."""
    caplog.set_level(logging.DEBUG)
    return lambda: (caplog.text + "".join(capfd.readouterr())).encode()


@pytest.mark.once
@pytest.mark.timeout(600)
@pytest.mark.parametrize("role", ROLES)
def test_no_answer_shows_content_but_where_a_live_exception_of_that_very_person_covers_it(
    app: Flask, web: Flask, worker: None, heard: Heard, role: str
) -> None:
    crowd = gather(web, role)
    shown = sum(read(web, crowd, person, turn) for turn, person in enumerate(crowd.people))
    for person in crowd.people if LONG_RUN else crowd.people[:1]:
        send_nonsense(web, crowd, person)
    for person in crowd.people if LONG_RUN else crowd.people[-1:]:
        act(web, crowd, person)

    assert shown == (2 * len(COVERED) if role in (OWNER, ADMIN) else 0)
    assert_nowhere(heard(), "what was logged and printed")
    assert_nowhere_at_rest(app)


def read(web: Flask, crowd: Crowd, person: Person, turn: int) -> int:
    """Every page, twin, part and export; how many of them showed what this person may see."""
    shown = 0
    for rule, path, exception_id in readings(web, crowd, person, turn):
        answer = person.browser.get(path, buffered=True, headers={"User-Agent": canary("browser")})
        expected = person.may_see(rule.endpoint, exception_id)
        if expected:
            assert seen_in(answer) == expected, f"{person}: {path}"
            shown += 1
        else:
            assert_silent(answer, person)
            assert rule.endpoint not in CONTENT or answer.status_code in (302, 401, 403, 404), f"{person}: {path}"
    return shown


def readings(web: Flask, crowd: Crowd, person: Person, turn: int) -> list[tuple[Rule, str, str]]:
    """Rule, path and the exception that it names, if it names one."""
    found = []
    for number, rule in enumerate(routes(web, "GET")):
        if "exception_id" in rule.arguments:
            found += [(rule, crowd.subject.path(rule, exception_id=one), one) for one in crowd.exceptions_for(person)]
        elif LONG_RUN or len(crowd.people) == 1 or (number + turn) % 5 == 0:
            found.append((rule, crowd.subject.path(rule), ""))
    return found


def send_nonsense(web: Flask, crowd: Crowd, person: Person) -> None:
    """What no form asks for, with a canary in it: nobody reads it back, and nothing keeps it."""
    for rule, body in zip(routes(web, "POST", without=SIGN_IN), nonsense(), strict=False):
        headers = {"X-CSRFToken": person.browser.token, "HX-Request": "true"}
        answer = person.browser.client.post(crowd.subject.path(rule), headers=headers, **body)
        assert answer.status_code < 500, f"{person}: {rule}"
        assert_silent(answer, person)


def nonsense() -> Iterator[dict[str, Any]]:
    """Bodies of all kinds, one after the other; a file can be sent once only."""
    while True:
        line = json.dumps({"content": canary("sent"), canary("sent"): 1}).encode()
        yield {"data": {"content": canary("sent"), "memory": [canary("sent")] * 3, canary("sent"): "x"}}
        yield {"data": {"file": (io.BytesIO(line), f"{canary('sent')}.jsonl"), "other": (io.BytesIO(line), "x")}}
        yield {"json": {"content": canary("sent"), "agent": {canary("sent"): None}}}
        yield {"data": b'{"content": "' + canary("sent").encode(), "content_type": "application/json"}
        yield {"data": canary("sent").encode("utf-16"), "content_type": "multipart/form-data; boundary=x"}


def act(web: Flask, crowd: Crowd, person: Person) -> None:
    """Every act, as its form wants it, on something that is full of canaries: one's own, for those who may."""
    may = person.role in (OWNER, ADMIN)
    subject = make_subject(canary("acted")) if may else crowd.subject
    for number, rule in enumerate(routes(web, "POST", without=SIGN_IN)):
        form = act_of(rule)
        page = f"http://localhost/agents/{subject.agent.id}"
        headers = {"HX-Request": "true", "HX-Current-URL": page} if number % 2 else {}
        path = subject.path(rule, **form.named(subject))
        answer = person.browser.post(path, form.form(subject), headers=headers)
        assert answer.status_code < 500, f"{person}: {rule}"
        assert_silent(answer, person)


def assert_silent(answer: TestResponse, person: Person | str) -> None:
    assert_nowhere(answer.data + str(answer.headers).encode(), f"{answer.request.path} for {person}")


def seen_in(answer: TestResponse) -> set[str]:
    """The places whose canaries somebody reads there."""
    assert answer.status_code == 200
    if answer.is_json:
        return places_in(json.dumps(answer.json, ensure_ascii=False))
    return places_in(re.sub(r"<[^>]+>", "", answer.text))


def test_every_column_that_can_hold_content_holds_a_canary(app: Flask, web: Flask) -> None:
    """Otherwise the sweeps would look for what is not there."""
    crowd = gather(web, OWNER)
    found = places_by_column()

    assert set(found) | {"access_views.sealed", "content_keys.sealed"} == sealed_columns()
    assert all(found.values()), found
    assert set.union(*found.values()) == SEALED | {"other", "reason"}
    look = opening.look(db.session.get_one(AccessGrant, crowd.theirs[0]), owner_of(crowd))
    opening.answer_view(look.view_id)
    assert places_in(str(opening.fetch_view(look))) == LEDGER


def owner_of(crowd: Crowd) -> User:
    return db.session.get_one(User, db.session.get_one(AccessGrant, crowd.theirs[0]).user_id)


@pytest.mark.once
def test_no_live_part_of_any_page_holds_content(app: Flask, web: Flask, worker: None, heard: Heard) -> None:
    """The topics are those that the pages listen to, pages with content included."""
    crowd = gather(web, OWNER)
    pages = [
        person.browser.get(path, buffered=True).text
        for turn, person in enumerate(crowd.people[-len(COVERED) :])
        for rule, path, _ in readings(web, crowd, person, turn)
        if not rule.rule.endswith((".json", ".csv", ".jsonl"))
    ]
    topics = {unescape(found) for page in pages for found in re.findall(r"/events\?topic=([^\"&]+)", page)}
    assert len(topics) >= 5
    for person in crowd.people:
        for topic in sorted(topics):
            answer = person.browser.get("/events/poll", query_string={"topic": unquote(topic)})
            assert answer.status_code == 200, topic
            assert b"hx-partial" in answer.data, topic
            assert_silent(answer, person)
    assert_nowhere(heard(), "what was logged and printed")


@pytest.mark.once
def test_no_broken_page_tells_what_broke_it(
    web: Flask, app: Flask, owner: Browser, monkeypatch: pytest.MonkeyPatch, heard: Heard
) -> None:
    """Whatever a view raises, and however it is asked: the page, the twin and the log name a kind and a place."""
    subject = make_subject()
    errors = [
        ValueError(canary("raised")),
        KeyError(canary("raised")),
        OperationalError(f"SELECT '{canary('raised')}'", {"text": canary("raised")}, Exception(canary("raised"))),
        UnicodeDecodeError("utf-8", canary("raised").encode(), 0, 1, canary("raised")),
        ExceptionGroup(canary("raised"), [ValueError(canary("raised"))]),
    ]
    for number, rule in enumerate(routes(web, "GET", without=SIGN_IN)):
        monkeypatch.setitem(web.view_functions, rule.endpoint, raising(errors[number % len(errors)]))
        for headers in ({}, {"HX-Request": "true"}, {"Accept": "application/json"}):
            answer = owner.get(subject.path(rule), headers=headers)
            assert answer.status_code in (500, 503), rule
            assert_silent(answer, "an owner")
    said = heard()
    assert b"ValueError" in said
    assert_nowhere(said, "what was logged and printed")


def raising(error: Exception) -> Callable[..., None]:
    def view(**_: object) -> None:
        secret = canary("local")  # noqa: F841 - a value that a traceback with locals would show
        raise error from RuntimeError(canary("raised"))

    return view


def test_what_an_agent_writes_to_admins_is_shown_and_inert(web: Flask, admin: Browser) -> None:
    agent = make_agent()
    remember(agent, "Ann likes tea.")
    run = begin(agent)
    run.tool.execute("complete", summary="Done.", note_to_admins='<img src=x onerror="alert(1)"> & {{ 7 * 7 }}')

    page = admin.get(f"/refinements/{run.refinement.id}").text

    assert "&lt;img src=x onerror=&#34;alert(1)&#34;&gt; &amp; {{ 7 * 7 }}" in page
    assert "<img" not in page
