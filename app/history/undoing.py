"""Undoing: what taking back some audit entries means for each memory that they wrote.

A memory may go back when it shows the work of these entries; it need not when it shows what was there before them; and
it is in conflict when it shows somebody else's work. Whose work a state shows is told by its origin, not by its bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto

from sqlalchemy import and_, select
from sqlalchemy.orm import aliased

from app.extensions import db
from app.history.trace import (
    STATES,
    Entries,
    MemoryReversal,
    PlanFindings,
    PresentMemory,
    Recorded,
    Trace,
    present_memories,
    read_states,
    read_traces,
    written_by,
)
from app.models import MemoryState, Refinement, Status
from app.models.state import NOTHING


def plan_undo(entries: Entries, *, lock: bool) -> PlanFindings:
    """What it takes to undo all of these entries, and nothing else."""
    written = _memory_writes(entries)
    if not written:
        return PlanFindings()
    before = _states_before(entries, written)
    found = read_traces(written_by(entries), since=min(writes[0] for writes in written.values()))
    ways = [
        _Way(memory, written[memory.id], before.get(memory.id), found[memory.id])
        for memory in present_memories(written_by(entries), lock=lock)
    ]
    return _collect_findings(_looked_at_twice(ways, entries))


def _looked_at_twice(ways: list[_Way], entries: Entries) -> list[tuple[_Way, _Verdict]]:
    """If an earlier toggle could explain a verdict, read the memory's whole history and judge again."""
    judged = [(way, way.verdict()) for way in ways]
    if not any(way.is_doubtful(verdict) for way, verdict in judged):
        return judged
    whole = read_traces(written_by(entries), since=0)
    again = [replace(way, trace=whole[way.memory.id]) for way in ways]
    return [
        (way, way.verdict() if first.is_doubtful(verdict) else verdict)
        for way, (first, verdict) in zip(again, judged, strict=True)
    ]


def _collect_findings(judged: list[tuple[_Way, _Verdict]]) -> PlanFindings:
    changes = tuple(way.change() for way, verdict in judged if verdict is _Verdict.GOES_BACK)
    conflicts = [way for way, verdict in judged if verdict is _Verdict.CONFLICT]
    stays = tuple(way.memory.id for way, verdict in judged if verdict is _Verdict.STAYS)
    later = dict.fromkeys(number for way in conflicts for number in way.later_refinements())
    return PlanFindings(changes, tuple(way.memory.id for way in conflicts), stays, _standing_refinements(later))


def _standing_refinements(refinement_ids: Collection[str]) -> tuple[str, ...]:
    """Those whose work was not taken back, by the Time Machine or by the latch: the others are in nobody's way."""
    if not refinement_ids:
        return ()
    stands = (Refinement.undone_by.is_(None), Refinement.status != Status.ROLLED_BACK)
    found = set(db.session.scalars(select(Refinement.id).where(Refinement.id.in_(refinement_ids), *stands)))
    return tuple(each for each in refinement_ids if each in found)


class _Verdict(Enum):
    IS_BACK = auto()
    """It is already as it was before."""
    GOES_BACK = auto()
    STAYS = auto()
    """These entries made it, and an admin made it constitutional since."""
    CONFLICT = auto()


@dataclass(frozen=True)
class _Way:
    """One memory between what an undo finds and what it gives back. `before` is None when these entries made it."""

    memory: PresentMemory
    entries: tuple[int, ...]
    before: Recorded | None
    trace: Trace

    def verdict(self) -> _Verdict:
        if self._changed_the_flag_only:
            return self._verdict_on_a_toggle()
        origin = self.trace.origin(self.memory.entry_id)
        is_ours = any(origin == self.trace.origin(entry_id) for entry_id in self.entries)
        if self._is_back(origin, is_ours):
            return _Verdict.IS_BACK
        if not is_ours:
            return _Verdict.CONFLICT
        protected = self.before is None and self.memory.constitutional and self._was_toggled_since
        return _Verdict.STAYS if protected else _Verdict.GOES_BACK

    def is_doubtful(self, verdict: _Verdict) -> bool:
        """A conflict, or a way back to what looks the same but for the flag."""
        if verdict is _Verdict.GOES_BACK and self.before is not None:
            now, then = self.memory, self.before
            return (now.is_active, now.type, now.token_estimate) == (then.is_active, then.type, then.token_estimate)
        return verdict is _Verdict.CONFLICT

    def change(self) -> MemoryReversal:
        if self.before is None:
            return MemoryReversal(self.memory, None, False)
        holder = self.memory if self._was_toggled_since else self.before
        return MemoryReversal(self.memory, self.before, holder.constitutional)

    def later_refinements(self) -> list[str]:
        """Those that wrote it since."""
        later = [step for step in self.trace.values() if step.entry_id > self.entries[-1]]
        return [step.refinement_id for step in later if step.refinement_id is not None]

    def _is_back(self, origin: int | None, is_ours: bool) -> bool:
        if self.before is not None:
            return origin == self.trace.origin(self.before.origin_entry_id)
        return not self.memory.is_active and (is_ours or origin == NOTHING)

    def _verdict_on_a_toggle(self) -> _Verdict:
        """A flag that an admin set again since stays as it is."""
        if self._was_toggled_since or self.before is None or self.memory.constitutional == self.before.constitutional:
            return _Verdict.IS_BACK
        is_same = self.trace.origin(self.memory.entry_id) == self.trace.origin(self.entries[0])
        return _Verdict.GOES_BACK if is_same else _Verdict.CONFLICT

    @property
    def _changed_the_flag_only(self) -> bool:
        """An admin's toggle, or the undo of one."""
        if self.trace[self.entries[0]].is_toggle:
            return True
        if self.before is None:
            return False
        was = self.trace.origin(self.before.origin_entry_id)
        return all(self.trace.origin(entry_id) == was for entry_id in self.entries)

    @property
    def _was_toggled_since(self) -> bool:
        return self.trace.was_toggled_after(self.entries[0])


def _memory_writes(entries: Entries) -> dict[int, tuple[int, ...]]:
    """By memory id: those of the entries that wrote it, oldest first."""
    query = select(MemoryState.memory_id, MemoryState.entry_id).where(MemoryState.entry_id.in_(entries))
    found: dict[int, list[int]] = defaultdict(list)
    for memory_id, entry_id in db.session.execute(query.order_by(MemoryState.entry_id)).tuples():
        found[memory_id].append(entry_id)
    return {memory_id: tuple(entry_ids) for memory_id, entry_ids in found.items()}


def _states_before(entries: Entries, written: Mapping[int, tuple[int, ...]]) -> dict[int, Recorded]:
    """By memory id: the state just before the first of the entries that wrote it; none for what they made."""
    later = aliased(MemoryState)
    is_previous = and_(later.memory_id == MemoryState.memory_id, later.previous_entry_id == MemoryState.entry_id)
    states = read_states(STATES.join(later, is_previous).where(later.entry_id.in_(entries)))
    return {state.memory_id: state for state in states if state.entry_id < written[state.memory_id][0]}
