"""The silo on screen: no page, twin or live part ever holds what a memory says, whoever looks."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest
from flask import Flask

from app.extensions import db, writing
from app.models import Agent, MemoryType, Refinement
from tests.support.factories import HOME, begin, make_agent, remember
from tests.views.conftest import Browser
from tests.views.test_access import fill, routes

CANARY = 'Zanzibar\'s "canary" sings at dawn <äö> 4711'


def shapes(text: str) -> list[bytes]:
    """The ways in which a text may slip out."""
    raw = text.encode()
    return [
        raw,
        base64.b64encode(raw)[:-4],
        raw.hex().encode(),
        json.dumps(text)[1:-1].encode(),
        quote(text).encode(),
        text.encode("utf-16-le"),
        b"Zanzibar",
    ]


@pytest.fixture
def seeded(app: Flask) -> Agent:
    agent = make_agent()
    remember(agent, CANARY, CANARY, "Another one.", "Yet another one, which is longer than the others.")
    remember(agent, f"{CANARY} in the journal", type_=MemoryType.JOURNAL)
    return agent


def test_no_route_shows_it_to_any_role(
    web: Flask,
    seeded: Agent,
    stranger: Browser,
    auditor: Browser,
    admin: Browser,
    owner: Browser,
    operator: Browser,
    neighbour: Browser,
) -> None:
    run = begin(seeded)
    run.tool.execute("search", query="Zanzibar")
    run.tool.execute("update", id=3, content=f"{CANARY} Another one.")
    run.tool.execute("delete", id=CANARY)
    run.tool.execute("complete", summary=f"I kept {CANARY}.", note_to_admins="All is well.")
    addresses = {"agent_id": str(seeded.id), "memory_id": "1", "refinement_id": run.refinement.id}
    answers = 0
    for person in (stranger, auditor, admin, owner, operator, neighbour):
        for rule in routes(web, "GET"):
            body = person.get(fill(rule, addresses)).data
            answers += 1
            for shape in shapes(CANARY):
                assert shape not in body, rule
    assert answers > 60


def test_no_live_part_holds_it(web: Flask, seeded: Agent, admin: Browser) -> None:
    run = begin(seeded)
    run.tool.execute("consolidate", ids=[3, 4], content="Zanzibar again.")
    topics = ("overview", "agents", f"agent:{seeded.id}", f"refinement:{run.refinement.id}")

    for topic in topics:
        answer = admin.get(f"/events/poll?topic={topic}")
        assert answer.status_code == 200, topic
        assert b"hx-partial" in answer.data, topic
        assert all(shape not in answer.data for shape in shapes(CANARY)), topic


def test_a_refused_import_never_quotes_its_lines(web: Flask, seeded: Agent, admin: Browser) -> None:
    from io import BytesIO

    file = BytesIO(json.dumps({"content": CANARY, CANARY: 1}).encode() + b"\n" + CANARY.encode())
    answer = admin.post(f"/agents/{seeded.id}/imports", {"file": (file, "zanzibar.jsonl")})

    assert answer.status_code == 422
    assert all(shape not in answer.data for shape in shapes(CANARY))


def test_an_error_page_never_quotes_what_was_sent_or_what_broke(
    web: Flask, seeded: Agent, admin: Browser, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def breaks(*_: object, **__: object) -> None:
        raise ValueError(f"invalid literal: {CANARY}")

    monkeypatch.setattr("app.views.shown.agent.AgentState.load", breaks)
    answer = admin.get(f"/agents/{seeded.id}")
    said = capfd.readouterr()

    assert answer.status_code == 500
    assert "its changes were rolled back" in answer.text
    assert all(shape not in answer.data for shape in shapes(CANARY))
    assert "ValueError" in said.out + said.err
    assert "Zanzibar" not in said.out + said.err


def test_what_an_agent_writes_to_admins_is_shown_and_inert(web: Flask, seeded: Agent, admin: Browser) -> None:
    run = begin(seeded)
    run.tool.execute("complete", summary="Done.", note_to_admins='<img src=x onerror="alert(1)"> & {{ 7 * 7 }}')

    page = admin.get(f"/refinements/{run.refinement.id}").text

    assert "&lt;img src=x onerror=&#34;alert(1)&#34;&gt; &amp; {{ 7 * 7 }}" in page
    assert "<img" not in page


def test_the_web_process_holds_no_master_key(web: Flask) -> None:
    assert "master_key" not in web.extensions
    with web.app_context(), writing():
        assert db.session.get(Refinement, "none") is None
    assert HOME == 1
