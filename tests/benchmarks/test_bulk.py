"""What benchmarks write in bulk is what the product would read, and leaves a database's rules as they were."""

from __future__ import annotations

import pytest
from flask import Flask
from sqlalchemy import func, inspect, select, text

from app.asking.prompt_memories import read_entries
from app.extensions import db
from app.keys.agent_keys import open_keys
from app.models import Agent, Memory
from benchmarks import ledger
from benchmarks.bulk import multiply_row, set_sequence
from benchmarks.due_agents import fill_agents
from benchmarks.scratch import is_sqlite
from benchmarks.sealed_ledger import text_of, write_ledger
from tests.support.factories import begin, make_agent, remember


def rules() -> set[tuple[object, ...]]:
    """Names of all triggers and indexes, with what they say."""
    sqlite = "SELECT name, sql FROM sqlite_master WHERE type IN ('trigger', 'index')"
    server = (
        "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' UNION ALL"
        " SELECT tgname, pg_get_triggerdef(oid) || tgenabled::text FROM pg_trigger WHERE NOT tgisinternal"
    )
    with db.engine.connect() as connection:
        return {tuple(row) for row in connection.execute(text(sqlite if is_sqlite() else server))}


def test_rows_are_multiplied_and_triggers_and_indexes_are_there_again(app: Flask) -> None:
    before = rules()
    fill_agents(50, 200)
    assert rules() == before
    assert db.session.scalar(select(func.count()).select_from(Agent)) == 51
    assert db.session.scalar(select(func.count()).select_from(Memory)) == 201
    assert inspect(db.engine).get_columns("memories")
    db.session.rollback()
    assert make_agent("the next").id > 51


def test_a_ledger_written_in_bulk_opens_and_can_be_changed_under_guard(app: Flask) -> None:
    agent = make_agent()
    keys = open_keys(agent)
    ids = write_ledger(agent, keys, 30)
    assert [entry.content for entry in read_entries(agent.id, keys)] == [text_of(number) for number in range(30)]
    db.session.rollback()
    run = begin(agent)
    said = run.tool.execute("update", id=ids[7], content=text_of(7).replace("we spoke", "we really spoke"))
    assert said["type"] == "updated"
    db.session.rollback()
    assert db.session.get_one(Agent, agent.id).core_count == 30


def test_the_ledger_by_hand_reads_what_the_product_reads(app: Flask) -> None:
    agent, keys = ledger.fill_ledger(12)
    by_hand = ledger._by_hand(agent.id, agent.uuid, keys)
    assert by_hand == [entry.content for entry in ledger.load_ledger(agent.id, keys)]
    assert len(set(by_hand)) == 12


def test_a_row_that_is_not_there_is_not_multiplied(app: Flask) -> None:
    agent = make_agent()
    remember(agent, "Ann likes tea.")
    db.session.rollback()
    multiply_row(Memory, "id = -1", 10, {})
    set_sequence("memories")
    assert db.session.scalar(select(func.count()).select_from(Memory)) == 1


@pytest.mark.parametrize("number", [0, 99_999])
def test_texts_of_one_ledger_weigh_the_same(number: int) -> None:
    assert len(text_of(number)) == len(text_of(1))
