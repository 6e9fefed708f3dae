"""What an undo wrote is a copy, and verify compares it: whoever alters copy and memory alike is found all the same."""

from __future__ import annotations

import pytest
from flask import Flask

from app.history.verify import verify
from app.models import Agent
from tests.support.tampering import OTHER, live, rows, tamper

UNDO = "(SELECT max(entry_id) FROM memory_states)"


@pytest.fixture
def agent(app: Flask) -> Agent:
    return live()


@pytest.mark.parametrize("field", sorted(OTHER))
@pytest.mark.parametrize("copied", [True, False], ids=["given back", "taken away"])
def test_a_copy_that_was_altered_together_with_its_memory_is_found(agent: Agent, field: str, copied: bool) -> None:
    kind = "> 0" if copied else "= 0"
    ((memory_id, sequence),) = rows(
        "SELECT s.memory_id, a.sequence FROM memory_states s JOIN audit_log a ON a.id = s.entry_id"
        f" WHERE s.entry_id = {UNDO} AND s.restores_entry_id {kind} AND s.memory_id > 1 ORDER BY s.memory_id LIMIT 1"
    )
    value = "'2026-01-01 00:00:00.000000'" if field == "discarded_at" else OTHER[field]
    assert verify().ok
    assert (
        tamper(f"UPDATE memory_states SET {field} = {value} WHERE entry_id = {UNDO} AND memory_id = {memory_id}") == 1
    )
    tamper(
        f"UPDATE memories SET {field} = (SELECT {field} FROM memory_states WHERE entry_id = {UNDO}"
        f" AND memory_id = {memory_id}) WHERE id = {memory_id}"
    )

    problem = str(verify().first_problem)

    assert f"entry {sequence} " in problem


def test_a_copy_that_names_another_source_does_not_hash(agent: Agent) -> None:
    assert tamper(f"UPDATE memory_states SET restores_entry_id = 1 WHERE entry_id = {UNDO} AND memory_id = 2") == 1
    assert "altered" in str(verify().first_problem)


def test_a_copy_keeps_nothing_of_a_refinement_s_weight(agent: Agent) -> None:
    assert tamper(f"UPDATE memory_states SET kept = 1 WHERE entry_id = {UNDO} AND memory_id = 2") == 1
    assert "gave memory 2 another state than the one that it names" in str(verify().first_problem)
