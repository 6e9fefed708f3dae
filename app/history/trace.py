"""Traces: who wrote which states of which memories, and what taking something back means for each; no content."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, cast

from sqlalchemy import Integer, Result, Select, Text, select, type_coerce
from sqlalchemy import cast as sql_cast

from app.extensions import db
from app.models import Action, AuditLog, Memory, MemoryState, MemoryType, Restoration
from app.models.base import lock_row
from app.models.state import NO_EARLIER_STATE, StateColumns

_CORE, _TOGGLE = MemoryType.CORE, Action.CONSTITUTIONAL_TOGGLE


class Entries(NamedTuple):
    """Audit entries: a constant query for their ids, and the values of its parameters."""

    query: Select[tuple[int]]
    values: Mapping[str, Any]


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
        return self.action == _TOGGLE


class Trace(dict[int, MemoryWrite]):
    """By entry: the writes to one memory from a certain entry on, oldest first."""

    def origin(self, entry_id: int | None, *, through_protects: bool = False) -> int | None:
        """Whose work a state shows: a copy shows what it restores, an admin's toggle what was there before.

        `NO_EARLIER_STATE` for what a reversal took away. `through_protects`: a protect is looked through like a toggle.
        """
        while entry_id is not None and entry_id in self:
            step = self[entry_id]
            if step.restores_entry_id is not None:
                entry_id = step.restores_entry_id
            elif step.is_toggle or (through_protects and step.action == Action.REFINEMENT_PROTECT):
                entry_id = step.previous_entry_id
            else:
                return entry_id
        return entry_id

    def leads_to(self, memory: PresentMemory) -> bool:
        """Whether each write, from the first one on, names the one before it, and the memory the last one.

        So it is in a whole history, unless it was altered past the application.
        """
        named = [step.previous_entry_id for step in self.values()]
        return [*named, memory.entry_id] == [None, *self]

    def was_toggled_after(self, entry_id: int) -> bool:
        """Whether an admin set or cleared the constitutional flag since."""
        return len(self) > 1 and any(step.is_toggle and step.entry_id > entry_id for step in self.values())


def _plain_flag(of: Any) -> Any:
    """Without SQLAlchemy's step for each value: an undo reads thousands."""
    return type_coerce(of, Integer)


def select_rows(query: Select[Any], values: Mapping[str, Any] | None = None) -> Result[Any]:
    """What a query for columns finds, past the ORM, which does as much for each row again as the database."""
    session = db.session()
    session.flush()
    return session.connection().execute(query, values or {})


def read_traces(memories: Select[tuple[int]], since: int, values: Mapping[str, Any] | None = None) -> dict[int, Trace]:
    """By memory id: every write since an entry, that one included. `values` are those of the query's parameters."""
    query = (
        select(*WRITE_COLUMNS)
        .join(AuditLog, AuditLog.id == MemoryState.entry_id)
        .where(MemoryState.memory_id.in_(memories), MemoryState.entry_id >= since)
        .order_by(MemoryState.memory_id, MemoryState.entry_id)
    )
    found: dict[int, Trace] = {}
    for write in map(MemoryWrite._make, select_rows(query, values)):
        found.setdefault(write.memory_id, Trace())[write.entry_id] = write
    return found


def _write_column(name: str) -> Any:
    of = AuditLog if name in ("action", "refinement_id") else MemoryState
    return _plain_flag(getattr(of, name)) if name == "constitutional" else getattr(of, name)


WRITE_COLUMNS = [_write_column(name) for name in MemoryWrite._fields]
"""The columns of a `MemoryWrite`."""


def written_by(entries: Select[tuple[int]]) -> Select[tuple[int]]:
    """The ids of the memories that the entries of a query for ids wrote."""
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
    is_erased: bool


def present_memories(memories: Select[tuple[int]], *, lock: bool) -> list[PresentMemory]:
    """The rows of these memories in the order of ids, locked against other writers if they are to be changed."""
    query = select(*memory_columns()).where(Memory.id.in_(memories)).order_by(Memory.id)
    return [PresentMemory._make(row) for row in db.session.execute(lock_row(query) if lock else query)]


