"""The alarm of the nightly proof stands first on the overview of its account, and on no other's."""

from __future__ import annotations

from html import unescape
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import text

from app.extensions import WRITES, db, is_sqlite
from app.history.proof import prove_due
from app.history.stops import review_stop
from app.models import Agent
from tests.support.clock import FakeClock
from tests.support.factories import make_agent, remember
from tests.support.tampering import entry, live, tamper
from tests.views.conftest import Browser

CANARY = "the canary sang at dawn"
ALTERED = "The record is not as it was written."
BESIDE = "The database is not as it should be."


@pytest.fixture
def agent(app: Flask) -> Agent:
    return live()


def attention(browser: Browser) -> list[dict[str, Any]]:
    shown = browser.get("/overview.json").json
    assert shown is not None
    found: list[dict[str, Any]] = shown["attention"]
    return found


def titles(browser: Browser) -> list[str]:
    return [each["title"] for each in attention(browser)]


def test_a_difference_stands_first_with_its_sentence_the_agent_and_what_to_do(
    agent: Agent, auditor: Browser, clock: FakeClock
) -> None:
    remember(make_agent("heavy", core_token_budget=1), CANARY)
    tamper("UPDATE audit_log SET actor = 'user:nobody' WHERE agent_id = 1 AND sequence = 3")
    prove_due(clock.now())

    first, *others = attention(auditor)

    assert (first["title"], first["items"]) == (ALTERED, ["ezra"])
    assert f"{entry(3)} was altered" in first["text"]
    assert "Found on 16 November, 04:00 UTC." in first["text"]
    assert "./whetstone verify" in first["text"]
    assert "Over budget: 1 agent" in [each["title"] for each in others]
    page = auditor.get("/").text
    assert page.index(ALTERED) < page.index("Over budget")
    assert 'href="/agents/1"' in page
    assert CANARY not in page


def test_it_stands_there_until_a_later_run_finds_nothing(agent: Agent, auditor: Browser, clock: FakeClock) -> None:
    tamper("UPDATE agents SET core_count = core_count + 1")
    prove_due(clock.now())
    assert ALTERED in titles(auditor)
    tamper("UPDATE agents SET core_count = core_count - 1")
    assert ALTERED in titles(auditor)

    clock.advance(hours=1)
    prove_due(clock.now())

    assert ALTERED not in titles(auditor)


def test_an_open_overview_is_brought_up_to_date(agent: Agent, auditor: Browser, clock: FakeClock) -> None:
    prove_due(clock.now())
    seen = auditor.get("/events/poll?topic=overview").headers.get("Last-Event-ID", "0")
    assert auditor.get(f"/events/poll?topic=overview&after={seen}").status_code == 204
    tamper("UPDATE agents SET core_count = core_count + 1")
    clock.advance(days=1)
    prove_due(clock.now())

    news = auditor.get(f"/events/poll?topic=overview&after={seen}")

    assert news.status_code == 200
    assert ALTERED in news.text


def test_the_neighbour_sees_nothing_of_it(agent: Agent, neighbour: Browser, auditor: Browser, clock: FakeClock) -> None:
    tamper("UPDATE agents SET core_count = core_count + 1")
    prove_due(clock.now())

    assert titles(auditor)[0] == ALTERED
    assert ALTERED not in titles(neighbour)
    for address in ("/", "/overview.json"):
        assert "ezra" not in neighbour.get(address).text


def test_what_belongs_to_nobody_is_told_to_all_and_named_to_none(
    agent: Agent, auditor: Browser, neighbour: Browser, clock: FakeClock
) -> None:
    tamper("UPDATE audit_log SET chain = 'agent:secret', agent_id = NULL WHERE agent_id = 1 AND sequence = 3")
    with db.engine.execution_options(**WRITES).begin() as connection:
        on = "" if is_sqlite(db.session()) else " ON audit_log"
        connection.execute(text(f"DROP TRIGGER wt_audit_log_no_delete{on}"))
    prove_due(clock.now())

    assert titles(auditor)[:2] == [ALTERED, BESIDE]
    assert titles(neighbour)[0] == BESIDE
    for browser in (auditor, neighbour):
        assert "agent:secret" not in browser.get("/").text
        assert "wt_audit_log_no_delete" not in browser.get("/").text


def test_it_says_when_nobody_verifies_any_more_and_when_it_was_last_done(
    agent: Agent, auditor: Browser, clock: FakeClock
) -> None:
    assert not any("verified" in title for title in titles(auditor))
    prove_due(clock.now())
    clock.advance(days=3)
    assert not any("verified" in title for title in titles(auditor))
    assert auditor.get("/overview.json").json["verified_at"] == "2026-11-16T04:00:00Z"  # type: ignore[index]

    clock.advance(days=2)

    assert "Nobody has verified the record for 5 days." in titles(auditor)


def test_the_page_of_a_stopped_agent_says_since_when_why_and_what_to_do(auditor: Browser, app: Flask) -> None:
    number = make_agent("o'hara", model_id="openai/m").id
    make_agent("mina")
    tamper("UPDATE agents SET model_id = 'openai/other' WHERE id = :id", id=number)
    assert ">stopped<" not in auditor.get(f"/agents/{number}").text
    seen = auditor.get(f"/events/poll?topic=agent:{number}").headers.get("Last-Event-ID", "0")
    review_stop(number)

    twin = auditor.get(f"/agents/{number}.json").json
    page = unescape(auditor.get(f"/agents/{number}").text)

    assert twin is not None
    told = [twin[name] for name in ("stopped_at", "stopped_why", "stopped_command")]
    why, command = "The model_id of o'hara is not what was signed", """./whetstone verify --agent 'o'"'"'hara'"""
    assert told == ["2026-11-16T04:00:00Z", why, command]
    for said in ("o'hara is stopped since 16 November, 04:00 UTC.", f"{why}.", command, ">stopped<"):
        assert said in page
    first, *_ = attention(auditor)
    assert (first["title"], first["items"]) == ("Stopped: 1 agent", ["o'hara"])
    assert f"{why}." in unescape(auditor.get("/").text)
    assert "o'hara is stopped since" in unescape(auditor.get(f"/agents/{number}/tokens").text)
    assert "o'hara is stopped since" in unescape(auditor.get(f"/events/poll?topic=agent:{number}&after={seen}").text)
    listed = auditor.get("/agents.json?state=stopped").json
    assert listed is not None
    assert [each["name"] for each in listed["agents"]] == ["o'hara"]
