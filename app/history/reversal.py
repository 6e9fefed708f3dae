"""Reversal: gives the memories that a refinement touched the states that they had before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import aliased

from app.extensions import db
from app.models import Action, Agent, AuditLog, Memory, MemoryState, Refinement
from app.models.base import lock_row


@dataclass(frozen=True)
class Reversed:
    """The memories as they are again, and how many came back, were restored or were taken away."""

    memories: tuple[Memory, ...]
    counts: Mapping[str, int]


def reverse_operations(refinement: Refinement, agent: Agent) -> Reversed:
    """Undo every operation of the Knife in this refinement; exact duplicates removed before it stay removed.

    The caller holds the locks of refinement and agent, and records the result. Flags go first, so that a memory that
    was protected in this refinement is no obstacle; what an admin made constitutional since stays so.
    """
    before = _states_before(refinement)
    memories = _lock(list(before))
    flags = {memory.id: _flag_after(refinement, memory, before[memory.id]) for memory in memories}
    for memory in memories:
        memory.constitutional = False
    db.session.flush()
    counts = {"restored": 0, "removed": 0}
    for memory in memories:
        state = before[memory.id]
        if state is None:
            memory.discard(agent)
            counts["removed"] += 1
        else:
            memory.become(agent, **state.fields() | {"constitutional": flags[memory.id]})
            counts["restored"] += 1
    db.session.flush()
    return Reversed(tuple(memories), counts)


def _states_before(refinement: Refinement) -> dict[int, MemoryState | None]:
    """For each memory that the refinement's operations wrote: its state just before, or None if it was new."""
    written, previous = aliased(MemoryState), aliased(MemoryState)
    rows = db.session.execute(
        select(written.memory_id, previous)
        .join(AuditLog, AuditLog.id == written.entry_id)
        .outerjoin(
            previous,
            (previous.memory_id == written.memory_id) & (previous.entry_id == written.previous_entry_id),
        )
        .where(AuditLog.refinement_id == refinement.id, AuditLog.action != Action.DEDUP)
        .order_by(written.memory_id, written.entry_id)
    )
    before: dict[int, MemoryState | None] = {}
    for memory_id, state in rows.tuples():
        before.setdefault(memory_id, state)
    return before


def _lock(ids: list[int]) -> list[Memory]:
    return list(db.session.scalars(lock_row(select(Memory).where(Memory.id.in_(ids)).order_by(Memory.id))))


def _flag_after(refinement: Refinement, memory: Memory, before: MemoryState | None) -> bool:
    if before is None:
        return False
    protected_by_admin: Any = db.session.scalar(
        select(MemoryState.constitutional)
        .join(AuditLog, AuditLog.id == MemoryState.entry_id)
        .where(
            MemoryState.memory_id == memory.id,
            MemoryState.entry_id > before.entry_id,
            AuditLog.action == Action.CONSTITUTIONAL_TOGGLE,
        )
        .order_by(MemoryState.entry_id.desc())
        .limit(1)
    )
    return before.constitutional if protected_by_admin is None else bool(protected_by_admin)
