"""Outcomes: what the rows of refinements and rollbacks say of themselves, against the entries that made them so."""

from __future__ import annotations

from sqlalchemy import and_, exists, func, select
from sqlalchemy.orm import load_only

from app.extensions import db
from app.history.difference import Difference, entry_difference, entry_name, stream_rows
from app.models import Action, Agent, AgentKey, AuditLog, Refinement, Rollback
from app.values.mass_story import NOUNS


def check_forgotten(agent: Agent) -> None:
    """Raises Difference when there are keys for an agent that was forgotten: somebody put them back."""
    keys = select(func.count(AgentKey.id)).where(AgentKey.agent_id == agent.id)
    if agent.forgotten_at is not None and (count := db.session.scalar(keys)):
        raise Difference(f"the agent was forgotten, but {count} of its keys are there again.")


def check_refinements(agent: Agent) -> None:
    """What is open was ended by no entry, and what ended did so as its entry says. Raises Difference."""
    ended_by = and_(AuditLog.refinement_id == Refinement.id, AuditLog.action == Action.REFINEMENT_END)
    rows = (
        select(Refinement, AuditLog)
        .options(load_only(Refinement.status, *_COUNTS))
        .outerjoin(AuditLog, ended_by)
        .where(Refinement.agent_id == agent.id)
        .order_by(Refinement.requested_at, Refinement.id)
    )
    for refinement, entry in stream_rows(rows):
        what = f"refinement {refinement.id}"
        if entry is None:
            if not refinement.is_open:
                raise Difference(f"{what} is {refinement.status}, but no entry ended it.")
            continue
        if refinement.status != entry.data.get("status"):
            raise Difference(f"{what} is {refinement.status}, but {entry_name(entry)} ended it otherwise.", entry.id)
        if (refinement.stats, refinement.calls) != (entry.data.get("stats"), entry.data.get("calls")):
            raise Difference(f"the counts of {what} are not what {entry_name(entry)} says.", entry.id)


def check_snapshots(agent: Agent) -> None:
    """Each names the entry of its snapshot, if it came so far. Raises Difference."""
    taken = and_(AuditLog.refinement_id == Refinement.id, AuditLog.action == Action.REFINEMENT_SNAPSHOT)
    wrong = select(Refinement.id).outerjoin(AuditLog, taken).where(Refinement.agent_id == agent.id)
    wrong = wrong.where(Refinement.snapshot_entry_id.is_distinct_from(AuditLog.id)).order_by(Refinement.id).limit(1)
    for refinement_id in db.session.scalars(wrong):
        raise Difference(f"snapshot_entry_id of refinement {refinement_id} is not the entry of its snapshot.")


def check_rollbacks(agent: Agent) -> None:
    """Each has its entry, each entry of the Time Machine its row, and both say the same. Raises Difference."""
    rows = select(Rollback, AuditLog).outerjoin(AuditLog, AuditLog.id == Rollback.entry_id)
    for rollback, entry in stream_rows(rows.where(Rollback.agent_id == agent.id).order_by(Rollback.entry_id)):
        if entry is None or entry.action != Action.ROLLBACK or entry.chain != agent.chain:
            raise Difference(f"rollback {rollback.id} has no entry in the log.", rollback.entry_id)
        if _of_row(rollback) != _of_entry(entry):
            raise Difference(f"rollback {rollback.id} is not what {entry_name(entry)} says.", entry.id)
    lone = select(AuditLog).where(AuditLog.chain == agent.chain, AuditLog.action == Action.ROLLBACK)
    its_own = exists().where(Rollback.entry_id == AuditLog.id, Rollback.agent_id == agent.id)
    for entry in db.session.scalars(lone.where(~its_own).limit(1)):
        raise entry_difference(entry, "is a rollback whose row is gone.")


_COUNTS = (
    *(getattr(Refinement, name) for name in NOUNS),
    Refinement.memories_merged,
    Refinement.memories_before,
    Refinement.memories_after,
    Refinement.refused,
    Refinement.calls,
)


def _of_row(rollback: Rollback) -> dict[str, object]:
    names = ("kind", "reversed", "mass_before", "mass_after", "undid", "redid", "at")
    return {name: getattr(rollback, name) for name in names} | {
        "rollback": rollback.id,
        "refinement": rollback.refinement_id,
        "entry": rollback.target_entry_id,
        "of": rollback.rollback_id,
        "account": rollback.account_id,
        "by": rollback.requested_by,
    }


def _of_entry(entry: AuditLog) -> dict[str, object]:
    data = entry.data
    names = ("rollback", "kind", "refinement", "entry", "of", "mass_before", "mass_after", "undid", "redid")
    reversed_ = [data.get(name, 0) for name in ("restored", "removed")]
    written = {"reversed": sum(reversed_), "by": entry.actor, "account": entry.account_id, "at": entry.at}
    return {name: data.get(name) for name in names} | written
