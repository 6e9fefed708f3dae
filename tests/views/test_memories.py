"""The constitutional toggle: admins only, at once, with an Undo; never released while a refinement is open."""

from __future__ import annotations

import pytest
from flask import Flask

from app.extensions import db
from app.history.verify import verify
from app.models import Agent, Memory
from tests.support.factories import begin, make_agent, remember
from tests.views.conftest import Browser, toast_of


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent()
    remember(made, "Ann likes tea.", "Bob likes rum.")
    return made


def is_constitutional(memory_id: int) -> bool:
    db.session.rollback()
    return db.session.get_one(Memory, memory_id, populate_existing=True).constitutional


def test_an_admin_makes_a_memory_constitutional_and_takes_it_back(admin: Browser, agent: Agent) -> None:
    answer = admin.press(f"/agents/{agent.id}/memories/1/constitutional")

    assert answer.status_code == 200
    assert is_constitutional(1)
    assert 'hx-target="#memory-1"' in answer.text
    assert f'action="/agents/{agent.id}/memories/1/constitutional/release"' in toast_of(answer)
    admin.press(f"/agents/{agent.id}/memories/1/constitutional/release")
    assert not is_constitutional(1)
    assert verify().ok


def test_twice_is_once(admin: Browser, agent: Agent) -> None:
    admin.press(f"/agents/{agent.id}/memories/1/constitutional")
    before = db.session.get_one(Memory, 1, populate_existing=True).version
    admin.press(f"/agents/{agent.id}/memories/1/constitutional")

    db.session.rollback()
    assert db.session.get_one(Memory, 1, populate_existing=True).version == before


def test_it_is_not_released_while_a_refinement_is_open(admin: Browser, agent: Agent) -> None:
    admin.press(f"/agents/{agent.id}/memories/1/constitutional")
    begin(agent)
    answer = admin.press(f"/agents/{agent.id}/memories/1/constitutional/release")

    assert answer.status_code == 409
    assert "stays constitutional while refinement" in answer.text
    assert is_constitutional(1)


def test_it_can_be_protected_in_the_middle_of_a_refinement(admin: Browser, agent: Agent) -> None:
    run = begin(agent)
    admin.press(f"/agents/{agent.id}/memories/1/constitutional")

    assert run.tool.execute("delete", id=1)["type"] == "error"
    assert is_constitutional(1)


@pytest.mark.parametrize("memory_id", [99_999, 2**62])
def test_a_memory_that_is_not_the_agents_is_not_found(admin: Browser, agent: Agent, memory_id: int) -> None:
    other = make_agent("mina")
    theirs = remember(other, "Carl likes milk.")[0]

    for number in (memory_id, theirs):
        assert admin.press(f"/agents/{agent.id}/memories/{number}/constitutional").status_code == 404
    assert not is_constitutional(theirs)


def test_the_ledger_goes_on_from_a_cursor_and_never_skips_a_memory(admin: Browser, app: Flask) -> None:
    agent = make_agent("long")
    ids = remember(agent, *(f"Memory {number}." for number in range(120)))

    found, after = [], ""
    while True:
        shown = admin.get(f"/agents/{agent.id}.json", query_string={"after": after}).json
        assert shown is not None
        found += [row["id"] for row in shown["ledger"]]
        after = shown["next_after"]
        if not after:
            break

    assert found == ids
    assert admin.get(f"/agents/{agent.id}?after=nonsense~x").status_code == 200
