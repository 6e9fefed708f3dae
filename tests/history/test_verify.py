"""Verify: a log that nobody touched is proved; whatever is altered behind its back is found and named."""

from __future__ import annotations

import pytest
from flask import Flask
from sqlalchemy import text

from app.extensions import db, is_sqlite
from app.history.verify import verify
from app.models import Agent
from tests.support.factories import begin, make_agent, remember


@pytest.fixture
def agent(app: Flask) -> Agent:
    """An agent with a short but real history: saved, protected, consolidated, deleted, completed."""
    made = make_agent()
    ids = remember(made, "We met in Lisbon. " * 20, "Ann likes tea.", "Ann likes green tea.", "Bob moved to Oslo.")
    run = begin(made)
    run.tool.execute("protect", id=ids[0])
    run.tool.execute("consolidate", ids=ids[1:3], content="Ann likes green tea.")
    run.tool.execute("delete", id=ids[3])
    run.tool.execute("complete", summary="Two said the same.")
    return made


def tamper(statement: str) -> None:
    """Change the database as somebody would who owns it: triggers first, then the row."""
    db.session.rollback()
    with db.engine.connect() as connection:
        if is_sqlite(db.session()):
            names = connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).scalars().all()
            for name in names:
                connection.execute(text(f"DROP TRIGGER {name}"))
        else:
            connection.execute(text("SET session_replication_role = replica"))
        connection.execute(text(statement))
        connection.commit()
    db.engine.dispose()
    db.session.remove()


def test_it_proves_a_history_that_nobody_touched(agent: Agent) -> None:
    verdict = verify()

    assert verdict.ok, verdict.first_problem
    assert verdict.entries == db.session.scalar(text("SELECT count(*) FROM audit_log"))


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("UPDATE audit_log SET actor = 'user:nobody' WHERE sequence = 3 AND agent_id = 1", "entry 3 (id"),
        ("""UPDATE audit_log SET data = '{"id": 7}' WHERE sequence = 5 AND agent_id = 1""", "entry 5 (id"),
        ("DELETE FROM audit_log WHERE sequence = 4 AND agent_id = 1", "entry 4 is missing"),
        ("UPDATE memory_states SET token_estimate = token_estimate + 1 WHERE memory_id = 2", "was altered"),
        ("UPDATE memory_states SET kept = 5 WHERE memory_id = 2 AND kept = 0", "was altered"),
        ("UPDATE memories SET constitutional = (1 = 0) WHERE id = 1", "constitutional of memory 1"),
        ("UPDATE memories SET discarded_at = NULL WHERE id = 4", "discarded_at of memory 4"),
        (
            "UPDATE memories SET content = (SELECT content FROM memories WHERE id = 1) WHERE id = 2",
            "content of memory 2",
        ),
        ("UPDATE agents SET core_token_usage = core_token_usage + 1", "core_token_usage is"),
        ("UPDATE agents SET audit_sequence = audit_sequence + 1", "were written"),
        ("UPDATE audit_log SET account_id = account_id WHERE 1 = 0", None),
    ],
)
def test_it_finds_and_names_what_was_altered(agent: Agent, statement: str, sentence: str | None) -> None:
    tamper(statement)

    verdict = verify()

    assert verdict.ok is (sentence is None)
    assert sentence is None or sentence in str(verdict.first_problem)


def test_it_finds_a_truncated_log(agent: Agent) -> None:
    last = db.session.scalar(text("SELECT max(sequence) FROM audit_log WHERE agent_id = 1"))
    tamper(f"DELETE FROM audit_log WHERE agent_id = 1 AND sequence = {last}")

    assert "the log ends at entry" in str(verify().first_problem)


def test_it_finds_a_memory_that_no_entry_explains(agent: Agent) -> None:
    columns = "agent_id, immutable, type, content, token_estimate, content_hash, constitutional, tags, origin_at"
    columns += ", created_at, updated_at, discarded_at, version"
    tamper(f"INSERT INTO memories (id, {columns}) SELECT 999, {columns} FROM memories WHERE id = 1")

    assert verify().first_problem is not None
    assert "memory 999 is in no entry" in str(verify().first_problem)
