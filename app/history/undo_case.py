"""Undo cases: what some audit entries wrote of a memory, how it was before and is now, and what follows from that.

All of it is read by one statement, a row for each write. Who else wrote a memory is read only where somebody did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from functools import cache, reduce
from itertools import pairwise
from operator import add
from typing import Any, NamedTuple, cast

from sqlalchemy import ColumnElement, Integer, Select, Table, Text, and_, bindparam, case, func, literal_column, select
from sqlalchemy import cast as sql_cast
from sqlalchemy.orm import aliased

from app.extensions import db
from app.history.trace import Entries, MemoryReversal, MemoryWrite, PresentMemory, RecordedState, Trace
from app.models import Action, AuditLog, Memory, MemoryState, MemoryText, MemoryType
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
    """Somebody else wrote it since."""
    ALTERED = auto()
    """Its history does not hold together: rows were altered past the application."""


class UndoCase(NamedTuple):
    """One memory in an undo of entries. `before` is its state before them, None when these entries made it.

    `writes` are what they wrote of it, oldest first, as rows; `who` tells action and refinement by entry. Where
    `is_theirs_alone`, nobody else wrote it since the first of them. Else there is more to its `history`, to be read.
    `is_own_text`: what it would get back is one of its own texts.
    """

    memory: PresentMemory
    before: RecordedState | None
    writes: Sequence[Row]
    who: Mapping[int, Sequence[Any]]
    is_theirs_alone: bool
    is_own_text: bool = True
    history: Trace | None = None

    @property
    def trace(self) -> Trace:
        """All that is known of who wrote it."""
        own = [_make_write(row, self.who) for row in self.writes]
        return Trace({write.entry_id: write for write in own}) if self.history is None else self.history

    def decision(self) -> Decision:
        if not self.is_own_text or (self.history is not None and not self.history.leads_to(self.memory)):
            return Decision.ALTERED
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
        return _ALREADY_RESTORED if is_restored else _RESTORE

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
        if decision is _RESTORE and self.before is not None:
            now, then = self.memory, self.before
            is_same = now.is_active == then.is_active and now.type == then.type
            return is_same and now.token_estimate == then.token_estimate
        return decision is Decision.CONFLICT

    def change(self) -> MemoryReversal:
        if self.before is None:
            return MemoryReversal(self.memory, None, False)
        holder = self.memory if self._was_toggled_since else self.before
        return tuple.__new__(MemoryReversal, (self.memory, self.before, holder.constitutional))

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


def read_cases(entries: Entries, agent_id: int, *, lock: bool) -> list[UndoCase]:
    """What these entries wrote, by memory, in the order of ids: locked against other writers if it is to be changed.

    Of the agent's own memories: what an entry claims to have written of others' is none of its undo.
    """
    session = db.session()
    session.flush()
    connection, values, writes = session.connection(), {**entries.values, "agent": agent_id}, dict[int, list[Row]]()
    who = {number: of for number, *of in _select_entries(entries.query).fetch(connection, entries.values)}
    for row in _select_writes(entries.query, lock).fetch(connection, values):
        writes.setdefault(row[0], []).append(row)
    return [_make_case(rows, who) for rows in writes.values()]


def _make_case(rows: Sequence[Row], who: Mapping[int, Sequence[Any]], new: Any = tuple.__new__) -> UndoCase:
    """With `new`, past the constructors of its tuples: these are calls of Python, for each of hundreds."""
    first, last = rows[0], rows[-1]
    number, _, previous, _, present, tokens, restores, tags, tokens_before, facts = first
    immutable, flag, is_active, type_, is_erased, *of_before, is_own_text = _facts_of(facts % (1 << _WROTE_FLAG))
    memory = new(PresentMemory, (number, present, immutable, flag, is_active, type_, tokens, is_erased))
    is_theirs_alone, before = present == last[_ENTRY] and facts >> _SINCE == len(rows), None
    if previous is not None:
        before = new(RecordedState, (number, previous, restores, tags or "[]", *of_before, tokens_before))
    if first is not last:
        is_theirs_alone &= all(then[_PREVIOUS] == row[_ENTRY] for row, then in pairwise(rows))
    is_own_text |= previous is None
    case: UndoCase = new(UndoCase, (memory, before, rows, who, is_theirs_alone, is_own_text, None))
    return case


def _make_write(row: Row, who: Mapping[int, Sequence[Any]]) -> MemoryWrite:
    number, entry_id, previous, restores = row[: _RESTORES + 1]
    return MemoryWrite(number, entry_id, previous, restores, bool(row[_FACTS] >> _WROTE_FLAG & 1), *who[entry_id])


_ENTRY, _PREVIOUS, _RESTORES, _FACTS = 1, 2, 3, 9
"""Where these stand in a row of `_select_writes`."""

_WROTE_FLAG, _SINCE = 9, 10
"""Bits of a row's facts behind those of `_facts_of`: the flag that was written, and from there how many states of the
memory are newer than the one before the write."""

_TOGGLE = Action.CONSTITUTIONAL_TOGGLE
_RESTORE, _ALREADY_RESTORED = Decision.RESTORE, Decision.ALREADY_RESTORED


@cache
def _facts_of(facts: int) -> tuple[Any, ...]:
    """What the lower bits of a row's facts say: five of the memory, three of the state before, and of its text."""
    said: list[Any] = [bool(facts >> place & 1) for place in range(_WROTE_FLAG)]
    said[3], said[7] = (MemoryType.CORE if is_core else MemoryType.JOURNAL for is_core in (said[3], said[7]))
    return tuple(said)


