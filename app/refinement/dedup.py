"""Exact duplicates, removed by their keyed hash. Nobody reads them; this code only checks that each hash is true."""

from __future__ import annotations

from itertools import groupby
from typing import Any, cast

from sqlalchemy import BindParameter, Select, Table, bindparam, func, select

from app.keys.agent_keys import open_keys
from app.models import WORKER, Action, Agent, Memory, MemoryText, MemoryType, Refinement
from app.models.base import lock_row, read_locked
from app.models.memory_text import is_text_of
from app.prepared import Prepared
from app.silo import SealBroken


def remove_exact_duplicates(refinement: Refinement, agent: Agent) -> int:
    """Keep one of each group of equal hashes, with the dates and tags of all. Returns how many were removed.

    The constitutional copy stays, else the earliest; constitutional copies are never removed. The caller holds the
    locks of refinement and agent. Raises SealBroken for a hash that is not its text's.
    """
    removed, found = 0, _lock_duplicates(agent)
    _check_hashes(agent, found)
    for _, group in groupby(found, key=_content_hash):
        removed += _keep_few(refinement, agent, list(group))
    if removed:
        refinement.announce("deduplicated", removed=removed, tokens=refinement.deduplicated_tokens)
    return removed


def _lock_duplicates(agent: Agent) -> list[Memory]:
    """Those of equal hashes behind each other, each with what it says at hand."""
    found = [memory for (memory,) in read_locked(_DUPLICATES, {"agent": agent.id}, Memory)]
    Memory.hold_contents(found)
    return sorted(found, key=_content_hash)


def _content_hash(memory: Memory) -> bytes:
    return memory.content.content_hash or b""


def _check_hashes(agent: Agent, memories: list[Memory]) -> None:
    """The states prove the texts, not the hashes beside them: one that was altered would remove another memory."""
    keys = open_keys(agent) if memories else None
    for memory in memories:
        if keys and keys.content_hash(keys.reveal_memory(memory.id, memory.content)) != _content_hash(memory):
            raise SealBroken


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
    changed = [*extra, keeper] if keeper.replace_copies(agent, extra) else extra
    for memory in extra:
        memory.discard(agent)
    tokens = sum(memory.token_estimate for memory in extra)
    refinement.deduplicated += len(extra)
    refinement.deduplicated_tokens += tokens
    data = {"kept": keeper.id, "removed": sorted(memory.id for memory in extra), "tokens": tokens}
    refinement.record_action(Action.DEDUP, agent, WORKER, data, subject=f"memory:{keeper.id}", memories=changed)


def _select_duplicates() -> Select[Any]:
    agent: BindParameter[int] = bindparam("agent")
    mine = (Memory.agent_id == agent, Memory.type == MemoryType.CORE, Memory.discarded_at.is_(None))
    says = is_text_of(Memory.id, Memory.content_digest)
    hashes = select(MemoryText.content_hash).join(Memory, says).where(*mine, MemoryText.agent_id == agent)
    twice = hashes.group_by(MemoryText.content_hash).having(func.count() > 1)
    twins = select(Memory.id).join(MemoryText, says).where(*mine, MemoryText.content_hash.in_(twice))
    order = (Memory.constitutional.desc(), Memory.origin_at, Memory.id)
    rows = cast(Table, Memory.__table__)
    return lock_row(select(rows).where(rows.c.id.in_(twins)).order_by(*order))


_DUPLICATES = Prepared(_select_duplicates())
