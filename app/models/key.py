"""The keys of agents, sealed to their readers; the public half of the master key; and the agents' tokens."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from flask import current_app
from sqlalchemy import ForeignKey, LargeBinary, String, UniqueConstraint, select
from sqlalchemy.orm import Mapped, mapped_column

from app.errors import Unavailable
from app.extensions import db, now
from app.models.actor import Actor
from app.models.agent import Agent
from app.models.audit import Action, record
from app.models.base import Identity, Json, Model, UtcDateTime
from app.models.text import clean_name
from app.silo import (
    AgentKeys,
    MasterKey,
    MasterPublicKey,
    Opener,
    WrappedKey,
    hash_token,
    make_agent_keys,
    new_token,
    open_agent_keys,
    parse_token,
)

SCOPES = ("read", "write", "author", "decide")


class MasterKeyRow(Model):
    """The public half of a master key pair. The newest that is not retired is the one to seal to."""

    __tablename__ = "master_keys"

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(16), unique=True)
    public: Mapped[bytes] = mapped_column(LargeBinary(32))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    retired_at: Mapped[datetime | None] = mapped_column(UtcDateTime)

    @classmethod
    def current(cls) -> MasterKeyRow | None:
        return db.session.scalar(select(cls).where(cls.retired_at.is_(None)).order_by(cls.id.desc()).limit(1))

    @classmethod
    def register(cls, public: MasterPublicKey) -> MasterKeyRow:
        row = cls(fingerprint=public.fingerprint, public=public.raw, created_at=now())
        db.session.add(row)
        return row


class AgentKey(Model):
    """One key of an agent (`purpose` data or dedup), sealed to one reader (a fingerprint)."""

    __tablename__ = "agent_keys"
    __table_args__ = (UniqueConstraint("agent_id", "purpose", "version", "reader"),)

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"))
    purpose: Mapped[str] = mapped_column(String(8))
    version: Mapped[int]
    reader: Mapped[str] = mapped_column(String(16))
    sealed: Mapped[bytes] = mapped_column(LargeBinary)


class AgentToken(Model):
    """A bearer token of one agent: only its hash and the public key that derives from it are kept."""

    __tablename__ = "agent_tokens"

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"), index=True)
    name: Mapped[str] = mapped_column(String(80))
    public_id: Mapped[str] = mapped_column(String(16), unique=True)
    token_hash: Mapped[bytes] = mapped_column(LargeBinary(32))
    public_key: Mapped[bytes] = mapped_column(LargeBinary(32))
    scopes: Mapped[list[str]] = mapped_column(Json)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    last_used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)

    @classmethod
    def issue(cls, agent: Agent, *, by: Actor, name: str = "first", scopes: Sequence[str] = SCOPES) -> str:
        """Make a token and return it: the only time that it is seen. The worker seals the agent's keys to it."""
        token = new_token()
        parsed = parse_token(token)
        if parsed is None:
            raise RuntimeError("a new token does not parse")
        public_id, key = parsed
        row = cls(
            agent_id=agent.id,
            name=clean_name(name),
            public_id=public_id,
            token_hash=hash_token(token),
            public_key=key.public.raw,
            scopes=list(scopes),
            created_at=now(),
        )
        db.session.add(row)
        data = {"name": row.name, "token": public_id, "scopes": row.scopes}
        record(Action.TOKEN_CREATE, actor=by, of=agent, subject=f"token:{public_id}", data=data)
        return token


def master_key() -> MasterKey:
    """The private master key of this process. Raises Unavailable in one that holds none, such as the web's."""
    key = current_app.extensions.get("master_key")
    if not isinstance(key, MasterKey):
        raise Unavailable("This process does not hold the master key; only the worker and the command line do.")
    return key


def master_public_key() -> MasterPublicKey:
    """The public half, from the database: enough to write."""
    row = MasterKeyRow.current()
    if row is None:
        raise Unavailable("There is no master key yet: run `whetstone up` or `whetstone db upgrade` once.")
    return MasterPublicKey(row.public)


def make_keys(agent: Agent) -> AgentKeys:
    """Fresh keys for a new agent, sealed to the master; the caller holds the agent's lock."""
    keys = make_agent_keys(agent.uuid)
    _store(agent, keys, master_public_key())
    return keys


def open_keys(agent: Agent, opener: Opener | None = None) -> AgentKeys:
    """The agent's keys, opened with the master key or, in a request, with its own token. Raises SealBroken."""
    opener = opener or master_key()
    rows = db.session.scalars(
        select(AgentKey).where(AgentKey.agent_id == agent.id, AgentKey.reader == opener.fingerprint)
    )
    wrapped = [WrappedKey(row.purpose, row.version, row.reader, row.sealed) for row in rows]
    return open_agent_keys(agent.uuid, wrapped, opener)


def has_keys(agent: Agent) -> bool:
    return db.session.scalar(select(AgentKey.id).where(AgentKey.agent_id == agent.id).limit(1)) is not None


def share_with_tokens(agent: Agent, keys: AgentKeys) -> int:
    """Seal the agent's keys to each of its live tokens that lacks one; returns how many keys were sealed."""
    existing = set(db.session.execute(_held(agent)).tuples())
    tokens = db.session.scalars(
        select(AgentToken).where(AgentToken.agent_id == agent.id, AgentToken.revoked_at.is_(None))
    ).all()
    return sum(_store(agent, keys, MasterPublicKey(token.public_key), existing) for token in tokens)


def _held(agent: Agent) -> Any:
    return select(AgentKey.purpose, AgentKey.version, AgentKey.reader).where(AgentKey.agent_id == agent.id)


def _store(
    agent: Agent, keys: AgentKeys, reader: MasterPublicKey, existing: set[tuple[str, int, str]] | None = None
) -> int:
    new = [
        AgentKey(agent_id=agent.id, purpose=key.purpose, version=key.version, reader=key.reader, sealed=key.sealed)
        for key in keys.wrap_for(reader)
        if (key.purpose, key.version, key.reader) not in (existing or set())
    ]
    db.session.add_all(new)
    return len(new)
