"""Undo cases: what some audit entries wrote of a memory, how it was before and is now, and what follows from that.

All of it is read by one statement, a row for each write. Who else wrote a memory is read only where somebody did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple, cast

from sqlalchemy import Select, Table, and_, select
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
)
from app.models import Action, AuditLog, Memory, MemoryState
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
    """One memory in an undo of entries. `before` is its state before them, None when these entries made it.

    `writes` are what they wrote of it, oldest first, as rows; `who` tells action and refinement by entry. Where
    `is_theirs_alone`, nobody else wrote it since the first of them, as each write names the one before it. Else there
    is more to its `history`, to be read.
    """

    memory: PresentMemory
    before: RecordedState | None
    writes: Sequence[Row]
    who: Mapping[int, Sequence[Any]]
    is_theirs_alone: bool
    history: Trace | None = None

    @property
    def trace(self) -> Trace:
        """All that is known of who wrote it."""
        own = [MemoryWrite._make((*row[:_MEMORY], *self.who[row[_ENTRY]])) for row in self.writes]
        return Trace({write.entry_id: write for write in own}) if self.history is None else self.history

    def decision(self) -> Decision:
        return self._decision_on_one_write() if self._is_one_write else self.decision_by_trace()

    def _decision_on_one_write(self) -> Decision:
        """What the trace comes to where it has one write: the memory shows what that wrote, or what it restored."""
        before, row = self.before, self.writes[0]
        is_toggle = self.who[row[_ENTRY]][0] == _TOGGLE
        if before is None:
            is_restored = is_toggle or not self.memory.is_active
        elif is_toggle or row[_RESTORES] == before.origin_entry_id:
            is_restored = self.memory.constitutional == before.constitutional
        else:
            is_restored = False
        return Decision.ALREADY_RESTORED if is_restored else Decision.RESTORE

    def decision_by_trace(self) -> Decision:
        """The rule itself."""
        memory, before, entries, trace = self.memory, self.before, self._entries, self.trace
        written = [trace.origin(entry_id) for entry_id in entries]
        was = None if before is None else trace.origin(before.origin_entry_id)
        if trace[entries[0]].is_toggle or (before is not None and written == [was] * len(written)):
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
        """Whether what was not read of the history could change the decision: others' writes since, or an admin's flag
        set before."""
        if not self.is_theirs_alone:
            return True
        if decision is Decision.RESTORE and self.before is not None:
            now, then = self.memory, self.before
            is_same = now.is_active == then.is_active and now.type == then.type
            return is_same and now.token_estimate == then.token_estimate
        return decision is Decision.CONFLICT

    def change(self) -> MemoryReversal:
        if self.before is None:
            return MemoryReversal(self.memory, None, False)
        holder = self.memory if self._was_toggled_since else self.before
        return MemoryReversal(self.memory, self.before, bool(holder.constitutional))

    def later_refinements(self) -> list[str]:
        """The refinements that wrote the memory since."""
        last = self._entries[-1]
        return [step.refinement_id for step in self.trace.values() if step.entry_id > last and step.refinement_id]

    def _decision_on_a_toggle(self) -> Decision:
        """An admin's toggle, or the undo of one. A flag that an admin set again since stays as it is."""
        if self._was_toggled_since or self.before is None or self.memory.constitutional == self.before.constitutional:
            return Decision.ALREADY_RESTORED
        is_same = self.trace.origin(self.memory.entry_id) == self.trace.origin(self._entries[0])
        return Decision.RESTORE if is_same else Decision.CONFLICT

    @property
    def _was_toggled_since(self) -> bool:
        return not self._is_one_write and self.trace.was_toggled_after(self._entries[0])

    @property
    def _is_one_write(self) -> bool:
        return self.is_theirs_alone and len(self.writes) == 1

    @property
    def _entries(self) -> Sequence[int]:
        return [row[_ENTRY] for row in self.writes]


def read_cases(entries: Entries, *, lock: bool) -> list[UndoCase]:
    """What these entries wrote, by memory, in the order of ids: locked against other writers if it is to be changed."""
    session = db.session()
    session.flush()
    connection, writes = session.connection(), dict[int, list[Row]]()
    who = {number: of for number, *of in _select_entries(entries.query).fetch(connection, entries.values)}
    for row in _select_writes(entries.query, lock).fetch(connection, entries.values):
        writes.setdefault(row[0], []).append(row)
    return [_make_case(rows, who) for rows in writes.values()]


def _make_case(rows: Sequence[Row], who: Mapping[int, Sequence[Any]]) -> UndoCase:
    first, last = rows[0], rows[-1]
    memory, state = PresentMemory._make(first[_MEMORY:_BEFORE]), RecordedState._make(first[_BEFORE:])
    is_theirs_alone = memory.entry_id == last[_ENTRY]
    if first is not last:
        is_theirs_alone &= all(then[_PREVIOUS] == row[_ENTRY] for row, then in pairwise(rows))
    has_earlier = state.entry_id is not None and state.entry_id < first[_ENTRY]
    return UndoCase._make((memory, state if has_earlier else None, rows, who, is_theirs_alone, None))


_OF_ENTRY = (AuditLog.action, AuditLog.refinement_id)
_OF_STATE = WRITE_COLUMNS[: -len(_OF_ENTRY)]
_ENTRY, _PREVIOUS, _RESTORES = map(MemoryWrite._fields.index, ("entry_id", "previous_entry_id", "restores_entry_id"))
_MEMORY = len(_OF_STATE)
_BEFORE = _MEMORY + len(PresentMemory._fields)
"""Where in a row the memory begins, and the state before the write."""

_TOGGLE = Action.CONSTITUTIONAL_TOGGLE


@cache
def _select_entries(entries: Select[tuple[int]]) -> Prepared:
    return Prepared(select(AuditLog.id, *_OF_ENTRY).where(AuditLog.id.in_(entries)))


@cache
def _select_writes(entries: Select[tuple[int]], lock: bool) -> Prepared:
    """Every write of these entries, with the memory and the state before the write."""
    earlier = aliased(MemoryState)
    is_earlier = and_(earlier.memory_id == MemoryState.memory_id, earlier.entry_id == MemoryState.previous_entry_id)
    query = (
        select(*_OF_STATE, *memory_columns(), *state_columns(earlier))
        .select_from(MemoryState)
        .join(Memory, Memory.id == MemoryState.memory_id)
        .outerjoin(earlier, is_earlier)
        .where(MemoryState.entry_id.in_(entries))
        .order_by(MemoryState.memory_id, MemoryState.entry_id)
    )
    return Prepared(lock_row(query, of=cast(Table, Memory.__table__)) if lock else query)
