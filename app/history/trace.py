"""Traces: who wrote which states of which memories, read as sets; light rows without content."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from sqlalchemy import Select, select

from app.extensions import db
from app.models import Action, AuditLog, Memory, MemoryState, MemoryType
from app.models.base import lock_row
from app.models.state import StateColumns

Entries = Select[tuple[int]]
"""A query for the ids of audit entries."""


class MemoryWrite(NamedTuple):
    """One write to one memory."""

    memory_id: int
    entry_id: int
    previous_entry_id: int | None
    restores_entry_id: int | None
    constitutional: bool
    action: Action
    refinement_id: str | None

    @property
    def is_toggle(self) -> bool:
        return self.action == Action.CONSTITUTIONAL_TOGGLE


@dataclass(frozen=True)
class Trace:
    """The writes to one memory from a certain entry on, oldest first."""

    steps: Sequence[MemoryWrite] = ()
    by_entry: Mapping[int, MemoryWrite] = field(default_factory=dict)

    @classmethod
    def of(cls, steps: Sequence[MemoryWrite]) -> Trace:
        return cls(steps, {step.entry_id: step for step in steps})

    def origin(self, entry_id: int | None, *, through_protects: bool = False) -> int | None:
        """Whose work a state shows: a copy shows what it restores, an admin's toggle what was there before.

        `NOTHING` for what a reversal took away. `through_protects`: a protect is looked through like a toggle.
        """
        while entry_id is not None and (step := self.by_entry.get(entry_id)) is not None:
            if step.restores_entry_id is not None:
                entry_id = step.restores_entry_id
            elif step.is_toggle or (through_protects and step.action == Action.REFINEMENT_PROTECT):
                entry_id = step.previous_entry_id
            else:
                return entry_id
        return entry_id

    def was_toggled_after(self, entry_id: int) -> bool:
        """Whether an admin set or cleared the constitutional flag since."""
        return any(step.is_toggle and step.entry_id > entry_id for step in self.steps)


def read_traces(memories: Select[tuple[int]], since: int) -> dict[int, Trace]:
    """By memory id: every write since an entry, that one included."""
    query = (
        select(*_STEP_COLUMNS)
        .join(AuditLog, AuditLog.id == MemoryState.entry_id)
        .where(MemoryState.memory_id.in_(memories), MemoryState.entry_id >= since)
        .order_by(MemoryState.memory_id, MemoryState.entry_id)
    )
    found: dict[int, list[MemoryWrite]] = defaultdict(list)
    for row in db.session.execute(query).tuples():
        found[row[0]].append(MemoryWrite._make(row))
    return {memory_id: Trace.of(steps) for memory_id, steps in found.items()}


_STEP_COLUMNS = (
    MemoryState.memory_id,
    MemoryState.entry_id,
    MemoryState.previous_entry_id,
    MemoryState.restores_entry_id,
    MemoryState.constitutional,
    AuditLog.action,
    AuditLog.refinement_id,
)


def written_by(entries: Entries) -> Select[tuple[int]]:
    """The ids of the memories that these entries wrote."""
    return select(MemoryState.memory_id).where(MemoryState.entry_id.in_(entries)).distinct()


class PresentMemory(NamedTuple):
    """A memory's row as it stands: what an undo has to know of it."""

    id: int
    entry_id: int
    immutable: bool
    constitutional: bool
    is_active: bool
    type: MemoryType
    token_estimate: int


def present_memories(memories: Select[tuple[int]], *, lock: bool) -> list[PresentMemory]:
    """The rows of these memories in the order of ids, locked against other writers if they are to be changed."""
    query = select(Memory.id, Memory.entry_id, Memory.immutable, *_fact_columns(Memory)).where(Memory.id.in_(memories))
    query = query.order_by(Memory.id)
    return [PresentMemory._make(row) for row in db.session.execute(lock_row(query) if lock else query)]


class Recorded(NamedTuple):
    """A state as the log keeps it. `restores_entry_id` names the state that it is a copy of, if it is one."""

    memory_id: int
    entry_id: int
    restores_entry_id: int | None
    tags: Sequence[str]
    constitutional: bool
    is_active: bool
    type: MemoryType
    token_estimate: int

    @property
    def origin_entry_id(self) -> int:
        """What a copy of it names."""
        return self.restores_entry_id or self.entry_id


def state_query() -> Select[Any]:
    """A query for states as `read_states` reads them, to be narrowed."""
    names = (MemoryState.memory_id, MemoryState.entry_id, MemoryState.restores_entry_id, MemoryState.tags)
    return select(*names, *_fact_columns(MemoryState))


def read_states(query: Select[Any]) -> list[Recorded]:
    """The states of a narrowed `state_query`."""
    return [Recorded._make(row) for row in db.session.execute(query)]


def _fact_columns(of: type[StateColumns]) -> tuple[Any, ...]:
    return of.constitutional, cast(Any, of.discarded_at).is_(None), of.type, of.token_estimate
