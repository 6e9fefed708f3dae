"""What somebody does who owns the database, past triggers and foreign keys; and what the proof must say of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, select, text

from app.extensions import WRITES, db
from app.history.plan import Target
from app.history.undo import roll_back
from app.history.verify import Verdict, verify
from app.models import COMMAND_LINE, Agent, AuditLog, MemoryState
from migrations.triggers import trigger_statements
from tests.support.factories import begin, make_agent, remember

_TRIGGERS = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND name GLOB 'wt_*'"


def tamper(statement: str, **values: Any) -> int:
    """Change rows behind everybody's back; returns how many."""
    with as_owner() as connection:
        return connection.execute(text(statement), values).rowcount


@contextmanager
def as_owner() -> Iterator[Connection]:
    """A transaction in which nothing is refused, behind which everything looks as before."""
    db.session.rollback()
    db.session.expunge_all()
    with db.engine.connect().execution_options(**WRITES) as connection:
        if connection.dialect.name == "sqlite":
            raw = connection.connection.driver_connection
            raw.execute("PRAGMA foreign_keys=OFF")
            connection.begin()
            for (name,) in raw.execute(_TRIGGERS).fetchall():
                raw.execute(f"DROP TRIGGER {name}")
            yield connection
            for statement in trigger_statements("sqlite"):
                raw.execute(statement)
            connection.commit()
            raw.execute("PRAGMA foreign_keys=ON")
        else:
            connection.execute(text("SET session_replication_role = replica"))  # no trigger fires
            yield connection
            connection.commit()
            connection.execute(text("SET session_replication_role = origin"))
            connection.commit()


@contextmanager
def removed(table: str, where: str) -> Iterator[None]:
    """Rows are gone meanwhile, and come back as they were."""
    tamper(f"CREATE TABLE kept AS SELECT * FROM {table} WHERE {where}")
    assert tamper(f"DELETE FROM {table} WHERE {where}")
    yield
    tamper(f"INSERT INTO {table} SELECT * FROM kept")
    tamper("DROP TABLE kept")


def hash_anew(agent: Agent) -> None:
    """Give every entry of a chain, and the head, the hashes that fit what now stands there."""
    number, head, sequence, fits = agent.id, b"", 0, []
    for entry in list(db.session.scalars(_chain(agent))):
        written = select(MemoryState).where(MemoryState.entry_id == entry.id).order_by(MemoryState.memory_id)
        entry.previous_hash, sequence = head, entry.sequence
        with db.session.no_autoflush:
            head = entry.digest(list(db.session.scalars(written)))
        fits.append({"previous": entry.previous_hash, "hash": head, "id": entry.id})
    with as_owner() as connection:
        connection.execute(text("UPDATE audit_log SET previous_hash = :previous, hash = :hash WHERE id = :id"), fits)
        reset = text("UPDATE agents SET audit_sequence = :sequence, audit_head = :head WHERE id = :id")
        connection.execute(reset, {"sequence": sequence, "head": head, "id": number})


def _chain(agent: Agent) -> Any:
    return select(AuditLog).where(AuditLog.chain == agent.chain).order_by(AuditLog.sequence)


OTHER = {
    "type": "'journal'",
    "content_digest": "(SELECT content_digest FROM memories WHERE id = 1)",
    "token_estimate": "token_estimate + 1",
    "constitutional": "NOT constitutional",
    "tags": """'["voice"]'""",
    "origin_at": "'2026-01-01 00:00:00.000000'",
    "other_dates": """'["2026-01-01T00:00:00+00:00"]'""",
    "merged_sources": "merged_sources + 2",
    "merges": "merges + 1",
    "source": "'import:forged.jsonl'",
    "created_at": "'2026-01-01 00:00:00.000000'",
    "updated_at": "'2026-01-01 00:00:00.000000'",
    "discarded_at": "CASE WHEN discarded_at IS NULL THEN created_at END",
    "version": "version + 1",
}
"""An SQL value for each field of a memory's state that is another one."""


def live() -> Agent:
    """An agent with a short but real history: saved, protected, consolidated, deleted, completed, undone."""
    made = make_agent()
    texts = ("We met in Lisbon. " * 20, "Ann likes tea.", "Ann likes green tea.", "Bob moved to Oslo.")
    ids = remember(made, *texts, "Bob moved to Oslo. He works there.")
    run = begin(made)
    run.tool.execute("protect", id=ids[0])
    run.tool.execute("consolidate", ids=ids[1:3], content="Ann likes green tea.")
    run.tool.execute("delete", id=ids[3], carried_by=ids[4])
    run.tool.execute("complete", summary="Two said the same.")
    roll_back(Target.refinement(run.refinement.id), by=COMMAND_LINE)
    db.session.rollback()
    db.session.refresh(made)
    db.session.expunge_all()
    return made


def rows(query: str, **values: Any) -> list[Any]:
    with db.engine.connect() as connection:
        return list(connection.execute(text(query), values))


def entries() -> list[tuple[int, int]]:
    """Number and id of every entry of the first agent's chain."""
    return [(row[0], row[1]) for row in rows("SELECT sequence, id FROM audit_log WHERE agent_id = 1 ORDER BY sequence")]


def entry(number: int) -> str:
    """An entry of the first agent as the proof names it."""
    return f"entry {number} (id {dict(entries())[number]})"


def found(sentence: str, *, at: int | None = None) -> Verdict:
    """Whole or of the agent alone, the proof fails with this sentence, and knows the entry of that number."""
    for verdict in (verify(db.session.get_one(Agent, 1)), verify()):
        assert not verdict.ok
        assert sentence in str(verdict.first_problem)
        assert at is None or verdict.entry_id == dict(entries())[at]
    return verdict
