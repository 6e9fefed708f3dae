"""Finality: what the latch or the erosion guard reversed can't be brought back, whichever way would lead there.

Only the agent can do that work again, in a new refinement under the guards. The removal of exact duplicates before is
no part of it: a guard leaves that as it is, so that it can be undone and redone.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select

from app.extensions import db
from app.history.log import LogEntry
from app.history.trace import MemoryReversal, read_traces
from app.models import Action, AuditLog, Memory
from app.models.audit import OPERATIONS

UNLESS_REVERSED = (*OPERATIONS, Action.REFINEMENT_ROLLBACK)
"""Entries that can be undone, unless a guard reversed their refinement."""


def reversed_by_guard(refinement_ids: Sequence[str]) -> set[str]:
    """Those of these refinements that ended in a reversal, as the log says."""
    if not refinement_ids:
        return set()
    query = select(AuditLog.refinement_id).where(AuditLog.refinement_id.in_(refinement_ids))
    return {each for each in db.session.scalars(query.where(AuditLog.action == Action.REFINEMENT_ROLLBACK)) if each}


def final_among(entries: Sequence[LogEntry]) -> set[int]:
    """Ids of those entries that can't be undone, because a guard reversed their refinement."""
    about = {
        entry.id: entry.refinement_id for entry in entries if entry.refinement_id and entry.action in UNLESS_REVERSED
    }
    reversed_ = reversed_by_guard(list(set(about.values())))
    return {entry_id for entry_id, refinement_id in about.items() if refinement_id in reversed_}


def brought_back(account_id: int, agent_id: int, changes: Sequence[MemoryReversal]) -> str | None:
    """The refinement whose reversed work one of these changes would show again, if there is one."""
    restored = {change.memory.id: change.state.origin_entry_id for change in changes if change.state is not None}
    if not restored:
        return None
    reversed_ = _reversed_work(account_id, agent_id)
    if not reversed_:
        return None
    found = read_traces(select(Memory.id).where(Memory.id.in_(restored)), since=min(reversed_))
    for memory_id, trace in found.items():
        origin = trace.origin(restored[memory_id])
        if origin in reversed_:
            return reversed_[origin]
    return None


def _reversed_work(account_id: int, agent_id: int) -> dict[int, str]:
    """By entry: the refinement of everything that a guard reversed for this agent."""
    tripped = select(AuditLog.refinement_id).where(
        AuditLog.account_id == account_id, AuditLog.action == Action.REFINEMENT_ROLLBACK, AuditLog.agent_id == agent_id
    )
    query = select(AuditLog.id, AuditLog.refinement_id).where(AuditLog.refinement_id.in_(tripped))
    rows = db.session.execute(query.where(AuditLog.action.in_(OPERATIONS))).tuples()
    return {entry_id: refinement_id for entry_id, refinement_id in rows if refinement_id is not None}
