"""An agent's keys: made, opened and sealed to their readers, each only with the statement that names it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from sqlalchemy import Table, bindparam, select, update

from app.extensions import db
from app.models.agent import Agent
from app.models.declaring import declare
from app.models.key import AgentKey
from app.models.master_key import master_key
from app.models.memory_text import ContentKey
from app.models.statement import StatementKind
from app.models.statement_errors import AgentStopped
from app.models.statement_log import current_of, master_public_key, statement_log
from app.silo import AgentKeys, KeyPair, MasterPublicKey, SealBroken, WrappedKey, make_agent_keys, open_agent_keys
from app.statements.checks import check_agent


def make_keys(agent: Agent) -> AgentKeys:
    """Fresh keys for a new agent, sealed to the master; the caller holds the agent's lock. Raises AgentForgotten."""
    agent.check_not_forgotten()
    keys = make_agent_keys(agent.uuid)
    share_keys(agent, keys, [master_public_key()])
    return keys


def open_keys(agent: Agent, opener: KeyPair | None = None) -> AgentKeys:
    """The agent's keys, opened with the master key or, in a request, with its own token.

    With the master key, in `writing()`, what waits to be stated is settled first, and the agent's rows are compared
    with the log. Raises AgentStopped, LogBroken, SealBroken, or AgentForgotten.
    """
    agent.check_not_forgotten()
    if opener is None and db.session().info.get("writing"):
        return _open_wrapped(agent.id, agent.uuid, None, check_agent(agent).wrapped)
    return _open_sealed_keys(agent.id, agent.uuid, opener)


def _open_sealed_keys(agent_id: int, uuid: str, opener: KeyPair | None) -> AgentKeys:
    current = current_of(agent_id, uuid)
    db.session.flush()  # keys that this transaction has just made are among them
    wrapped: dict[str, list[WrappedKey]] = {}
    for row in db.session.execute(_WRAPPED, {"agent": agent_id, "readers": list(_readers(opener))}):
        wrapped.setdefault(row.reader, []).append(WrappedKey(*row))
    reader = next((key for key in _readers(opener) if key in wrapped), "")
    check_wrapped(wrapped.get(reader, []), current.digests(reader), agent_id)
    return _open_wrapped(agent_id, uuid, opener, wrapped)


def _open_wrapped(
    agent_id: int, uuid: str, opener: KeyPair | None, wrapped: Mapping[str, Sequence[WrappedKey]]
) -> AgentKeys:
    """Of keys by their readers, each as it was stated: those of the newest reader that is here."""
    readers = _readers(opener)
    reader = next((key for key in readers if key in wrapped), None)
    if reader is None:
        raise SealBroken(f"No keys of agent {uuid} are sealed to any key that is here.")
    key = opener or master_key(readers[reader])
    return open_agent_keys(uuid, wrapped[reader], key, renew=lambda: _open_sealed_keys(agent_id, uuid, opener))


def _readers(opener: KeyPair | None) -> dict[str, str]:
    """The public keys, in hex, of those who may open, the newest first, with their fingerprints."""
    return statement_log().keys.masters if opener is None else {opener.public.hex: opener.fingerprint}


def check_wrapped(wrapped: Sequence[WrappedKey], digests: Mapping[tuple[str, int], str], agent_id: int) -> None:
    """Raises AgentStopped unless the keys of one reader are exactly those that were stated."""
    found = {(key.purpose, key.version): key.digest for key in wrapped}
    if found != digests:
        raise AgentStopped("The keys that are sealed for the agent are not those that were signed", agent_id)


def has_keys(agent: Agent) -> bool:
    return db.session.scalar(select(AgentKey.id).where(AgentKey.agent_id == agent.id).limit(1)) is not None


def share_with_tokens(agent: Agent, keys: AgentKeys) -> int:
    """Seal the agent's keys to each token that is live by the log and lacks one; returns how many keys were sealed."""
    live = current_of(agent.id, agent.uuid).tokens.values()
    return share_keys(agent, keys, [MasterPublicKey(bytes.fromhex(token.body["public_key"])) for token in live])


def share_keys(agent: Agent, keys: AgentKeys, readers: Iterable[MasterPublicKey]) -> int:
    """The same for any readers."""
    current = current_of(agent.id, agent.uuid)
    return sum(_share(agent, keys, reader, current.digests(reader.hex)) for reader in readers)


def _share(agent: Agent, keys: AgentKeys, reader: MasterPublicKey, stated: dict[tuple[str, int], str]) -> int:
    new = keys.wrap_for(reader, but=stated)
    if new:
        db.session.add_all(AgentKey(agent_id=agent.id, **vars(key)) for key in new)
        state_wrapped(agent, reader.hex, stated | {(key.purpose, key.version): key.digest for key in new})
    return len(new)


def state_wrapped(agent: Agent, reader: str, digests: dict[tuple[str, int], str]) -> None:
    """State which keys of the agent are sealed to a reader, `reader` being its public key in hex."""
    keys = [
        {"purpose": purpose, "version": version, "sha256": digest}
        for (purpose, version), digest in sorted(digests.items())
    ]
    declare(StatementKind.WRAPPED_KEYS, agent, f"keys:{reader}", {"reader": reader, "keys": keys})


def rewrap_content_keys(agent: Agent, keys: AgentKeys) -> int:
    """Seal the keys of all memories' own by the newest version of the data key; returns how many.

    The caller holds the agent's lock. Raises SealBroken.
    """
    db.session.flush()
    rows = db.session.execute(select(ContentKey.memory_id, ContentKey.sealed).where(ContentKey.agent_id == agent.id))
    anew = [{"number": number, "again": keys.rewrap_content_key(number, sealed)} for number, sealed in rows.tuples()]
    if anew:
        db.session.connection().execute(_REWRAP, anew)
    return len(anew)


_CONTENT_KEYS = cast(Table, ContentKey.__table__)
_REWRAP = (
    update(_CONTENT_KEYS).where(_CONTENT_KEYS.c.memory_id == bindparam("number")).values(sealed=bindparam("again"))
)
_KEYS = cast(Table, AgentKey.__table__).c
_WRAPPED = select(_KEYS.purpose, _KEYS.version, _KEYS.reader, _KEYS.sealed).where(
    _KEYS.agent_id == bindparam("agent"), _KEYS.reader.in_(bindparam("readers", expanding=True))
)
