"""The guards: the fence and the cap before every change, the latch after it, all in the change's own transaction.

The fence is an UPDATE … WHERE: it claims the refinement's row, so that a call that comes late, twice, from another
process or over the cap changes nothing, whatever anybody checked before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any, cast

from sqlalchemy import Table, bindparam, select, update

from app.errors import NotFound, Refused
from app.extensions import db, is_sqlite, writing
from app.history.reversing import RETENTION_GUARD, reverse_changes
from app.models import Agent, Memory, MemoryState, MemoryType, Refinement, Status
from app.models.base import lock_row, read_locked
from app.models.tally import MAX_PROTECTIONS
from app.prepared import Prepared, one_of, spread
from app.refinement.erosion import WINDOW, Erosion, excess_erosion
from app.silo import AgentKeys
from app.values.mass_story import exact_percent, percent


@dataclass(frozen=True)
class Claim:
    """A worker's hold on one refinement: only the process that began it may change anything through it."""

    refinement_id: str
    worker: str


class Terminated(Refused):
    """The refinement is over."""

    code = "terminated"


class CapReached(Refused):
    """The refinement has made all its changes."""

    code = "cap_reached"


class ProtectionsUsed(Refused):
    """The refinement has made all its protections."""

    code = "protections_used"


@contextmanager
def fenced_transaction(claim: Claim, *, mutations: int = 0, protections: int = 0) -> Iterator[tuple[Refinement, Agent]]:
    """A transaction that may change memories: the row is claimed first, and what is about to be made is counted.

    Raises Terminated, CapReached or ProtectionsUsed before anything is written. A refusal raised inside leaves no trace
    of the count.
    """
    with writing():
        yield _claim_row(claim, mutations, protections)


def check_fence(claim: Claim) -> Refinement:
    """For calls that only read: raises Terminated unless the refinement is running in these hands."""
    refinement = db.session.get(Refinement, claim.refinement_id, populate_existing=True)
    if refinement is None:
        raise NotFound("There is no such refinement.")
    if refinement.status != Status.RUNNING:
        raise Terminated(f"This refinement is terminated ({refinement.status}).", "Nothing was changed.")
    if refinement.worker != claim.worker:
        raise Terminated(
            "This refinement is terminated for this process: another one holds it.", "Nothing was changed."
        )
    if refinement.stop_requested_at is not None:
        raise Terminated("This refinement is terminated: an admin pressed Stop.", "Nothing was changed.")
    if refinement.ending is not None:
        raise Terminated(f"This refinement is terminated ({refinement.ending}).", "Nothing was changed.")
    return refinement


_ROW = cast(Table, Refinement.__table__).c
_FENCE = (
    update(cast(Table, Refinement.__table__))
    .where(
        _ROW.id == bindparam("refinement"),
        _ROW.status == Status.RUNNING,
        _ROW.worker == bindparam("held_by"),
        _ROW.stop_requested_at.is_(None),
        _ROW.ending.is_(None),
        _ROW.mutations + bindparam("made") <= _ROW.cap,
        _ROW.protected + bindparam("guarded") <= MAX_PROTECTIONS,
    )
    .values(mutations=_ROW.mutations + bindparam("made"), protected=_ROW.protected + bindparam("guarded"))
    .returning(*_ROW)
)
_PASS_FENCE = Prepared(_FENCE)
_CLAIMED = _FENCE.cte("claimed")
_AGENTS = cast(Table, Agent.__table__)
_FENCE_AND_LOCK = Prepared(lock_row(select(_CLAIMED, _AGENTS).where(_AGENTS.c.id == _CLAIMED.c.agent_id), of=_AGENTS))
"""Both in one statement, where the database can: the agent's row is read and locked once the fence let through."""


def _claim_row(claim: Claim, mutations: int, protections: int) -> tuple[Refinement, Agent]:
    values = {"refinement": claim.refinement_id, "held_by": claim.worker, "made": mutations, "guarded": protections}
    if is_sqlite(db.session()):
        held = [(row, Agent.lock(row.agent_id)) for (row,) in read_locked(_PASS_FENCE, values, Refinement)]
    else:
        held = [(row, agent) for row, agent in read_locked(_FENCE_AND_LOCK, values, Refinement, Agent)]
    if held:
        return held[0]
    refinement = check_fence(claim)
    if protections:
        raise ProtectionsUsed(
            f"All {MAX_PROTECTIONS} protections of a refinement are used.",
            "Nothing was changed; go on without protecting more, or call complete_refinement.",
        )
    raise CapReached(
        f"Hard cap reached: {refinement.mutations} of {refinement.cap} changes are made.",
        "Nothing was changed; call complete_refinement.",
    )


