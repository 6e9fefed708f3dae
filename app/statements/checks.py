"""Rows against the log: what decides who may read is replayed from the log, and a row that differs stops its agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from sqlalchemy import BindParameter, Integer, Table, bindparam, exists, select

from app.extensions import db, read_rows, writing
from app.models.agent import Agent
from app.models.base import read_locked
from app.models.current import Current
from app.models.grant import AccessGrant, GrantStatus
from app.models.key import AgentKey, AgentToken
from app.models.log_leaves import SIZE_OF_LOG
from app.models.memory import Memory
from app.models.statement import SignedRequest
from app.models.statement_errors import AgentStopped
from app.models.statement_log import current_of
from app.prepared import Prepared
from app.silo import WrappedKey
from app.statements.settling import settle_requests


def settle_agent(agent_id: int) -> None:
    """Make statements of what waits for an agent, and compare its rows. Raises AgentStopped, or LogBroken."""
    with writing():
        agent = Agent.lock(agent_id)
        if agent.forgotten_at is not None:
            settle_requests(agent)
        else:
            check_agent(agent)


class CheckedAgent(NamedTuple):
    """What the log says of an agent, and by reader the keys that its rows hold: exactly those that were stated."""

    current: Current
    wrapped: Mapping[str, Sequence[WrappedKey]]


def check_agent(agent: Agent) -> CheckedAgent:
    """An agent that the caller has locked, once what waits is settled and the rows agree.

    For processes with the master key, in `writing()`. Raises AgentStopped, or LogBroken.
    """
    db.session.flush()
    ((waits, shows, size),) = read_rows(_AT_A_GLANCE, {"agent": agent.id})
    if waits:
        settle_requests(agent)
        db.session.flush()
    current = current_of(agent.id, agent.uuid, None if waits else size)
    return CheckedAgent(current, compare_rows(agent, current, has_exceptions=waits or shows))


def compare_rows(agent: Agent, current: Current, *, has_exceptions: bool = True) -> Mapping[str, Sequence[WrappedKey]]:
    """The keys that are sealed for it, by reader. Raises AgentStopped where the database says of the agent what the
    log does not. `has_exceptions` is false where the caller has just seen that none is granted.
    """
    _compare_model(agent, current)
    _compare_tokens(agent, current)
    wrapped = _compare_keys(agent, current)
    if has_exceptions:
        _compare_exceptions(agent, current)
    _compare_erasures(agent, current)
    return wrapped


def _compare_model(agent: Agent, current: Current) -> None:
    if current.model is None:
        raise AgentStopped(f"No statement says which model {agent.name} has", agent.id)
    stated = current.model.body
    for name, value in agent.stated_model().items():
        if stated.get(name) != value:
            raise AgentStopped(f"{_described(name, stated, value)} of {agent.name} is not what was signed", agent.id)


def _described(name: str, stated: Mapping[str, Any], value: Any) -> str:
    if name != "prompts":
        return f"The {name}"
    before = stated.get(name) or {}
    return "The " + ", ".join(sorted(field for field in value if before.get(field) != value[field]))


def _compare_tokens(agent: Agent, current: Current) -> None:
    rows = {row.public_id: row for (row,) in read_locked(_TOKENS, {"agent": agent.id}, AgentToken)}
    for public_id, row in rows.items():
        stated = current.tokens.get(public_id)
        if row.revoked_at is None and stated is None:
            known = "was ended" if public_id in current.ended_tokens else "was never signed"
            raise AgentStopped(f"The token {public_id} of {agent.name} is live in its row, and {known}", agent.id)
        if row.revoked_at is not None and stated is not None:
            raise AgentStopped(f"The token {public_id} of {agent.name} was revoked by nobody who may", agent.id)
        if stated is not None and dict(stated.body) != row.stated():
            raise AgentStopped(f"The token {public_id} of {agent.name} is not as it was signed", agent.id)
    for public_id in current.tokens.keys() - rows.keys():
        raise AgentStopped(f"The token {public_id} of {agent.name} has no row any more", agent.id)


def _compare_keys(agent: Agent, current: Current) -> Mapping[str, Sequence[WrappedKey]]:
    """What is wrapped for each reader is what was stated for it; a live token or the master key lacks nothing."""
    wrapped: dict[str, list[WrappedKey]] = {}
    for row in read_rows(_WRAPPED, {"agent": agent.id}):
        key = WrappedKey(*row)
        wrapped.setdefault(key.reader, []).append(key)
    needed = {str(token.body["public_key"]) for token in current.tokens.values()}
    for reader in wrapped.keys() | (needed & current.wrapped.keys()):
        found = {(key.purpose, key.version): key.digest for key in wrapped.get(reader, ())}
        if found != current.digests(reader):
            raise AgentStopped(f"The keys that are sealed for {agent.name} are not those that were signed", agent.id)
    return wrapped


def _compare_exceptions(agent: Agent, current: Current) -> None:
    """Those that are granted by their rows: whatever else a row says, nothing is shown by it."""
    query = select(AccessGrant).where(AccessGrant.agent_id == agent.id, AccessGrant.status == GrantStatus.GRANTED)
    for grant in db.session.scalars(query.execution_options(populate_existing=True)):
        check_exception(grant, agent, current)


def _compare_erasures(agent: Agent, current: Current) -> None:
    """What came back, as from an old copy of the database; and beside it, what was marked as erased by nobody."""
    if not current.erased:
        return
    rows = set(db.session.scalars(select(Memory.id).where(Memory.agent_id == agent.id, Memory.erased_at.is_not(None))))
    stated = {int(number) for number in current.erased}
    for number in sorted(stated - rows):
        raise AgentStopped(f"The memory {number} of {agent.name} was erased, and its row says that it stands", agent.id)
    for number in sorted(rows - stated):
        raise AgentStopped(f"The memory {number} of {agent.name} is erased in its row, and by nobody", agent.id)


def check_exception(grant: AccessGrant, agent: Agent, current: Current) -> None:
    """Raises AgentStopped unless the agent granted exactly this, and nobody ended it."""
    stated = current.exceptions.get(grant.id)
    if stated is None or stated.body["granted"] is not True:
        raise AgentStopped(f"The exception {grant.id} of {agent.name} was granted by nobody", agent.id)
    if grant.id in current.ended:
        raise AgentStopped(f"The exception {grant.id} of {agent.name} is live in its row, and was ended", agent.id)
    if any(stated.body.get(name) != value for name, value in grant.stated().items()):
        raise AgentStopped(f"The exception {grant.id} of {agent.name} is not as the agent granted it", agent.id)


_AGENT: BindParameter[int] = bindparam("agent", type_=Integer)
_KEYS = cast(Table, AgentKey.__table__).c
_WRAPPED = Prepared(select(_KEYS.purpose, _KEYS.version, _KEYS.reader, _KEYS.sealed).where(_KEYS.agent_id == _AGENT))
_TOKENS_TABLE = cast(Table, AgentToken.__table__)
_TOKENS = Prepared(select(_TOKENS_TABLE).where(_TOKENS_TABLE.c.agent_id == _AGENT))
_WAITS = exists().where(SignedRequest.agent_id == _AGENT, SignedRequest.settled_at.is_(None))
_SHOWS = exists().where(AccessGrant.agent_id == _AGENT, AccessGrant.status == GrantStatus.GRANTED)
_AT_A_GLANCE = Prepared(select(_WAITS, _SHOWS, SIZE_OF_LOG.scalar_subquery()))
"""Whether something signed waits, whether an exception is granted, and how long the log is."""
