"""Rewinding: every memory as if no refinement, dedup or promotion since a certain entry had run.

What the agent or an import saved since stays, and so do an admin's toggles and what was undone for other reasons. Each
memory's writes since are gone through once more, and what is reversed is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlalchemy import exists, func, or_, select

from app.extensions import db
from app.history.trace import (
    STATES,
    MemoryReversal,
    MemoryWrite,
    PlanFindings,
    Recorded,
    Trace,
    present_memories,
    read_states,
    read_traces,
    written_by,
)
from app.models import Action, AuditLog, MemoryState, Refinement, Rollback


def plan_rewind(agent_id: int, since: int, *, lock: bool) -> PlanFindings:
    """What it takes to be just before the entry `since` again."""
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


@dataclass(frozen=True)
class _Undone:
    """What a rollback took back: one entry, or the work of refinements since an entry."""

    entry_id: int | None
    since: int


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
    if undone.entry_id is None or undone.entry_id < since:
        return None if undone.since >= since else _Goal(step.entry_id)
    if undone.entry_id not in before:
        return None
    earlier = before[undone.entry_id]
    return (
        replace(earlier, flag=goal.flag, flagged_at=goal.flagged_at) if goal.flagged_at > undone.entry_id else earlier
    )


def _rollbacks_since(agent_id: int, since: int) -> dict[int, _Undone]:
    """By its own entry: what each rollback since then took back."""
    first = select(func.min(AuditLog.id)).where(AuditLog.refinement_id == Rollback.refinement_id).scalar_subquery()
    rows = db.session.execute(
        select(Rollback.entry_id, Rollback.target_entry_id, func.coalesce(first, 0)).where(
            Rollback.agent_id == agent_id, Rollback.entry_id >= since
        )
    )
    return {entry_id: _Undone(target, began) for entry_id, target, began in rows.tuples()}


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
