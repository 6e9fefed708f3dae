"""Strays: rows that belong to nobody, so that no agent's and no account's own proof would come upon them."""

from __future__ import annotations

from sqlalchemy import String, cast, exists, func, literal, select, union_all

from app.extensions import db
from app.history.difference import Difference
from app.models import Account, Agent, AuditLog, Memory, MemoryState


def check_strays() -> None:
    """Raises Difference for the first agent, chain, memory or state that belongs to nothing."""
    _check_agents()
    _check_chains()
    _check_memories()
    _check_states()


def _check_agents() -> None:
    homeless = ~exists().where(Account.id == Agent.account_id)
    chain = db.session.scalar(select(Agent.uuid).where(homeless).order_by(Agent.id).limit(1))
    if chain is not None:
        raise Difference(f"agent:{chain} belongs to no account.")


def _check_chains() -> None:
    agents = select(literal("agent:") + Agent.uuid)
    owned = union_all(agents, select(literal("account:") + cast(Account.id, String)))
    chains = select(AuditLog.chain).distinct().subquery()
    chain = db.session.scalar(select(func.min(chains.c.chain)).where(chains.c.chain.not_in(owned)))
    if chain is not None:
        entry_id = db.session.scalar(select(func.min(AuditLog.id)).where(AuditLog.chain == chain))
        raise Difference(
            f"The log has a chain of nobody, {chain}: its first entry is id {entry_id}.", entry_id=entry_id
        )


def _check_memories() -> None:
    written, owned = exists().where(MemoryState.memory_id == Memory.id), exists().where(Agent.id == Memory.agent_id)
    for stray, what in ((~owned, "belongs to no agent"), (~written, "is in no entry of the log")):
        memory_id = db.session.scalar(select(Memory.id).where(stray).order_by(Memory.id).limit(1))
        if memory_id is not None:
            raise Difference(f"Memory {memory_id} {what}.")


def _check_states() -> None:
    recorded = exists().where(AuditLog.id == MemoryState.entry_id)
    remembered = exists().where(Memory.id == MemoryState.memory_id)
    for stray, what in ((~recorded, "entry"), (~remembered, "memory")):
        found = select(MemoryState.memory_id, MemoryState.entry_id).where(stray).order_by(MemoryState.entry_id)
        for memory_id, entry_id in db.session.execute(found.limit(1)).tuples():
            raise Difference(f"A state of memory {memory_id} by entry id {entry_id} has no {what}.", entry_id=entry_id)