def kept_weights(refinement: Refinement, memories: Sequence[Memory]) -> dict[int, int]:
    """What is left, in tokens, of the weight that each of these had at the start; 0 for what came later."""
    start = refinement.snapshot_entry_id or 0
    kept = {memory.id: memory.token_estimate for memory in memories if (memory.entry_id or 0) <= start}
    changed = [memory for memory in memories if memory.id not in kept]
    if changed:
        count, named = spread([memory.id for memory in changed])
        rows = _kept_since(count).fetch(db.session.connection(), {"start": start, **named})
        kept |= {memory_id: left or 0 for memory_id, left in rows}
    return kept | {memory.id: _weight_at(memory, start) for memory in changed if memory.id not in kept}


_STATES = cast(Table, MemoryState.__table__).c


@cache
def _kept_since(count: int) -> Prepared:
    """The newest states since the snapshot say it: only the one open refinement writes `kept`."""
    is_since = (_STATES.entry_id > bindparam("start"), _STATES.kept.is_not(None))
    found = select(_STATES.memory_id, _STATES.kept).where(one_of(_STATES.memory_id, count), *is_since)
    return Prepared(found.order_by(_STATES.entry_id))


def _weight_at(memory: Memory, entry_id: int) -> int:
    state = db.session.scalar(
        select(MemoryState)
        .where(MemoryState.memory_id == memory.id, MemoryState.entry_id <= entry_id)
        .order_by(MemoryState.entry_id.desc())
        .limit(1)
    )
    if state is None or state.type != MemoryType.CORE or state.discarded_at is not None:
        return 0
    return state.token_estimate


def book_kept_mass(refinement: Refinement, before: Mapping[int, int], after: Mapping[int, int]) -> None:
    """Book a change on the kept mass: what its memories kept before it, and what they keep after."""
    if refinement.kept_mass is None:
        raise RuntimeError("a change before the snapshot")
    refinement.kept_mass += sum(after.values()) - sum(before.values())


@dataclass(frozen=True)
class LatchTrip:
    """What the latch tells the model, as the result of its call."""

    reason: str
    retention: Decimal
    stats: Mapping[str, Any]


def enforce_latch(refinement: Refinement, agent: Agent, keys: AgentKeys) -> LatchTrip | None:
    """After every change, in its transaction: below the threshold, or below the erosion floor together with those
    before it, the whole refinement is reversed and ended.
    """
    has_tripped = refinement.has_tripped
    erosion = None if has_tripped else excess_erosion(refinement, agent)
    if not (has_tripped or erosion) or (retention := refinement.retention) is None:
        return None
    trip = LatchTrip(_trip_reason(refinement, erosion), retention, refinement.stats)
    reverse_changes(refinement, agent, RETENTION_GUARD, trip.reason, data=_trip_data(refinement, erosion), keys=keys)
    return trip


def _trip_reason(refinement: Refinement, erosion: Erosion | None) -> str:
    """`erosion` is given when this refinement alone was within its threshold, but not together with those before it."""
    floor = refinement.erosion_floor
    if erosion is not None and floor is not None:
        return (
            f"Together with the refinements of the last {WINDOW.days} days, {erosion.cut:,} of {erosion.base:,} tokens "
            f"would have been cut ({percent(erosion.kept, floor)} kept, below the erosion floor of "
            f"{exact_percent(floor)})."
        )
    retention, threshold = refinement.retention or 0, refinement.threshold
    return (
        f"Only {refinement.kept_mass:,} of {refinement.mass_before:,} tokens would have been kept "
        f"({percent(retention, threshold)}, below the limit of {exact_percent(threshold)})."
    )


def _trip_data(refinement: Refinement, erosion: Erosion | None) -> dict[str, Any]:
    """The same as numbers, for the audit log."""
    said = {
        "retention": str(refinement.retention),
        "threshold": str(refinement.threshold),
        "mass_before": refinement.mass_before,
        "kept_mass": refinement.kept_mass,
        "stats": refinement.stats,
    }
    if erosion is not None:
        said["erosion"] = {"cut": erosion.cut, "base": erosion.base, "floor": str(refinement.erosion_floor)}
    return said
