"""The Time Machine at work: a plan made and applied in one transaction, recorded as one entry that can be undone."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import cast

from sqlalchemy import String, Table, bindparam, update
from sqlalchemy.orm.attributes import set_committed_value
from sqlalchemy.orm.util import identity_key

from app.errors import Refused
from app.extensions import db, writing
from app.history.plan import Plan, Target, find_target, make_plan
from app.history.reversing import end_unread, give_back
from app.models import Action, Actor, Agent, Refinement, Rollback, RollbackKind, Status, announce
from app.models.audit import queue_note_to_agent
from app.models.memory import AT_ONCE
from app.models.rollback import ROLLED_BACK
from app.prepared import Prepared, one_of, spread

ATTEMPTS = 5
"""A refinement may start between the look and the lock; not five times in a row."""


class RollbackConflict(Refused):
    """Memories changed since."""

    code = "rollback_conflict"

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        super().__init__(_altered_sentence(plan.altered) if plan.altered else _changed_sentence(plan.conflicts))
        self.outcome = "Nothing was undone."


def _changed_sentence(memories: Sequence[int]) -> str:
    return (
        f"Nothing was undone: since then, others changed memory {_listed(memories)}. Undo the later changes first, or "
        "rewind the agent to before the refinement."
    )


def _altered_sentence(memories: Sequence[int]) -> str:
    return (
        f"Nothing was undone: the history of memory {_listed(memories)} was altered behind Whetstone's back. "
        "`./whetstone verify` says where."
    )


def _listed(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:20]))
    return f"{shown} and {len(numbers) - 20:,} more" if len(numbers) > 20 else shown


@dataclass(frozen=True)
class UndoResult:
    """`rollback` is the one that was made; if nothing was left to undo, the one that had undone it, if there is one."""

    rollback: Rollback | None
    plan: Plan
    applied: bool


def roll_back(target: Target, *, by: Actor) -> UndoResult:
    """Undo or rewind, whole or not at all. An open refinement of the agent is ended first, in the same transaction.

    What is undone already is left as it is. Raises NotFound, NothingToUndo, GuardFinal, or RollbackConflict; nothing is
    written then.
    """
    for _ in range(ATTEMPTS):
        done = _try_roll_back(target, by)
        if done is not None:
            return done
    raise Refused("Refinements kept starting in the meantime.", "Nothing was undone; pause the agent and try again.")


def _try_roll_back(target: Target, by: Actor) -> UndoResult | None:
    """None when a refinement started meanwhile: locks go refinement, agent, memories, so it has to begin again.

    None, too, where the open one was reversed because its changes were not read: that is another past to plan from.
    """
    with writing():
        found = find_target(target)
        running = Refinement.open_of(found.agent_id)
        if running is not None:
            running = Refinement.lock(running.id)
        agent = Agent.lock(found.agent_id)
        still = Refinement.open_of(agent.id)
        if still is not None and (running is None or running.id != still.id):
            return None
        plan = make_plan(find_target(target), agent, still, lock=True)
        plan.check_not_final()
        if plan.conflicts:
            raise RollbackConflict(plan)
        if plan.stops and still is not None:
            is_reversed = still.reverses and still.awaits_reading
            end_unread(still, agent, Status.STOPPED, "An admin rolled back; that ended it first.", by=by)
            if is_reversed:
                return None
        if not plan.changes:
            return UndoResult(db.session.get(Rollback, plan.undone_by) if plan.undone_by else None, plan, applied=False)
        return UndoResult(_apply_plan(plan, agent, by), plan, applied=True)


def _apply_plan(plan: Plan, agent: Agent, by: Actor) -> Rollback:
    rollback = _make_rollback(plan, by)
    data = rollback.said(restored=plan.restored, removed=plan.removed, stays=list(plan.stays))
    if plan.erased:
        data["erased"] = list(plan.erased)
    entry = give_back(plan.changes, agent, Action.ROLLBACK, by=by, subject=rollback.subject, data=data)
    rollback.entry_id, rollback.at = entry.id, entry.at
    queue_note_to_agent(entry)
    db.session.add(rollback)
    db.session.flush()
    for ids, mark in ((rollback.undid, rollback.id), (rollback.redid, None)):
        for model in (Refinement, Rollback):
            _mark_undone(model, ids, mark)
    about = {"rollback": rollback.id, "kind": str(rollback.kind)}
    announce(ROLLED_BACK, *agent.audited_as, rollback.refinement_id, **about)
    return rollback


def _mark_undone(model: type[Refinement | Rollback], ids: Sequence[str], by: str | None) -> None:
    """Say of those of these rows that there are which rollback undid them; None for one that stands again."""
    session = db.session()
    for start in range(0, len(ids), AT_ONCE):
        count, named = spread(ids[start : start + AT_ONCE])
        for (number,) in _mark_statement(model, count).fetch(session.connection(), {"by": by, **named}):
            row = session.identity_map.get(identity_key(model, number))
            if row is not None:
                set_committed_value(row, "undone_by", by)


@cache
def _mark_statement(model: type[Refinement | Rollback], count: int) -> Prepared:
    table = cast(Table, model.__table__)
    marked = update(table).where(one_of(table.c.id, count)).values(undone_by=bindparam("by", type_=String))
    return Prepared(marked.returning(table.c.id))


def _make_rollback(plan: Plan, by: Actor) -> Rollback:
    found = plan.found
    undid, redid = _undone_and_redone(plan)
    return Rollback(
        id=str(uuid.uuid4()),
        account_id=found.account_id,
        agent_id=found.agent_id,
        kind=plan.kind,
        refinement_id=found.refinement.id if found.refinement else None,
        target_entry_id=found.entry_id,
        rollback_id=found.rollback.id if found.rollback else None,
        requested_by=str(by),
        reversed=len(plan.changes),
        mass_before=plan.mass_before,
        mass_after=plan.mass_after,
        undid=undid,
        redid=redid,
    )


def _undone_and_redone(plan: Plan) -> tuple[list[str], list[str]]:
    """Refinements and rollbacks whose work is taken back by this, and whose work is given back."""
    found = plan.found
    if found.rollback is not None:
        return [found.rollback.id, *found.rollback.redid], list(found.rollback.undid)
    if plan.kind == RollbackKind.REWIND:
        return list(plan.later), []
    return ([found.refinement.id] if found.refinement else []), []
