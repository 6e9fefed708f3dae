"""Erosion: the guard against many allowed passes that together hollow an agent out.

Over 30 days, what standing refinements cut may not exceed a share of what they cut it from: the mass at the first of
them, and what was saved, imported or promoted since. Undone refinements, single changes that were undone, and exact
duplicates do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import ROUND_DOWN, Decimal
from typing import NamedTuple, cast

from sqlalchemy import ColumnElement, Table, and_, bindparam, case, func, select
from sqlalchemy.orm import aliased

from app.extensions import db, now
from app.models import (
    Action,
    Agent,
    AuditLog,
    MemoryState,
    MemoryType,
    Mode,
    Refinement,
    Rollback,
    RollbackKind,
    Status,
)
from app.models.agent_settings import operator_settings
from app.prepared import Prepared, one_of_these

WINDOW = timedelta(days=30)

_ADDING = (Action.CREATE, Action.IMPORT, Action.PROMOTE)


@dataclass(frozen=True)
class Erosion:
    """What was cut and from what, in tokens."""

    cut: int
    base: int

    @property
    def kept(self) -> Decimal:
        """The share that is left, four digits, rounded down; 1 where there was nothing to cut from."""
        if self.base == 0:
            return Decimal("1.0000")
        return max(Decimal(self.base - self.cut) / self.base, Decimal(0)).quantize(Decimal("0.0001"), ROUND_DOWN)

    def is_below(self, floor: Decimal) -> bool:
        """Whether more was cut than 1 − floor allows. Whole numbers only; a base of 0 never is."""
        return self.base > 0 and self.cut * 10_000 > (10_000 - int(floor * 10_000)) * self.base


def erosion_of(agent: Agent, *, at: datetime | None = None) -> Erosion:
    """Over the 30 days before `at` (now, unless given), an open refinement included. Reads only what is written: the
    caller flushes what counts and waits."""
    counted = _standing_refinements(agent, (at or now()) - WINDOW)
    if not counted:
        return Erosion(0, agent.core_token_usage)
    cut = sum((each.mass_before or 0) - (each.kept_mass or 0) for each in counted)
    since = counted[0].snapshot_entry_id or 0
    undone = _taken_back(agent, since)
    given_back = _given_back(agent, counted) if undone.entries else 0
    return Erosion(cut - given_back, (counted[0].mass_before or 0) + _added_tokens(agent, since, undone))


def fix_erosion_limit(refinement: Refinement, agent: Agent) -> None:
    """Fix the guard's numbers with the refinement's snapshot: one that has none yet does not count among them."""
    found = erosion_of(agent, at=refinement.started_at)
    refinement.erosion_floor = operator_settings().erosion_floor
    refinement.erosion_cut, refinement.erosion_base = found.cut, found.base


def excess_erosion(refinement: Refinement, agent: Agent) -> Erosion | None:
    """What would be cut in all, if that is too much. What was saved meanwhile counts, so the log is asked once more."""
    floor = refinement.erosion_floor
    if floor is None or refinement.mass_before is None or refinement.kept_mass is None:
        return None
    own = refinement.mass_before - refinement.kept_mass
    if not Erosion((refinement.erosion_cut or 0) + own, refinement.erosion_base or 0).is_below(floor):
        return None
    db.session.flush()
    found = erosion_of(agent, at=refinement.started_at)
    return found if found.is_below(floor) else None


class _Counted(NamedTuple):
    """What counts of one refinement."""

    id: str
    mass_before: int | None
    kept_mass: int | None
    snapshot_entry_id: int | None


def _standing_refinements(agent: Agent, since: datetime) -> Sequence[_Counted]:
    """Of the refinements whose cuts count, in the order of their snapshots. What a guard reversed cut nothing."""
    return [_Counted(*row) for row in _STANDING.fetch(db.session.connection(), {"agent": agent.id, "since": since})]


_REFINEMENTS = cast(Table, Refinement.__table__).c
_STANDING = Prepared(
    select(_REFINEMENTS.id, _REFINEMENTS.mass_before, _REFINEMENTS.kept_mass, _REFINEMENTS.snapshot_entry_id)
    .where(
        _REFINEMENTS.agent_id == bindparam("agent"),
        _REFINEMENTS.mode == Mode.FULL,
        _REFINEMENTS.status != Status.ROLLED_BACK,
        _REFINEMENTS.undone_by.is_(None),
        _REFINEMENTS.snapshot_entry_id.is_not(None),
        _REFINEMENTS.started_at >= bindparam("since"),
    )
    .order_by(_REFINEMENTS.snapshot_entry_id)
)


def _given_back(agent: Agent, counted: Sequence[_Counted]) -> int:
    """Tokens that single changes of these refinements had cut, as far as an undo of just that change stands."""
    written = (
        select(func.sum(_kept_before() - MemoryState.kept))
        .select_from(Rollback)
        .join(AuditLog, AuditLog.id == Rollback.target_entry_id)
        .join(Refinement, Refinement.id == AuditLog.refinement_id)
        .join(MemoryState, MemoryState.entry_id == AuditLog.id)
        .where(Rollback.agent_id == agent.id, Rollback.kind == RollbackKind.ENTRY, Rollback.undone_by.is_(None))
        .where(Refinement.id.in_([each.id for each in counted]), MemoryState.kept.is_not(None))
    )
    return int(db.session.scalar(written) or 0)


def _kept_before() -> ColumnElement[int]:
    """What a memory kept before a change of its refinement: by the change before, else its weight at the snapshot."""
    earlier = aliased(MemoryState)
    is_core = and_(earlier.type == MemoryType.CORE, earlier.discarded_at.is_(None))
    weight = case((is_core, earlier.token_estimate), else_=0)
    is_since = earlier.entry_id > Refinement.snapshot_entry_id
    found = (
        select(case((is_since, earlier.kept), else_=weight))
        .where(earlier.memory_id == MemoryState.memory_id, earlier.entry_id < MemoryState.entry_id)
        .where(~is_since | earlier.kept.is_not(None))
        .order_by(earlier.entry_id.desc())
        .limit(1)
        .correlate(MemoryState, Refinement)
        .scalar_subquery()
    )
    return func.coalesce(found, 0)


class _TakenBack(NamedTuple):
    """Entries that stand undone, and from which entry to which the agent stands rewound."""

    entries: set[int]
    rewinds: list[tuple[int, int]]


def _added_tokens(agent: Agent, since: int, undone: _TakenBack) -> int:
    """Tokens of core memories saved, imported and promoted since an entry, less what was undone of it."""
    rows = _ADDED.fetch(db.session.connection(), {"agent": agent.id, "since": since})
    return sum(
        int(tokens)
        for entry_id, action, tokens in rows
        if entry_id not in undone.entries
        and not (action == Action.PROMOTE and any(first <= entry_id < last for first, last in undone.rewinds))
    )


_ADDED = Prepared(
    select(AuditLog.id, AuditLog.action, func.sum(MemoryState.token_estimate))
    .join(MemoryState, MemoryState.entry_id == AuditLog.id)
    .where(AuditLog.agent_id == bindparam("agent"), AuditLog.id > bindparam("since"))
    .where(one_of_these(AuditLog.action, _ADDING), MemoryState.type == MemoryType.CORE)
    .group_by(AuditLog.id, AuditLog.action)
)


def _taken_back(agent: Agent, since: int) -> _TakenBack:
    """By what came after an entry."""
    rows = _TAKEN_BACK.fetch(db.session.connection(), {"agent": agent.id, "since": since})
    entries = {target for kind, target, *_ in rows if kind == RollbackKind.ENTRY and target is not None}
    return _TakenBack(entries, [(began, entry_id) for kind, _, began, entry_id in rows if kind == RollbackKind.REWIND])


_BEGAN = select(func.min(AuditLog.id)).where(AuditLog.refinement_id == Rollback.refinement_id).scalar_subquery()
_TAKEN_BACK = Prepared(
    select(Rollback.kind, Rollback.target_entry_id, _BEGAN, Rollback.entry_id).where(
        Rollback.agent_id == bindparam("agent"), Rollback.entry_id > bindparam("since"), Rollback.undone_by.is_(None)
    )
)
