"""Strays: rows that belong to nobody, so that no agent's and no account's own replay would come upon them."""

from __future__ import annotations

from sqlalchemy import ColumnElement, String, cast, exists, func, literal, select, true, union_all

from app.extensions import db
from app.history.difference import Difference, owner_difference
from app.models import Account, Agent, AuditLog, Memory, MemoryState


def check_strays() -> None:
    """Raises Difference for the first agent, chain, memory or state that belongs to nothing."""
    _check_agents()
    _check_chains()
    _check_memories()
    check_unexplained()
    _check_states()


def check_unexplained(whose: ColumnElement[bool] | None = None) -> None:
    """Raises Difference for the first memory of `whose` agents (all, unless given) that no entry wrote.

    The replay finds the active ones by an index. Those that were put in as discarded nothing shows, and the whole table
    is gone through for them: so this is asked once, and not for every agent.
    """
    query = select(Memory.id, Memory.agent_id).join(Agent, Agent.id == Memory.agent_id)
    unexplained = query.where(true() if whose is None else whose, ~is_written())
    found = db.session.execute(unexplained.order_by(Memory.id).limit(1))
    for memory_id, agent_id in found.tuples():
        raise owner_difference(db.session.get_one(Agent, agent_id), f"memory {memory_id} is in no entry of the log.")


def is_written() -> ColumnElement[bool]:
    """Whether an entry of its agent wrote a memory: a state alone, put in with it, explains nothing."""
    is_own = (AuditLog.id == MemoryState.entry_id, AuditLog.agent_id == Memory.agent_id)
    return exists().where(MemoryState.memory_id == Memory.id, *is_own)


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
    homeless = ~exists().where(Agent.id == Memory.agent_id)
    memory_id = db.session.scalar(select(Memory.id).where(homeless).order_by(Memory.id).limit(1))
    if memory_id is not None:
        raise Difference(f"Memory {memory_id} belongs to no agent.")


def _check_states() -> None:
    recorded = exists().where(AuditLog.id == MemoryState.entry_id)
    remembered = exists().where(Memory.id == MemoryState.memory_id)
    for stray, what in ((~recorded, "entry"), (~remembered, "memory")):
        found = select(MemoryState.memory_id, MemoryState.entry_id).where(stray).order_by(MemoryState.entry_id)
        for memory_id, entry_id in db.session.execute(found.limit(1)).tuples():
            raise Difference(f"A state of memory {memory_id} by entry id {entry_id} has no {what}.", entry_id=entry_id)
