"""Plans: what an undo or a rewind would do, found out before anything is done; ids and counts, never content.

What the latch or the erosion guard reversed is final: it can't be brought back, whichever way would lead there. Only
the agent can do that work again, in a new refinement under the guards. The removal of exact duplicates before is no
part of it: a guard leaves that as it is, so that it can be undone and redone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from sqlalchemy import bindparam, func, select

from app.errors import NotFound, Refused
from app.extensions import db, read_rows
from app.history.log import LogEntry
from app.history.trace import Entries, MemoryReversal, PlanFindings, read_traces
from app.history.undo_rules import plan_rewind, plan_undo
from app.models import Action, Agent, AuditLog, Memory, MemoryState, Refinement, Rollback, RollbackKind
from app.models.audit import OPERATIONS
from app.models.base import read_row
from app.prepared import Prepared, one_of, one_of_these, spread

UNLESS_REVERSED = (*OPERATIONS, Action.REFINEMENT_ROLLBACK)
"""Entries that can be undone, unless a guard reversed their refinement."""


class NothingToUndo(Refused):
    """The entry changed no memory, so there is nothing to undo."""

    code = "nothing_to_undo"


class GuardFinal(Refused):
    """A guard reversed this, and that is final."""

    code = "guard_final"

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        super().__init__(
            f"A guard reversed what refinement {(plan.final or '')[:8]} had done, and that is final: it can't be "
            "brought back. Only the agent can do that work again, in a new refinement under the guards.",
            "Nothing was changed.",
        )


@dataclass(frozen=True)
class Target:
    """What is to be undone. Make it with one of the class methods; `id` is a UUID, or an entry's number."""

    kind: RollbackKind
    id: str

    @classmethod
    def refinement(cls, refinement_id: str) -> Target:
        """One refinement: all that it did, the exact duplicates that it removed included."""
        return cls(RollbackKind.REFINEMENT, refinement_id)

    @classmethod
    def entry(cls, entry_id: int) -> Target:
        """What one audit entry did to memories."""
        return cls(RollbackKind.ENTRY, str(entry_id))

    @classmethod
    def rollback(cls, rollback_id: str) -> Target:
        """An earlier undo or rewind."""
        return cls(RollbackKind.ROLLBACK, rollback_id)

    @classmethod
    def rewind(cls, refinement_id: str) -> Target:
        """Everything that refinements, dedup and promotions did to the agent since just before this refinement."""
        return cls(RollbackKind.REWIND, refinement_id)


@dataclass(frozen=True)
class TargetRows:
    """A target's rows. `undone_by` is the rollback that undid it already.

    `reversed` is the refinement that it is part of, where a guard reversed that: only its dedup is left to undo.
    """

    target: Target
    account_id: int
    agent_id: int
    refinement: Refinement | None = None
    rollback: Rollback | None = None
    entry_id: int | None = None
    undone_by: str | None = None
    reversed: str | None = None

    @property
    def entries(self) -> Entries:
        """The entries that an undo of it takes back."""
        if self.refinement is None:
            return Entries(_ENTRY, {"entry": self.entry_id})
        return Entries(_DEDUP if self.reversed else _OF_REFINEMENT, {"refinement": self.refinement.id})

    @property
    def first_entry(self) -> int:
        """The first entry of the refinement that a rewind goes to."""
        number = self.refinement.id if self.refinement else None
        return db.session.scalar(select(func.min(AuditLog.id)).where(AuditLog.refinement_id == number)) or 0

    @property
    def is_final(self) -> bool:
        """Whether nothing of it is left to undo, because a guard took it back for good."""
        if self.reversed is None or self.undone_by is not None or self.target.kind == RollbackKind.REWIND:
            return False
        if self.refinement is None:
            return True
        query, values = self.entries
        return db.session.scalar(query.limit(1), values) is None


