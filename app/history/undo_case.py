"""Undo cases: what some audit entries wrote of a memory, what became of it since, and what their undo means for it.

All of it is read by one statement, a row for each write since the first of these entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, auto
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple, cast

from sqlalchemy import Select, Table, and_, func, select
from sqlalchemy.orm import aliased

from app.extensions import db
from app.history.trace import (
    WRITE_COLUMNS,
    Entries,
    MemoryReversal,
    MemoryWrite,
    PresentMemory,
    RecordedState,
    Trace,
    memory_columns,
    state_columns,
    written_by,
)
from app.models import AuditLog, Memory, MemoryState
from app.models.base import lock_row
from app.models.state import NO_EARLIER_STATE
from app.prepared import Prepared, Row


class Decision(Enum):
    ALREADY_RESTORED = auto()
    """It is already as it was before."""
    RESTORE = auto()
    KEEP = auto()
    """These entries made it, and an admin made it constitutional since."""
    CONFLICT = auto()


class UndoCase(NamedTuple):
    """One memory in an undo of `entries`. `before` is its state before them, None when these entries made it."""

    memory: PresentMemory
    entries: Sequence[int]
    before: RecordedState | None
    trace: Trace

    def decision(self) -> Decision:
        memory, before, trace = self.memory, self.before, self.trace
        written = {trace.origin(entry_id) for entry_id in self.entries}
        was = None if before is None else trace.origin(before.origin_entry_id)
        if trace[self.entries[0]].is_toggle or (before is not None and written == {was}):
            return self._decision_on_a_toggle()
        origin = trace.origin(memory.entry_id)
        is_of_these_entries = origin in written
        if before is not None:
            is_restored = origin == was
        else:
            is_restored = not memory.is_active and (is_of_these_entries or origin == NO_EARLIER_STATE)
        if is_restored:
            return Decision.ALREADY_RESTORED
        if not is_of_these_entries:
            return Decision.CONFLICT
        protected = before is None and memory.constitutional and self._was_toggled_since
        return Decision.KEEP if protected else Decision.RESTORE

    def is_doubtful(self, decision: Decision) -> bool:
        """Whether an admin's flag set before the part of the history that was read could change the decision."""
        if decision is Decision.RESTORE and self.before is not None:
            now, then = self.memory, self.before
            is_same = now.is_active == then.is_active and now.type == then.type
            return is_same and now.token_estimate == then.token_estimate
        return decision is Decision.CONFLICT

    def change(self) -> MemoryReversal:
        if self.before is None:
            return MemoryReversal(self.memory, None, False)
        holder = self.memory if self._was_toggled_since else self.before
        return MemoryReversal(self.memory, self.before, holder.constitutional)

    def later_refinements(self) -> list[str]:
        """The refinements that wrote the memory since."""
        last = self.entries[-1]
        return [step.refinement_id for step in self.trace.values() if step.entry_id > last and step.refinement_id]

    def _decision_on_a_toggle(self) -> Decision:
        """An admin's toggle, or the undo of one. A flag that an admin set again since stays as it is."""
        if self._was_toggled_since or self.before is None or self.memory.constitutional == self.before.constitutional:
            return Decision.ALREADY_RESTORED
        is_same = self.trace.origin(self.memory.entry_id) == self.trace.origin(self.entries[0])
        return Decision.RESTORE if is_same else Decision.CONFLICT

    @property
    def _was_toggled_since(self) -> bool:
        return self.trace.was_toggled_after(self.entries[0])


def read_cases(entries: Entries, *, lock: bool) -> list[UndoCase]:
    """What these entries wrote, by memory, in the order of ids: locked against other writers if it is to be changed.

    Each trace begins with the first of the entries that wrote any of them.
    """
    session = db.session()
    session.flush()
    rows = _select_cases(entries.query, lock).fetch(session.connection(), entries.values)
    return [_make_case(memory_id, writes) for memory_id, writes in groupby(rows, key=itemgetter(0))]


def _make_case(memory_id: int, writes: Iterable[Row]) -> UndoCase:
    trace, entries, before, row = Trace(), list[int](), None, Row()
    for row in writes:
        trace[row[1]] = MemoryWrite._make(row[:_IS_OF_ENTRIES])
        if row[_IS_OF_ENTRIES]:
            before = before if entries else _state_before(memory_id, row)
            entries.append(row[1])
    return UndoCase(PresentMemory(memory_id, *row[_MEMORY:_BEFORE]), entries, before, trace)


def _state_before(memory_id: int, row: Row) -> RecordedState | None:
    """None where the write was the memory's first."""
    is_before = row[_BEFORE] is not None and row[_BEFORE] < row[1]
    return RecordedState(memory_id, *row[_BEFORE:]) if is_before else None


_IS_OF_ENTRIES = len(MemoryWrite._fields)
_MEMORY = _IS_OF_ENTRIES + 1
_BEFORE = _MEMORY + len(PresentMemory._fields) - 1
"""Where in a row the parts behind the write begin: the memory's, and the state's before it, both without the id."""


@cache
def _select_cases(entries: Select[tuple[int]], lock: bool) -> Prepared:
    """Every write since the first of these entries to what they wrote, with the memory and the state before."""
    of_entries, earlier = aliased(MemoryState), aliased(MemoryState)
    first = select(func.min(of_entries.entry_id)).where(of_entries.entry_id.in_(entries)).scalar_subquery()
    is_earlier = and_(earlier.memory_id == MemoryState.memory_id, earlier.entry_id == MemoryState.previous_entry_id)
    query = (
        select(*WRITE_COLUMNS, MemoryState.entry_id.in_(entries), *memory_columns()[1:], *state_columns(earlier)[1:])
        .select_from(MemoryState)
        .join(AuditLog, AuditLog.id == MemoryState.entry_id)
        .join(Memory, Memory.id == MemoryState.memory_id)
        .outerjoin(earlier, is_earlier)
        .where(MemoryState.memory_id.in_(written_by(entries)), MemoryState.entry_id >= first)
        .order_by(MemoryState.memory_id, MemoryState.entry_id)
    )
    return Prepared(lock_row(query, of=cast(Table, Memory.__table__)) if lock else query)
