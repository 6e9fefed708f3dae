"""The Knife: what each function does, what it answers, what it refuses."""

from __future__ import annotations

import pytest
from flask import Flask

from app.extensions import db
from app.models import Agent, Memory
from tests.support.factories import Running, begin, ledger, make_agent, remember

LONG = "On the third of May we promised each other to tell the truth, even when it is small and unwelcome. "


@pytest.fixture
def agent(app: Flask) -> Agent:
    return make_agent()


def running_over(agent: Agent, *contents: str) -> tuple[Running, list[int]]:
    ids = remember(agent, *contents)
    return begin(agent), ids


def test_it_consolidates_into_one_memory_with_the_earliest_date_and_all_tags(agent: Agent) -> None:
    filler = remember(agent, *(LONG * 3 + str(n) for n in range(8)))
    first = remember(agent, "Ann likes tea.", tags=["ann", "tea"])
    second = remember(agent, "Ann likes tea in the morning.", tags=["morning"])
    origin = db.session.get_one(Memory, first[0]).origin_at
    run = begin(agent)

    result = run.tool.execute("consolidate", ids=[second[0], first[0]], content="Ann likes tea, in the morning.")

    assert result["type"] == "consolidated"
    assert result["merged_count"] == 2
    assert result["changes_left"] == 9
    merged = db.session.get_one(Memory, result["id"])
    assert merged.origin_at == origin
    assert merged.tags == ["ann", "morning", "tea"]
    assert [row[0] for row in ledger(agent)] == [*filler, merged.id] or merged.id in [row[0] for row in ledger(agent)]
    assert not db.session.get_one(Memory, first[0], populate_existing=True).is_active


def test_a_refused_call_changes_nothing_and_is_not_counted(agent: Agent) -> None:
    run, ids = running_over(agent, "Ann likes tea.", "Bob likes rum.")
    before = ledger(agent)

    for action, arguments in {
        "consolidate": {"ids": [ids[0], 999_999], "content": "Both."},
        "update": {"id": ids[0], "content": "   "},
        "delete": {"id": "twelve"},
        "protect": {"id": True},
        "search": {"query": ""},
        "complete": {},
        "burn": {"id": ids[0]},
    }.items():
        result = run.tool.execute(action, **arguments)
        assert result["type"] == "error", action
        assert result["changes_left"] == 10

    assert ledger(agent) == before
    assert run.reload().mutations == 0