_ENTRY = select(AuditLog.id).where(AuditLog.id == bindparam("entry"))
_OF_REFINEMENT = select(AuditLog.id).where(AuditLog.refinement_id == bindparam("refinement"))
_DEDUP = _OF_REFINEMENT.where(AuditLog.action == Action.DEDUP)


@dataclass(frozen=True, kw_only=True)
class Plan(PlanFindings):
    """What would happen. `stops` is the open refinement that would be ended first. Masses in tokens.

    `final` is the refinement whose reversal by a guard forbids it: nothing can happen then.
    """

    found: TargetRows
    stops: str | None = None
    mass_before: int
    mass_after: int
    final: str | None = None

    def check_not_final(self) -> None:
        """Raises GuardFinal."""
        if self.final is not None:
            raise GuardFinal(self)

    @property
    def kind(self) -> RollbackKind:
        return self.found.target.kind

    @property
    def undone_by(self) -> str | None:
        return self.found.undone_by


def find_target(target: Target) -> TargetRows:
    """The rows of a target. Raises NotFound, and NothingToUndo for an entry that changed no memory."""
    if target.kind in (RollbackKind.REFINEMENT, RollbackKind.REWIND):
        return _find_refinement(target)
    if target.kind == RollbackKind.ROLLBACK:
        return _find_rollback(target)
    return _find_entry(target)


def preview_plan(target: Target) -> Plan:
    """What `roll_back` would do now. Reads only. Raises NotFound or NothingToUndo."""
    found = find_target(target)
    agent = db.session.get_one(Agent, found.agent_id, populate_existing=True)
    return make_plan(found, agent, Refinement.open_of(agent.id), lock=False)


def make_plan(found: TargetRows, agent: Agent, running: Refinement | None, *, lock: bool) -> Plan:
    """The plan as of now, while the agent's refinement `running` is open; with `lock`, which needs the agent's lock, it
    holds until the transaction ends."""
    mass, findings = agent.core_token_usage, PlanFindings()
    final = found.reversed if found.is_final else None
    if final is None and found.undone_by is None:
        is_rewind = found.target.kind == RollbackKind.REWIND
        findings = (
            plan_rewind(found.agent_id, found.first_entry, lock=lock)
            if is_rewind
            else plan_undo(found.entries, found.agent_id, lock=lock)
        )
        final = find_reversed_work(found.account_id, found.agent_id, findings.changes)
    if final is not None:
        return Plan(found=found, mass_before=mass, mass_after=mass, final=final)
    after = mass + findings.gain
    stops = _refinement_to_end(found, findings, running)
    return Plan(**vars(findings), found=found, stops=stops, mass_before=mass, mass_after=after)


def _refinement_to_end(found: TargetRows, findings: PlanFindings, running: Refinement | None) -> str | None:
    """The open refinement that has to end first; its own undo ends it even where it has changed nothing yet."""
    if running is None or findings.conflicts or found.undone_by is not None:
        return None
    is_target = found.refinement is not None and found.refinement.id == running.id
    return running.id if findings.changes or is_target else None


def _find_refinement(target: Target) -> TargetRows:
    refinement = read_row(Refinement, target.id)
    if refinement is None:
        raise NotFound("There is no such refinement.")
    return TargetRows(
        target,
        refinement.account_id,
        refinement.agent_id,
        refinement=refinement,
        undone_by=refinement.undone_by if target.kind == RollbackKind.REFINEMENT else None,
        reversed=_reversed_refinement(refinement.id),
    )


def _find_rollback(target: Target) -> TargetRows:
    rollback = read_row(Rollback, target.id)
    if rollback is None:
        raise NotFound("There is no such rollback.")
    owner, entry_id = (rollback.account_id, rollback.agent_id), rollback.entry_id
    return TargetRows(target, *owner, rollback=rollback, entry_id=entry_id, undone_by=rollback.undone_by)


