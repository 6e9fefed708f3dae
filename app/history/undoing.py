"""Undoing and rewinding: what taking back some audit entries, or all work since one, means for each memory.

In an undo, a memory may go back when it shows the work of these entries; it need not when it shows what was there
before them; and it is in conflict when it shows somebody else's work. Whose work a state shows is told by its origin,
not by its bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from sqlalchemy import and_, exists, func, or_, select
from sqlalchemy.orm import aliased

from app.extensions import db
from app.history.trace import (
    STATES,
    Entries,
    MemoryReversal,
    MemoryWrite,
    PlanFindings,
    PresentMemory,
    Recorded,
    Trace,
    present_memories,
    read_states,
    read_traces,
    written_by,
)
from app.models import Action, AuditLog, MemoryState, Refinement, Rollback, Status
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
    entries: Sequence[int]
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
        last = self.entries[-1]
        return [step.refinement_id for step in self.trace.values() if step.entry_id > last and step.refinement_id]

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


def _memory_writes(entries: Entries) -> dict[int, list[int]]:
    """By memory id: those of the entries that wrote it, oldest first."""
    query = select(MemoryState.memory_id, MemoryState.entry_id).where(MemoryState.entry_id.in_(entries))
    found: dict[int, list[int]] = {}
    for memory_id, entry_id in db.session.execute(query.order_by(MemoryState.entry_id)).tuples():
        found.setdefault(memory_id, []).append(entry_id)
    return found


def _states_before(entries: Entries, written: Mapping[int, Sequence[int]]) -> dict[int, Recorded]:
    """By memory id: the state just before the first of the entries that wrote it; none for what they made."""
    later = aliased(MemoryState)
    is_previous = and_(later.memory_id == MemoryState.memory_id, later.previous_entry_id == MemoryState.entry_id)
    states = read_states(STATES.join(later, is_previous).where(later.entry_id.in_(entries)))
    return {state.memory_id: state for state in states if state.entry_id < written[state.memory_id][0]}


_Undone = tuple[int | None, int]
"""What a rollback took back: one entry, or the work of refinements since an entry."""


def plan_rewind(agent_id: int, since: int, *, lock: bool) -> PlanFindings:
    """What it takes to be just before the entry `since` again, as if no refinement, dedup or promotion since had run.

    What the agent or an import saved since stays, and so do an admin's toggles and what was undone for other reasons.
    Each memory's writes since are gone through once more, and what is reversed is left out.
    """
    reversible = select(AuditLog.id).where(
        AuditLog.agent_id == agent_id,
        AuditLog.id >= since,
        or_(AuditLog.refinement_id.is_not(None), AuditLog.action == Action.PROMOTE),
    )
    memories = written_by(reversible)
    rollbacks = _rollbacks_since(agent_id, since)
    found = read_traces(memories, since=0)
    goals = {number: _find_goal(trace, since, rollbacks) for number, trace in found.items()}
    states = _goal_states(goals)
    changes: list[MemoryReversal] = []
    stays: list[int] = []
    for memory in present_memories(memories, lock=lock):
        goal, trace = goals[memory.id], found[memory.id]
        if goal.entry_id is not None:
            state = states[memory.id]
            change = MemoryReversal(memory, state, state.constitutional if goal.flag is None else goal.flag)
            changes += [change] if _differs_from_goal(change, trace) else []
        elif memory.is_active and goal.flag:
            stays.append(memory.id)
        elif memory.is_active:
            changes.append(MemoryReversal(memory, None, False))
    return PlanFindings(tuple(changes), stays=tuple(stays), later=_refinements_since(agent_id, since))


def _differs_from_goal(change: MemoryReversal, trace: Trace) -> bool:
    """Whether the memory shows other work than it would, or has another flag."""
    if change.state is None or change.constitutional != change.memory.constitutional:
        return True
    now = trace.origin(change.memory.entry_id, through_protects=True)
    return now != trace.origin(change.state.origin_entry_id, through_protects=True)


@dataclass(frozen=True)
class _Goal:
    """How a memory would be: the entry that wrote its state (None: nothing made it), and an admin's flag since."""

    entry_id: int | None
    flag: bool | None = None
    flagged_at: int = 0


def _find_goal(trace: Trace, since: int, rollbacks: Mapping[int, _Undone]) -> _Goal:
    steps = [step for step in trace.values() if step.entry_id >= since]
    goal = _Goal(steps[0].previous_entry_id)
    before: dict[int, _Goal] = {}
    for step in steps:
        following = _next_goal(step, goal, before, since, rollbacks.get(step.entry_id))
        if following is not None:
            before[step.entry_id], goal = goal, following
    return goal


def _next_goal(
    step: MemoryWrite, goal: _Goal, before: Mapping[int, _Goal], since: int, undone: _Undone | None
) -> _Goal | None:
    """The goal after one more step; None when the step is left out."""
    if step.refinement_id is not None or step.action == Action.PROMOTE:
        return None
    if step.is_toggle:
        return replace(goal, flag=step.constitutional, flagged_at=step.entry_id)
    if undone is None:
        return _Goal(step.entry_id)
    undone_entry, undone_since = undone
    if undone_entry is None or undone_entry < since:
        return None if undone_since >= since else _Goal(step.entry_id)
    if undone_entry not in before:
        return None
    earlier = before[undone_entry]
    return replace(earlier, flag=goal.flag, flagged_at=goal.flagged_at) if goal.flagged_at > undone_entry else earlier


def _rollbacks_since(agent_id: int, since: int) -> dict[int, _Undone]:
    """By its own entry: what each rollback since then took back."""
    first = select(func.min(AuditLog.id)).where(AuditLog.refinement_id == Rollback.refinement_id).scalar_subquery()
    rows = db.session.execute(
        select(Rollback.entry_id, Rollback.target_entry_id, func.coalesce(first, 0)).where(
            Rollback.agent_id == agent_id, Rollback.entry_id >= since
        )
    )
    return {entry_id: (target, began) for entry_id, target, began in rows.tuples()}


def _goal_states(goals: Mapping[int, _Goal]) -> dict[int, Recorded]:
    """By memory id: the state that it goes to."""
    wanted = {(number, goal.entry_id) for number, goal in goals.items() if goal.entry_id is not None}
    query = STATES.where(
        MemoryState.memory_id.in_({number for number, _ in wanted}),
        MemoryState.entry_id.in_({entry_id for _, entry_id in wanted}),
    )
    return {state.memory_id: state for state in read_states(query) if (state.memory_id, state.entry_id) in wanted}


def _refinements_since(agent_id: int, since: int) -> tuple[str, ...]:
    """Those since then that changed memories and whose work stands."""
    wrote = exists().where(MemoryState.entry_id == AuditLog.id)
    began = select(AuditLog.refinement_id).where(AuditLog.agent_id == agent_id, AuditLog.id >= since, wrote)
    query = select(Refinement.id).where(Refinement.id.in_(began), Refinement.undone_by.is_(None))
    return tuple(db.session.scalars(query.order_by(Refinement.requested_at, Refinement.id)))