@cache
def _select_entries(entries: Select[tuple[int]]) -> Prepared:
    return Prepared(select(AuditLog.id, AuditLog.action, AuditLog.refinement_id).where(AuditLog.id.in_(entries)))


@cache
def _select_writes(entries: Select[tuple[int]], lock: bool) -> Prepared:
    """Every write of these entries, with the memory and the state before the write.

    What is true or false of a row is one number: a driver takes as long for each value as a database for finding it.
    """
    earlier, other = aliased(MemoryState), aliased(MemoryState)
    is_earlier = and_(earlier.memory_id == MemoryState.memory_id, earlier.entry_id == MemoryState.previous_entry_id)
    is_since = other.entry_id > func.coalesce(MemoryState.previous_entry_id, NO_EARLIER_STATE)
    since = select(func.count()).where(other.memory_id == MemoryState.memory_id, is_since).scalar_subquery()
    is_text = (MemoryText.memory_id == MemoryState.memory_id, MemoryText.content_digest == earlier.content_digest)
    facts = (
        *(Memory.immutable, Memory.constitutional, Memory.discarded_at.is_(None), Memory.type == MemoryType.CORE),
        Memory.erased_at.is_not(None),
        *(earlier.constitutional, earlier.discarded_at.is_(None), earlier.type == MemoryType.CORE),
        select(MemoryText.memory_id).where(*is_text).exists(),
        MemoryState.constitutional,
    )
    query = (
        select(
            *(MemoryState.memory_id, MemoryState.entry_id, MemoryState.previous_entry_id),
            *(MemoryState.restores_entry_id, Memory.entry_id, Memory.token_estimate),
            *(earlier.restores_entry_id, func.nullif(sql_cast(earlier.tags, Text), "[]"), earlier.token_estimate),
            _packed(facts) + since * _constant(1 << _SINCE),
        )
        .select_from(MemoryState)
        .join(Memory, Memory.id == MemoryState.memory_id)
        .outerjoin(earlier, is_earlier)
        .where(MemoryState.entry_id.in_(entries), Memory.agent_id == bindparam("agent", type_=Integer))
        .order_by(MemoryState.memory_id, MemoryState.entry_id)
    )
    return Prepared(lock_row(query, of=cast(Table, Memory.__table__)) if lock else query)


def _packed(facts: Sequence[Any]) -> ColumnElement[int]:
    """A number with a bit for each of these, the first one's the lowest."""
    return reduce(add, [case((fact, _constant(1 << place)), else_=_constant(0)) for place, fact in enumerate(facts)])


def _constant(number: int) -> ColumnElement[int]:
    return literal_column(str(number), Integer)
