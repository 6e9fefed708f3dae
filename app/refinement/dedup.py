"""Exact duplicates, removed by their keyed hash: nobody reads them, neither a model nor this code."""

from __future__ import annotations

from itertools import groupby

from sqlalchemy import func, select

from app.extensions import db
from app.models import WORKER, Action, Agent, Memory, MemoryType, Refinement
from app.models.base import lock_row


def remove_exact_duplicates(refinement: Refinement, agent: Agent) -> int:
    """Keep one of each group of equal hashes, with the dates and tags of all. Returns how many were removed.

    The constitutional copy stays, else the earliest; constitutional copies are never removed. The caller holds the
    locks of refinement and agent.
    """
    removed = 0
    for _, group in groupby(_lock_duplicates(agent), key=lambda memory: memory.content_hash):
        removed += _keep_few(refinement, agent, list(group))
    if removed:
        refinement.announce("deduplicated", removed=removed, tokens=refinement.deduplicated_tokens)
    return removed


def _lock_duplicates(agent: Agent) -> list[Memory]:
    mine = (Memory.agent_id == agent.id, Memory.type == MemoryType.CORE, Memory.discarded_at.is_(None))
    twice = select(Memory.content_hash).where(*mine).group_by(Memory.content_hash).having(func.count() > 1)
    query = select(Memory).where(*mine, Memory.content_hash.in_(twice))
    order = (Memory.content_hash, Memory.constitutional.desc(), Memory.origin_at, Memory.id)
    return list(db.session.scalars(lock_row(query.order_by(*order))))


def _keep_few(refinement: Refinement, agent: Agent, group: list[Memory]) -> int:
    """Keep the first copy. What its dates have no room for (`MOST_DATES`) is grouped again in the same way."""
    removed = 0
    while len(group) > 1:
        keeper, *others = group
        extra = keeper.that_it_can_carry(memory for memory in others if not memory.constitutional)
        if extra:
            _keep_one(refinement, agent, keeper, extra)
        gone = {memory.id for memory in extra}
        removed += len(gone)
        group = [memory for memory in others if memory.id not in gone]
    return removed


def _keep_one(refinement: Refinement, agent: Agent, keeper: Memory, extra: list[Memory]) -> None:
    changed = [*extra, keeper] if keeper.take_over(agent, extra) else extra
    for memory in extra:
        memory.discard(agent)
    tokens = sum(memory.token_estimate for memory in extra)
    refinement.deduplicated += len(extra)
    refinement.deduplicated_tokens += tokens
    data = {"kept": keeper.id, "removed": sorted(memory.id for memory in extra), "tokens": tokens}
    refinement.record_action(Action.DEDUP, agent, WORKER, data, subject=f"memory:{keeper.id}", memories=changed)