def memory_columns() -> Sequence[Any]:
    """The columns of a `PresentMemory`. Flags are as the driver gives them: SQLite's are 0 and 1."""
    flags = _plain_flag(Memory.immutable), _plain_flag(Memory.erased_at.is_not(None))
    return Memory.id, Memory.entry_id, flags[0], *_fact_columns(Memory), flags[1]


class RecordedState(NamedTuple):
    """A state as the log keeps it. `restores_entry_id` names the state that it is a copy of, if it is one."""

    memory_id: int
    entry_id: int
    restores_entry_id: int | None
    tags_json: str
    constitutional: bool
    is_active: bool
    type: MemoryType
    token_estimate: int

    @property
    def origin_entry_id(self) -> int:
        """What a copy of it names."""
        return self.restores_entry_id or self.entry_id

    @property
    def tags(self) -> Sequence[str]:
        return () if self.tags_json == "[]" else json.loads(self.tags_json)


def read_states(query: Select[Any]) -> list[RecordedState]:
    """The states of `STATES`, as far as it is narrowed."""
    return [RecordedState._make(row) for row in select_rows(query)]


def state_columns(of: type[MemoryState]) -> Sequence[Any]:
    """The columns of a `RecordedState`; `of` may be an alias."""
    return of.memory_id, of.entry_id, of.restores_entry_id, sql_cast(of.tags, Text), *_fact_columns(of)


def _fact_columns(of: type[StateColumns]) -> tuple[Any, ...]:
    flags = _plain_flag(of.constitutional), _plain_flag(cast(Any, of.discarded_at).is_(None))
    return *flags, of.type, of.token_estimate


STATES = select(*state_columns(MemoryState))
"""A query for all of them, to be narrowed."""


class MemoryReversal(NamedTuple):
    """One memory's way back. Without a state it is removed: what is undone had made it."""

    memory: PresentMemory
    state: RecordedState | None
    constitutional: bool

    def restoration(self, at: datetime) -> Restoration:
        """The same, ready to be recorded and carried out."""
        memory, state, flag = self
        if state is None:
            return Restoration(memory.id, memory.entry_id, None, NO_EARLIER_STATE, flag, at)
        way = memory.id, memory.entry_id, state.entry_id, state.restores_entry_id or state.entry_id, flag, at
        return tuple.__new__(Restoration, way)


@dataclass(frozen=True)
class PlanFindings:
    """What an undo or a rewind comes to. `conflicts` are memories that changed since.

    `altered` are those among them whose history does not hold together, as it was altered past the application.
    `stays` are left alone: an admin made them constitutional since. So are `erased`: nothing brings them back. `later`
    are refinements since: those that stand in the way, or those that a rewind reverses.
    """

    changes: tuple[MemoryReversal, ...] = ()
    conflicts: tuple[int, ...] = ()
    altered: tuple[int, ...] = ()
    stays: tuple[int, ...] = ()
    erased: tuple[int, ...] = ()
    later: tuple[str, ...] = ()

    @property
    def memories(self) -> tuple[int, ...]:
        return tuple(change.memory.id for change in self.changes)

    @property
    def restored(self) -> int:
        """Memories that get an earlier state back."""
        return sum(change.state is not None for change in self.changes)

    @property
    def removed(self) -> int:
        """Memories that what is undone had made, notes in the journal included."""
        return len(self.changes) - self.restored

    @property
    def gain(self) -> int:
        """What the ledger's mass gains by it, in tokens."""
        tokens = 0
        for memory, state, _ in self.changes:
            if state is not None and state.is_active and state.type == _CORE:
                tokens += state.token_estimate
            if memory.is_active and memory.type == _CORE:
                tokens -= memory.token_estimate
        return tokens

    @property
    def removed_notes(self) -> int:
        """How many of the removed are notes in the journal."""
        return sum(change.state is None and change.memory.type == MemoryType.JOURNAL for change in self.changes)
