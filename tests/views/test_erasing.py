"""Erasing a memory in the browser: by an owner who types its number and says why; told to the agent; gone by its id."""

from __future__ import annotations

from html import unescape

import pytest
from flask import Flask
from sqlalchemy import select

from app.extensions import db
from app.history import telling
from app.history.verify import verify
from app.keys.agent_keys import open_keys
from app.models import Agent, HumanAct, Memory, MemoryText, MemoryType, Source
from tests.support.clock import FakeClock
from tests.support.factories import begin, make_agent, remember, toggle
from tests.views.conftest import Browser

FORM = {"number": "1", "reason": "She asked for it."}


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent()
    assert remember(made, "Ann likes tea.", "Bob likes rum.") == [1, 2]
    return made


def stands(memory_id: int = 1) -> bool:
    db.session.rollback()
    return db.session.scalars(select(MemoryText).where(MemoryText.memory_id == memory_id)).first() is not None


def test_the_page_says_what_goes_and_what_stays_and_shows_no_content(owner: Browser, agent: Agent) -> None:
    page = unescape(owner.get(f"/agents/{agent.id}/memories/1").text)
    for words in (
        "Nothing undoes it",
        "Exactly: 1",
        "The agent is told",
        "./whetstone memories erase 1 --agent",
        "1 state",
    ):
        assert words in page, words
    assert "Ann likes" not in page
    said = owner.get(f"/agents/{agent.id}/memories/1.json").json
    assert (said["id"], said["states"], said["made"], said["copies"], said["may_erase"]) == (1, 1, [], [], True)
    assert f'href="/agents/{agent.id}/memories/1"' in owner.get(f"/agents/{agent.id}/ledger").text


def test_an_owner_erases_it_and_it_is_gone_from_every_list(owner: Browser, agent: Agent) -> None:
    answer = owner.post(f"/agents/{agent.id}/memories/1/erase", FORM)

    assert answer.status_code == 303
    assert not stands()
    for path in ("", "?show=discarded", ".json?show=discarded"):
        assert 'id="memory-1"' not in owner.get(f"/agents/{agent.id}{path}").text
    gone = owner.get(f"/agents/{agent.id}/memories/1")
    assert gone.status_code == 410
    assert "Memory 1 was erased for good by owner" in gone.text
    log = owner.get(f"/agents/{agent.id}/audit").text
    erasure = log.partition("<strong>Erased a memory for good")[2].partition('<li id="entry-')[0]
    assert "entry " in erasure
    assert "See first what would change" not in erasure
    assert owner.get(f"/agents/{agent.id}/memories/1.json").status_code == 410
    assert owner.post(f"/agents/{agent.id}/memories/1/erase", FORM).status_code == 410
    assert verify().ok


@pytest.mark.parametrize("typed", [{"number": "2"}, {"number": ""}, {"reason": "  "}, {"number": "1 1"}])
def test_another_number_or_no_reason_erases_nothing(owner: Browser, agent: Agent, typed: dict[str, str]) -> None:
    answer = owner.post(f"/agents/{agent.id}/memories/1/erase", FORM | typed)
    assert answer.status_code == 422
    assert "Nothing was erased." in answer.text
    assert stands()


def test_an_admin_who_is_no_owner_may_not(admin: Browser, agent: Agent) -> None:
    assert admin.post(f"/agents/{agent.id}/memories/1/erase", FORM).status_code == 403
    assert "Only an owner" in admin.get(f"/agents/{agent.id}/memories/1").text
    assert stands()


def test_not_while_a_refinement_is_open_nor_a_constitutional_one(owner: Browser, agent: Agent) -> None:
    toggle(agent, 1)
    assert owner.post(f"/agents/{agent.id}/memories/1/erase", FORM).status_code == 409
    assert 'name="number"' not in owner.get(f"/agents/{agent.id}/memories/1").text
    begin(agent)
    assert owner.post(f"/agents/{agent.id}/memories/2/erase", FORM | {"number": "2"}).status_code == 409
    assert (stands(1), stands(2)) == (True, True)


def test_the_agent_is_told_who_did_it_and_why(owner: Browser, agent: Agent, clock: FakeClock) -> None:
    owner.post(f"/agents/{agent.id}/memories/1/erase", FORM)
    db.session.rollback()
    clock.advance(minutes=2)
    ((number, actor),) = telling.find_acts_to_tell()
    telling.tell_human_acts(number, actor)

    note = db.session.scalars(Memory.active(agent.id, MemoryType.JOURNAL).where(Memory.source == Source.SYSTEM)).one()
    told = open_keys(agent).reveal_memory(note.id, note.content)
    assert 'erased memory 1 for good, so that nobody can ever read it again, saying: "She asked for it."' in told
    assert db.session.scalars(select(HumanAct)).one().told_at is not None
    assert verify().ok
