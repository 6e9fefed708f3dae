"""Forgetting in the browser: by an owner who types the name; told on every page of the agent; nothing comes back."""

from __future__ import annotations

from html import unescape

import pytest
from flask import Flask
from sqlalchemy import func, select

from app.extensions import db
from app.history.verify import verify
from app.keys.shredding import is_due
from app.models import Agent, AgentToken, AuditLog, Intake, Memory, Refinement
from app.models.key import AgentKey
from tests.silo.holding import give_token, hand_in
from tests.support.factories import begin, make_agent, remember
from tests.support.rows import fresh
from tests.views.conftest import Browser

TABS = ("", "/refinements", "/imports", "/settings", "/tokens", "/exceptions", "/audit", "/forget")


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent("Ezra & <b>Eve</b>")
    remember(made, "Ann likes tea.", "Bob likes rum.")
    give_token(made)
    return made


def keys() -> int:
    db.session.rollback()
    return db.session.scalar(select(func.count(AgentKey.id))) or 0


def forget(owner: Browser, agent: Agent) -> None:
    name = fresh(agent).name
    assert owner.post(f"/agents/{agent.id}/forget", {"name": name}).status_code == 303


def test_the_page_says_what_it_does_what_stays_and_that_backups_keep_the_keys(owner: Browser, agent: Agent) -> None:
    hand_in(agent, "Cleo likes ink.")
    page = unescape(owner.get(f"/agents/{agent.id}/forget").text)

    for words in (
        "nobody can ever again read what it remembers",
        "4 sealed keys, of all versions and for all readers",
        "2 memories stay as bytes that nothing opens",
        "1 API token, 0 exceptions. 1 waiting import emptied",
        "no new keys or tokens are ever made for it",
        "of its audit log, counts, dates",
        "Copies of the database from before still hold the keys, until they age out",
        "./whetstone agents forget 'Ezra & <b>Eve</b>' --yes-forget 'Ezra & <b>Eve</b>'",
        "Exactly: Ezra & <b>Eve</b>",
    ):
        assert words in page, words
    assert owner.get(f"/agents/{agent.id}/forget.json").json == {
        "agent": "Ezra & <b>Eve</b>",
        "forgotten_at": None,
        "keys": 4,
        "tokens": 1,
        "imports_waiting": 1,
        "exceptions": 0,
        "memories": 2,
        "entries": fresh(agent).audit_sequence,
        "may_forget": True,
    }
    assert f'href="/agents/{agent.id}/forget"' in owner.get(f"/agents/{agent.id}/settings").text


def test_an_owner_who_types_the_name_forgets_it(owner: Browser, agent: Agent) -> None:
    hand_in(agent, "Cleo likes ink.")
    run = begin(agent)
    answer = owner.post(f"/agents/{agent.id}/forget", {"name": agent.name})

    assert (answer.status_code, answer.headers["Location"]) == (303, f"/agents/{agent.id}")
    page = unescape(owner.get(f"/agents/{agent.id}").text)
    assert "is forgotten: its keys are destroyed." in page
    gone = fresh(agent)
    assert (gone.active, gone.paused, keys(), is_due()) == (False, True, 0, False)
    assert db.session.get_one(Refinement, run.refinement.id, populate_existing=True).status == "stopped"
    assert db.session.scalar(select(Intake.sealed)) is None
    assert db.session.scalar(select(func.count(AgentToken.id)).where(AgentToken.revoked_at.is_(None))) == 0
    entry = db.session.scalars(select(AuditLog).where(AuditLog.action == "agent_forget")).one()
    assert (entry.actor, entry.user_id) == (f"user:{owner.user.email}", owner.user.id)  # type: ignore[union-attr]
    assert verify().ok


@pytest.mark.parametrize(
    "typed", ["", "ezra", "Ezra & <b>eve</b>", "Ezra & <b>Eve</b> ", "Ezra &amp; <b>Eve</b>", "x" * 9000]
)
def test_any_other_name_does_nothing(owner: Browser, agent: Agent, typed: str) -> None:
    before = fresh(agent).audit_head
    answer = owner.post(f"/agents/{agent.id}/forget", {"name": typed})

    assert answer.status_code == 422
    assert "That is not its name, letter for letter. Nothing was done." in answer.text
    assert "<b>" not in answer.text.replace("&lt;b&gt;", "")
    assert (keys(), fresh(agent).forgotten_at, fresh(agent).audit_head) == (4, None, before)


def test_only_an_owner_may(admin: Browser, auditor: Browser, operator: Browser, agent: Agent) -> None:
    for browser in (admin, auditor, operator):
        answer = browser.post(f"/agents/{agent.id}/forget", {"name": agent.name})
        assert answer.status_code == 403
    for browser in (admin, auditor):
        page = browser.get(f"/agents/{agent.id}/forget").text
        assert "Only an owner of this account can forget an agent" in page
        assert "<form class" not in page
    assert keys() == 4


def test_another_accounts_owner_finds_nothing(neighbour: Browser, agent: Agent) -> None:
    assert neighbour.post(f"/agents/{agent.id}/forget", {"name": agent.name}).status_code == 404
    assert keys() == 4


def test_every_page_of_it_says_when_it_was_forgotten_and_offers_nothing_that_needs_its_keys(
    owner: Browser, agent: Agent
) -> None:
    forget(owner, agent)
    day = f"{fresh(agent).forgotten_at:%Y-%m-%d}"
    for tab in TABS:
        answer = owner.get(f"/agents/{agent.id}{tab}")
        assert answer.status_code == 200, tab
        assert f"Forgotten on {day}." in answer.text, tab
        for word in (">Refine<", "Exact duplicates only", "Resume</button>", "Check and import", "making the keys"):
            assert word not in answer.text, (tab, word)
    listed = owner.get("/agents?state=forgotten").text
    assert f'href="/agents/{agent.id}"' in listed
    assert ">forgotten<" in listed
    assert "making keys" not in owner.get("/agents").text
    assert owner.get(f"/agents/{agent.id}.json").json["forgotten_at"] is not None  # type: ignore[index]
    assert owner.get(f"/agents/{agent.id}.json").json["needs_refinement"] is False  # type: ignore[index]
    assert "Without keys" not in owner.get("/").text


def test_what_needs_its_keys_is_refused_in_words(owner: Browser, agent: Agent) -> None:
    forget(owner, agent)
    for path, data in (
        (f"/agents/{agent.id}/refinements", {}),
        (f"/agents/{agent.id}/resume", {}),
        (f"/agents/{agent.id}/forget", {"name": agent.name}),
    ):
        answer = owner.post(path, data)
        assert answer.status_code == 409, path
        assert "no new ones are ever made for it" in answer.text, path
    from io import BytesIO

    sent = {"file": (BytesIO(b'{"content": "Cleo likes ink."}'), "memories.jsonl")}
    answer = owner.post(f"/agents/{agent.id}/imports", sent, content_type="multipart/form-data")
    assert answer.status_code == 409
    assert (keys(), db.session.scalar(select(func.count(Memory.id)))) == (0, 2)


def test_it_stays_when_it_is_over_its_budget_but_needs_no_attention(owner: Browser, agent: Agent) -> None:
    heavy = make_agent("heavy", core_token_budget=1)
    remember(heavy, "Ann likes tea, and Ann likes tea with milk.")
    assert "Over budget: 1 agent" in owner.get("/").text
    forget(owner, heavy)
    assert "Over budget: " not in owner.get("/").text
    assert owner.get("/overview.json").json["over_budget"] == 0  # type: ignore[index]
