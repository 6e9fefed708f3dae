"""The rules of undo and rewind: what reversing some audit entries, or all work since one, means for each memory.

Nothing is changed here. An undo restores a memory whose content these entries wrote. One that holds again what was
there before them is left alone. One whose content somebody else wrote since is a conflict. Who wrote the content of a
state is found by its origin, the entry that first wrote it, and not by comparing bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import exists, func, or_, select

from app.extensions import db
from app.history.trace import (
    STATES,
    Entries,
    MemoryReversal,
    MemoryWrite,
    PlanFindings,
    PresentMemory,
    RecordedState,
    Trace,
    present_memories,
    read_states,
    read_traces,
    written_by,
)
from app.history.undo_case import Decision, UndoCase, read_cases
from app.models import Action, AuditLog, MemoryState, Refinement, Rollback, Status


def plan_undo(entries: Entries, agent_id: int, *, lock: bool) -> PlanFindings:
    """What it takes to undo all of these entries of an agent, and nothing else."""
    found = read_cases(entries, agent_id, lock=lock)
    cases = [case for case in found if not case.memory.is_erased]
    erased = _erased_among([case.memory for case in found]) if len(cases) < len(found) else ()
    return _collect_findings(*_judge_with_full_history(cases, entries), erased)


def _erased_among(memories: Sequence[PresentMemory]) -> tuple[int, ...]:
    return tuple(memory.id for memory in memories if memory.is_erased)


def _judge_with_full_history(cases: list[UndoCase], entries: Entries) -> tuple[list[UndoCase], list[Decision]]:
    """Where the recent part of a history leaves a doubt, read all of it and decide again."""
    decisions = [case.decision() for case in cases]
    if not any(map(UndoCase.is_doubtful, cases, decisions)):
        return cases, decisions
    whole = read_traces(written_by(entries.query), since=0, values=entries.values)
    again = [case._replace(history=whole[case.memory.id]) for case in cases]
    return again, [
        case.decision() if first.is_doubtful(decision) else decision
        for case, first, decision in zip(again, cases, decisions, strict=True)
    ]


def _collect_findings(cases: list[UndoCase], decisions: list[Decision], erased: tuple[int, ...]) -> PlanFindings:
    judged = [*zip(cases, decisions, strict=True)]
    changes = tuple([case.change() for case, decision in judged if decision is Decision.RESTORE])
    conflicts = [case for case, decision in judged if decision in _IN_THE_WAY]
    altered, stays = (
        tuple([case.memory.id for case, decision in judged if decision is wanted])
        for wanted in (Decision.ALTERED, Decision.KEEP)
    )
    later = dict.fromkeys(number for case in conflicts for number in case.later_refinements())
    conflicting = tuple(case.memory.id for case in conflicts)
    return PlanFindings(changes, conflicting, altered, stays, erased, later=_standing_refinements(later))


_IN_THE_WAY = (Decision.CONFLICT, Decision.ALTERED)


def _standing_refinements(refinement_ids: Collection[str]) -> tuple[str, ...]:
    """Those whose work was not reversed, by the Time Machine or by the latch: only they can be in the way."""
    if not refinement_ids:
        return ()
    stands = (Refinement.undone_by.is_(None), Refinement.status != Status.ROLLED_BACK)
    found = set(db.session.scalars(select(Refinement.id).where(Refinement.id.in_(refinement_ids), *stands)))
    return tuple(each for each in refinement_ids if each in found)


_Undone = tuple[int | None, int]
"""What a rollback took back: one entry, or the work of refinements since an entry."""


def plan_rewind(agent_id: int, since: int, *, lock: bool) -> PlanFindings:
    """What it takes to be just before the entry `since` again, as if no refinement, dedup or promotion since had run.

    What the agent or an import saved since stays, and so do an admin's toggles and what was undone for other reasons.
    Each memory's writes since are replayed without those that are reversed.
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
    stays, altered = list[int](), list[int]()
    present = present_memories(memories, lock=lock)
    for memory in present:
        goal, trace = goals[memory.id], found[memory.id]
        if memory.is_erased:
            continue
        if not trace.leads_to(memory):
            altered.append(memory.id)
            continue
        if goal.entry_id is not None:
            state = states[memory.id]
            change = MemoryReversal(memory, state, bool(state.constitutional if goal.flag is None else goal.flag))
            changes += [change] if _differs_from_goal(change, trace) else []
        elif memory.is_active and goal.flag:
            stays.append(memory.id)
        elif memory.is_active:
            changes.append(MemoryReversal(memory, None, False))
    later = _refinements_since(agent_id, since)
    conflicts = tuple(altered)
    return PlanFindings(tuple(changes), conflicts, conflicts, tuple(stays), _erased_among(present), later)


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
    flag_entry_id: int = 0


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
        return replace(goal, flag=bool(step.constitutional), flag_entry_id=step.entry_id)
    if undone is None:
        return _Goal(step.entry_id)
    undone_entry, undone_since = undone
    if undone_entry is None or undone_entry < since:
        return None if undone_since >= since else _Goal(step.entry_id)
    if undone_entry not in before:
        return None
    earlier = before[undone_entry]
    return (
        replace(earlier, flag=goal.flag, flag_entry_id=goal.flag_entry_id)
        if goal.flag_entry_id > undone_entry
        else earlier
    )


def _rollbacks_since(agent_id: int, since: int) -> dict[int, _Undone]:
    """By its own entry: what each rollback since then took back."""
    first = select(func.min(AuditLog.id)).where(AuditLog.refinement_id == Rollback.refinement_id).scalar_subquery()
    rows = db.session.execute(
        select(Rollback.entry_id, Rollback.target_entry_id, func.coalesce(first, 0)).where(
            Rollback.agent_id == agent_id, Rollback.entry_id >= since
        )
    )
    return {entry_id: (target, began) for entry_id, target, began in rows.tuples()}


def _goal_states(goals: Mapping[int, _Goal]) -> dict[int, RecordedState]:
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
