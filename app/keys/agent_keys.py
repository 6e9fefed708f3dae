"""An agent's keys: made, opened and sealed to their readers."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import select

from app.extensions import db
from app.models.agent import Agent
from app.models.key import AgentKey, live_tokens
from app.models.master_key import MasterKeyRow, master_key, master_public_key
from app.silo import AgentKeys, KeyPair, MasterPublicKey, make_agent_keys, open_agent_keys


def make_keys(agent: Agent) -> AgentKeys:
    """Fresh keys for a new agent, sealed to the master; the caller holds the agent's lock. Raises AgentForgotten."""
    agent.check_not_forgotten()
    keys = make_agent_keys(agent.uuid)
    db.session.add_all(AgentKey(agent_id=agent.id, **vars(key)) for key in keys.wrap_for(master_public_key()))
    return keys


def open_keys(agent: Agent, opener: KeyPair | None = None) -> AgentKeys:
    """The agent's keys, opened with the master key or, in a request, with its own token.

    Raises SealBroken, or AgentForgotten.
    """
    agent.check_not_forgotten()
    return _open_sealed_keys(agent.id, agent.uuid, opener)


def _open_sealed_keys(agent_id: int, uuid: str, opener: KeyPair | None) -> AgentKeys:
    readers = select(MasterKeyRow.fingerprint) if opener is None else [opener.fingerprint]
    rows = db.session.scalars(select(AgentKey).where(AgentKey.agent_id == agent_id, AgentKey.reader.in_(readers))).all()
    masters = sorted({row.reader for row in rows})
    openers = [opener] if opener is not None else [master_key(reader) for reader in masters] or [master_key()]
    wrapped = [row.wrapped for row in rows]
    return open_agent_keys(uuid, wrapped, *openers, renew=lambda: _open_sealed_keys(agent_id, uuid, opener))


def has_keys(agent: Agent) -> bool:
    return db.session.scalar(select(AgentKey.id).where(AgentKey.agent_id == agent.id).limit(1)) is not None


def share_with_tokens(agent: Agent, keys: AgentKeys) -> int:
    """Seal the agent's keys to each of its live tokens that lacks one; returns how many keys were sealed."""
    return share_keys(agent, keys, [MasterPublicKey(each.public_key) for each in live_tokens(agent.id)])


def share_keys(agent: Agent, keys: AgentKeys, readers: Iterable[MasterPublicKey]) -> int:
    """The same for any readers."""
    query = select(AgentKey.purpose, AgentKey.version, AgentKey.reader).where(AgentKey.agent_id == agent.id)
    existing = set(db.session.execute(query).tuples())
    new = [
        AgentKey(agent_id=agent.id, **vars(key))
        for reader in readers
        for key in keys.wrap_for(reader)
        if (key.purpose, key.version, key.reader) not in existing
    ]
    db.session.add_all(new)
    return len(new)
