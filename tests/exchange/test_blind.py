"""The blind record: every memory once, oldest first, in batches that hold nothing open; no content and no hash."""

from __future__ import annotations

import pytest
from flask import Flask

from app.exchange import blind
from app.exchange.blind import blind_rows
from app.extensions import db
from app.models import Agent, MemoryType
from tests.exchange.files import CANARY
from tests.support.factories import begin, make_agent, remember

KEYS = ["id", "type", "tokens", "constitutional", "tags", "origin_at", "other_dates"]
KEYS += ["merged_sources", "merges", "source", "discarded", "discarded_at", "version"]


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent()
    remember(made, *(f"{CANARY} {number}" for number in range(3)), f"{CANARY} 0, 3", tags=["bird"])
    remember(made, CANARY, type_=MemoryType.JOURNAL)
    remember(make_agent("other"), "Not mine.")
    return made


@pytest.mark.parametrize("size", [1, 2, 3, 5, 6, 500])
def test_whatever_the_batch_each_memory_comes_once_oldest_first(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(blind, "BATCH", size)

    rows = list(blind_rows(agent.id))

    assert len({row.id for row in rows}) == len(rows) == 5
    assert [(row.origin_at, row.id) for row in rows] == sorted((row.origin_at, row.id) for row in rows)
    assert [row.tags for row in rows if row.type == "core"] == [["bird"]] * 4


def test_it_says_what_there_is_and_nothing_of_what_it_says(agent: Agent) -> None:
    for row in blind_rows(agent.id):
        assert list(row.as_json()) == KEYS
        assert CANARY not in str(row)


def test_soft_deleted_ones_and_one_kind_come_when_asked_for(agent: Agent) -> None:
    first = next(blind_rows(agent.id)).id
    carrier = [row.id for row in blind_rows(agent.id, kind=MemoryType.CORE)][-1]
    assert begin(agent).tool.execute("delete", id=first, carried_by=carrier)["type"] == "deleted"

    assert first not in [row.id for row in blind_rows(agent.id)]
    assert [row.id for row in blind_rows(agent.id, discarded=True) if row.discarded] == [first]
    assert {row.type for row in blind_rows(agent.id, kind=MemoryType.JOURNAL)} == {"journal"}


def test_no_transaction_is_open_between_two_rows(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blind, "BATCH", 2)

    for _ in blind_rows(agent.id):
        assert not db.session().in_transaction()
