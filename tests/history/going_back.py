"""What tests of the Time Machine share: refine in one line, go back in another, and see every byte of an agent."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import func, select

from app.extensions import db
from app.history.plan import Target
from app.history.undo import RollbackConflict, UndoResult, roll_back
from app.models import COMMAND_LINE, Action, Agent, AuditLog, Memory, MemoryState, Mode, Refinement, Rollback, Status
from tests.refinement.driving import carry
from tests.support.factories import Running, begin

LONG = "On the third of May we promised each other to tell the truth, even when it is small and unwelcome. "
FIELDS = (
    *("type", "content_digest", "token_estimate", "constitutional", "tags", "origin_at", "other_dates"),
    *("merged_sources", "merges", "source", "created_at", "updated_at", "discarded_at", "version"),
)
Call = tuple[str, dict[str, Any]]


def everything(agent: Agent) -> dict[int, dict[str, Any]]:
    """Every memory of the agent, discarded ones too, byte for byte; under 0 its totals."""
    db.session.rollback()
    table = Memory.__table__
    rows = db.session.execute(select(table).where(table.c.agent_id == agent.id).order_by(table.c.id)).mappings()
    found = {row["id"]: {name: row[name] for name in FIELDS} for row in rows}
    totals = (Agent.core_token_usage, Agent.core_count, Agent.journal_count)
    found[0] = dict(
        zip(
            ("mass", "core", "journal"),
            db.session.execute(select(*totals).where(Agent.id == agent.id)).one(),
            strict=True,
        )
    )
    return found


def just(agent: Agent, *ids: int) -> dict[int, dict[str, Any]]:
    """The same of some memories only."""
    return {number: state for number, state in everything(agent).items() if number in ids}


def refined(agent: Agent, *calls: Call, deduplicate: bool = False, complete: bool = True) -> str:
    """A whole refinement with these calls of the Knife, all of which must be made; returns its id."""
    run = begin(agent, deduplicate=deduplicate)
    for call in calls:
        result = do(run, call)
        assert result["type"] not in ("error", "would_lose"), result
    if complete and not run.tool.was_rolled_back:
        run.tool.execute("complete", summary="I am done.")
    return run.refinement.id


def do(run: Running, call: Call) -> dict[str, Any]:
    """A loss that is asked about is confirmed, where that can be."""
    action, arguments = call
    result = run.tool.execute(action, **arguments)
    if result["type"] == "would_lose" and action != "delete":
        return run.tool.execute(action, **arguments, confirm_loss=True)
    return result


def deduplicated(agent: Agent) -> str:
    """A refinement that removes exact duplicates and does nothing else; returns its id."""
    return carry(agent, mode=Mode.DEDUP_ONLY).refinement.id


def update(number: int, content: str = "Shorter.") -> Call:
    return "update", {"id": number, "content": content}


def delete(number: int, carried_by: int) -> Call:
    """The carrier gets the dates of what goes."""
    return "delete", {"id": number, "carried_by": carried_by}


def protect(number: int) -> Call:
    return "protect", {"id": number}


def consolidate(*ids: int, content: str = "Both.") -> Call:
    return "consolidate", {"ids": list(ids), "content": content}


def undo(target: Target | str) -> UndoResult:
    """Roll back what must roll back; a string is a refinement's id."""
    done = roll_back(Target.refinement(target) if isinstance(target, str) else target, by=COMMAND_LINE)
    assert done.applied
    assert done.rollback is not None
    return done


def rollback_of(done: UndoResult) -> str:
    assert done.rollback is not None
    return done.rollback.id


def conflict_of(target: Target | str) -> RollbackConflict:
    """The refusal to roll back."""
    with pytest.raises(RollbackConflict) as refused:
        roll_back(Target.refinement(target) if isinstance(target, str) else target, by=COMMAND_LINE)
    db.session.rollback()
    return refused.value


def entries_of(agent: Agent, action: Action) -> list[int]:
    """Ids of the agent's entries of one kind, oldest first."""
    query = select(AuditLog.id).where(AuditLog.agent_id == agent.id, AuditLog.action == action)
    return list(db.session.scalars(query.order_by(AuditLog.id)))


def newest_entry(action: Action) -> int:
    return db.session.scalars(select(func.max(AuditLog.id)).where(AuditLog.action == action)).one()


def count_entries() -> int:
    """Of all chains."""
    db.session.rollback()
    return db.session.scalar(select(func.count()).select_from(AuditLog)) or 0


def written_by(entry_id: int) -> list[int]:
    """Ids of the memories that an entry wrote."""
    query = select(MemoryState.memory_id).where(MemoryState.entry_id == entry_id)
    return sorted(db.session.scalars(query))


def status_of(refinement_id: str) -> Status:
    return Status(db.session.get_one(Refinement, refinement_id, populate_existing=True).status)


def undoer_of(row: type[Refinement] | type[Rollback], number: str) -> str | None:
    return db.session.get_one(row, number, populate_existing=True).undone_by


def count_of(agent: Agent) -> tuple[int, int]:
    """Rollbacks, and entries of the log: what grows when anything is written."""
    db.session.rollback()
    rollbacks = db.session.scalar(db.select(db.func.count(Rollback.id)).where(Rollback.agent_id == agent.id))
    entries = db.session.scalar(db.select(db.func.count(AuditLog.id)).where(AuditLog.agent_id == agent.id))
    return rollbacks or 0, entries or 0
