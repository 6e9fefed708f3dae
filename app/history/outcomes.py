"""Outcomes: what the rows of refinements and rollbacks say of themselves, against the entries that made them so."""

from __future__ import annotations

from contextlib import closing

from sqlalchemy import and_, exists, select
from sqlalchemy.orm import load_only

from app.extensions import db
from app.history.difference import entry_name, owner_difference
from app.models import Action, Agent, AuditLog, Refinement, Rollback
from app.values.mass_story import NOUNS

BATCH = 500


class Undone:
    """What the entries say is undone: by the id of a refinement or rollback, the rollback that stands against it."""

    def __init__(self) -> None:
        self._by: dict[str, tuple[str, str, int]] = {}

    def take(self, entry: AuditLog) -> None:
        """The next entry of the agent's chain."""
        if entry.action != Action.ROLLBACK:
            return
        for undone in _listed_ids(entry, "undid"):
            self._by[undone] = str(entry.data.get("rollback")), entry_name(entry), entry.id
        for redone in _listed_ids(entry, "redid"):
            self._by.pop(redone, None)

    def compare(self, agent: Agent) -> None:
        """Raises Difference unless the rows say the same."""
        left = dict(self._by)
        for model in (Refinement, Rollback):
            what = model.__name__.lower()
            rows = select(model.id, model.undone_by).where(model.agent_id == agent.id, model.undone_by.is_not(None))
            for number, undone_by in db.session.execute(rows.order_by(model.id)).tuples():
                said, entry, entry_id = left.pop(number, ("", "no entry", None))
                if undone_by != said:
                    raise owner_difference(
                        agent, f"{what} {number} counts as undone, but {entry} undid it so.", entry_id
                    )
        for number, (_, entry, entry_id) in left.items():
            raise owner_difference(agent, f"{entry} undid {number}, but its row does not say so.", entry_id)


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
    with closing(db.session.execute(rows.execution_options(yield_per=BATCH))) as found:
        for refinement, entry in found.tuples():
            what = f"refinement {refinement.id}"
            if entry is None and not refinement.is_open:
                raise owner_difference(agent, f"{what} is {refinement.status}, but no entry ended it.")
            if entry is not None and refinement.status != entry.data.get("status"):
                raise owner_difference(
                    agent, f"{what} is {refinement.status}, but {entry_name(entry)} ended it otherwise.", entry.id
                )
            if entry is not None and (refinement.stats, refinement.calls) != (
                entry.data.get("stats"),
                entry.data.get("calls"),
            ):
                raise owner_difference(agent, f"the counts of {what} are not what {entry_name(entry)} says.", entry.id)


def check_snapshots(agent: Agent) -> None:
    """Each names the entry of its snapshot, if it came so far. Raises Difference."""
    taken = and_(AuditLog.refinement_id == Refinement.id, AuditLog.action == Action.REFINEMENT_SNAPSHOT)
    wrong = select(Refinement.id).outerjoin(AuditLog, taken).where(Refinement.agent_id == agent.id)
    wrong = wrong.where(Refinement.snapshot_entry_id.is_distinct_from(AuditLog.id)).order_by(Refinement.id).limit(1)
    for refinement_id in db.session.scalars(wrong):
        raise owner_difference(
            agent, f"snapshot_entry_id of refinement {refinement_id} is not the entry of its snapshot."
        )


def check_rollbacks(agent: Agent) -> None:
    """Each has its entry, each entry of the Time Machine its row, and both say the same. Raises Difference."""
    rows = select(Rollback, AuditLog).outerjoin(AuditLog, AuditLog.id == Rollback.entry_id)
    rows = rows.where(Rollback.agent_id == agent.id).order_by(Rollback.entry_id)
    with closing(db.session.execute(rows.execution_options(yield_per=BATCH))) as found:
        for rollback, entry in found.tuples():
            if entry is None or entry.action != Action.ROLLBACK or entry.chain != agent.chain:
                raise owner_difference(agent, f"rollback {rollback.id} has no entry in the log.", rollback.entry_id)
            if _of_row(rollback) != _of_entry(entry):
                raise owner_difference(agent, f"rollback {rollback.id} is not what {entry_name(entry)} says.", entry.id)
    lone = select(AuditLog).where(AuditLog.chain == agent.chain, AuditLog.action == Action.ROLLBACK)
    its_own = exists().where(Rollback.entry_id == AuditLog.id, Rollback.agent_id == agent.id)
    for entry in db.session.scalars(lone.where(~its_own).limit(1)):
        raise owner_difference(agent, f"{entry_name(entry)} is a rollback whose row is gone.", entry.id)


_COUNTS = (
    *(getattr(Refinement, name) for name in NOUNS),
    Refinement.memories_merged,
    Refinement.memories_before,
    Refinement.memories_after,
    Refinement.refused,
    Refinement.calls,
)


def _listed_ids(entry: AuditLog, name: str) -> list[str]:
    found = entry.data.get(name)
    return [str(each) for each in found] if isinstance(found, list) else []


def _of_row(rollback: Rollback) -> dict[str, object]:
    return {
        "rollback": rollback.id,
        "kind": rollback.kind,
        "refinement": rollback.refinement_id,
        "entry": rollback.target_entry_id,
        "of": rollback.rollback_id,
        "account": rollback.account_id,
        "at": rollback.at,
        "reversed": rollback.reversed,
        "mass_before": rollback.mass_before,
        "mass_after": rollback.mass_after,
        "undid": rollback.undid,
        "redid": rollback.redid,
        "by": rollback.requested_by,
    }


def _of_entry(entry: AuditLog) -> dict[str, object]:
    data = entry.data
    names = ("rollback", "kind", "refinement", "entry", "of", "mass_before", "mass_after", "undid", "redid")
    reversed_ = [data.get(name, 0) for name in ("restored", "removed")]
    written = {"reversed": sum(reversed_), "by": entry.actor, "account": entry.account_id, "at": entry.at}
    return {name: data.get(name) for name in names} | written