def _find_entry(target: Target) -> TargetRows:
    """An entry of the Time Machine itself stands for its rollback."""
    number = int(target.id)
    entry = db.session.get(AuditLog, number) if 0 < number < 2**63 else None
    if entry is None:
        raise NotFound("There is no such entry in the audit log.")
    if entry.action == Action.AGENT_TOLD:
        raise NothingToUndo(
            f"Entry {entry.id} is a note that tells the agent what a human did. Such notes stay.",
            "Nothing was written.",
        )
    if entry.action == Action.ERASE:
        raise NothingToUndo(
            f"Entry {entry.id} erased a memory for good. Nothing brings it back.", "Nothing was written."
        )
    wrote = select(MemoryState.memory_id).where(MemoryState.entry_id == entry.id).limit(1)
    if entry.agent_id is None or not db.session.scalar(wrote):
        raise NothingToUndo(
            f"Entry {entry.id} changed no memory, so there is nothing to undo. Settings are changed back on the "
            "agent's page.",
            "Nothing was written.",
        )
    rollback = db.session.scalar(select(Rollback.id).where(Rollback.entry_id == entry.id))
    if rollback is not None:
        return _find_rollback(Target.rollback(rollback))
    reversed_ = _reversed_refinement(entry.refinement_id) if entry.action in UNLESS_REVERSED else None
    return TargetRows(target, entry.account_id, entry.agent_id, entry_id=entry.id, reversed=reversed_)


def _reversed_refinement(refinement_id: str | None) -> str | None:
    """The refinement itself, if a guard reversed it."""
    return next(iter(reversed_by_guard([refinement_id])), None) if refinement_id else None


def reversed_by_guard(refinement_ids: Sequence[str]) -> set[str]:
    """Those of these refinements that ended in a reversal, as the log says."""
    if not refinement_ids:
        return set()
    count, asked = spread(refinement_ids)
    return {each for (each,) in read_rows(_reversed_query(count), asked)}


@cache
def _reversed_query(count: int) -> Prepared:
    query = select(AuditLog.refinement_id).where(one_of(AuditLog.refinement_id, count))
    return Prepared(query.where(AuditLog.action == Action.REFINEMENT_ROLLBACK))


def final_among(entries: Sequence[LogEntry]) -> set[int]:
    """Ids of those entries that can't be undone, because a guard reversed their refinement."""
    about = {
        entry.id: entry.refinement_id for entry in entries if entry.refinement_id and entry.action in UNLESS_REVERSED
    }
    reversed_ = reversed_by_guard(list(set(about.values())))
    return {entry_id for entry_id, refinement_id in about.items() if refinement_id in reversed_}


def find_reversed_work(account_id: int, agent_id: int, changes: Sequence[MemoryReversal]) -> str | None:
    """The refinement whose reversed work one of these changes would show again, if there is one."""
    reversed_ = _reversed_work(account_id, agent_id) if changes else {}
    if not reversed_:
        return None
    restored = {change.memory.id: change.state.origin_entry_id for change in changes if change.state is not None}
    found = read_traces(select(Memory.id).where(Memory.id.in_(restored)), since=min(reversed_))
    for memory_id, trace in found.items():
        origin = trace.origin(restored[memory_id])
        if origin in reversed_:
            return reversed_[origin]
    return None


def _reversed_work(account_id: int, agent_id: int) -> dict[int, str]:
    """By entry: the refinement of everything that a guard reversed for this agent."""
    rows = _REVERSED_WORK.fetch(db.session.connection(), {"account": account_id, "agent": agent_id})
    return {entry_id: refinement_id for entry_id, refinement_id in rows if refinement_id is not None}


_REVERSED = select(AuditLog.refinement_id).where(
    AuditLog.account_id == bindparam("account"),
    AuditLog.action == Action.REFINEMENT_ROLLBACK,
    AuditLog.agent_id + 0 == bindparam("agent"),  # or SQLite looks through all entries of the agent
)
_REVERSED_WORK = Prepared(
    select(AuditLog.id, AuditLog.refinement_id).where(
        AuditLog.refinement_id.in_(_REVERSED), one_of_these(AuditLog.action, OPERATIONS)
    )
)
