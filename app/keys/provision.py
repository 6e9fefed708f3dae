"""Provisioning: the keys that the web process, which holds no private key itself, leaves to be made: of a new agent,
for a new token, and a new data key after a token was revoked.
"""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import exists, select

from app.extensions import db, now, reading, writing
from app.keys.agent_keys import has_keys, make_keys, open_keys, share_with_tokens
from app.keys.rotation import rekey_after_revocation
from app.models.agent import Agent
from app.models.key import AgentKey, AgentToken
from app.silo import AgentKeys
from app.values.actor import WORKER, Actor

LOST_AFTER = timedelta(seconds=60)
LOOK_BACK = timedelta(days=7)
"""A token that has no keys after a week was revoked, or its agent has none; nobody waits for it any more."""


def provision_keys(agent_id: int) -> None:
    """Make the agent's keys where there are none, a new data key after a revocation, and seal them to each of its live
    tokens. Does it once. Does nothing for an agent that was forgotten.
    """
    with writing():
        agent = Agent.lock(agent_id)
        if agent.forgotten_at is None:
            settle_keys(agent, by=WORKER)


def settle_keys(agent: Agent, *, by: Actor) -> None:
    """The same, for an agent that the caller has locked where the master key is at hand. Raises AgentForgotten."""
    new = not has_keys(agent)
    keys = ensure_keys(agent)
    rekey_after_revocation(agent, by=by)
    if share_with_tokens(agent, keys) or new:
        agent.announce("keys", made=new)


def ensure_keys(agent: Agent) -> AgentKeys:
    """The agent's keys, made now if there are none; the caller holds the agent's lock and the master key.

    Raises AgentForgotten: no keys are ever made again for an agent that was.
    """
    if not has_keys(agent):
        make_keys(agent)
        db.session.flush()
    return open_keys(agent)


def find_unprovisioned() -> list[int]:
    """Agents that have no keys, a token without keys, or no new data key after a revocation, for over a minute."""
    with reading():
        return sorted({*_agents_without_keys(), *_agents_of_tokens_without_keys(), *_agents_not_rekeyed()})


def _agents_without_keys() -> list[int]:
    keys = exists().where(AgentKey.agent_id == Agent.id)
    late = Agent.created_at < now() - LOST_AFTER
    query = select(Agent.id).where(~keys, Agent.forgotten_at.is_(None), late)
    return list(db.session.scalars(query.limit(1000)))


def _agents_not_rekeyed() -> list[int]:
    late = (AgentToken.revoked_at < now() - LOST_AFTER, AgentToken.rekeyed_at.is_(None))
    query = select(AgentToken.agent_id).join(Agent, Agent.id == AgentToken.agent_id)
    return list(db.session.scalars(query.where(Agent.forgotten_at.is_(None), *late).distinct().limit(1000)))


def _agents_of_tokens_without_keys() -> set[int]:
    age = (AgentToken.created_at < now() - LOST_AFTER, AgentToken.created_at > now() - LOOK_BACK)
    tokens = db.session.scalars(select(AgentToken).where(AgentToken.revoked_at.is_(None), *age))
    waiting = {token.reader: token.agent_id for token in tokens}
    held = set(db.session.scalars(select(AgentKey.reader).where(AgentKey.agent_id.in_(set(waiting.values())))))
    return {agent_id for reader, agent_id in waiting.items() if reader not in held}
