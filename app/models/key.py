"""The keys of agents, sealed to their readers; the public half of the master key; and the agents' tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import ClassVar

from sqlalchemy import ForeignKey, LargeBinary, String, UniqueConstraint, delete, select
from sqlalchemy.orm import Mapped, mapped_column

from app.errors import Invalid, Refused
from app.extensions import db, now
from app.models.agent import Agent
from app.models.audit import Action, record
from app.models.base import Identity, Model, Moment, lock_row, require_row
from app.models.installation import note_what_to_shred
from app.models.logged import Logged
from app.silo import MasterPublicKey, WrappedKey, hash_token, new_token, parse_token
from app.values.actor import Actor
from app.values.text import clean_name


class Scope(StrEnum):
    """What a token may: read memories and results, save, change its own settings, give consent."""

    READ = "read"
    WRITE = "write"
    AUTHOR = "author"
    DECIDE = "decide"


SCOPES = tuple(scope.value for scope in Scope)


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

    @property
    def wrapped(self) -> WrappedKey:
        return WrappedKey(self.purpose, self.version, self.reader, self.sealed)


class AgentToken(Logged, Model):
    """A bearer token of one agent: only its hash and the public key that derives from it are kept."""

    __tablename__ = "agent_tokens"
    NOUN = "token"
    LOG_KEY = "public_id"
    NOT_AUDITED: ClassVar[Mapping[str, str]] = {
        "id": "only its own row is found by it",
        "last_used_at": "true to a minute, and no rule reads it",
    }

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"), index=True)
    name: Mapped[str] = mapped_column(String(80))
    public_id: Mapped[str] = mapped_column(String(16), unique=True)
    token_hash: Mapped[bytes] = mapped_column(LargeBinary(32))
    public_key: Mapped[bytes] = mapped_column(LargeBinary(32))
    scopes: Mapped[list[str]]
    created_at: Mapped[Moment]
    last_used_at: Mapped[Moment | None]
    revoked_at: Mapped[Moment | None]

    @classmethod
    def issue(cls, agent: Agent, *, by: Actor, name: str = "first", scopes: Sequence[str] = SCOPES) -> str:
        """Make a token and return it: the only time that it is seen. The worker seals the agent's keys to it.

        The caller holds the agent's lock. Raises Invalid or AgentForgotten.
        """
        agent.check_not_forgotten()
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
            scopes=clean_scopes(scopes),
            created_at=now(),
        )
        db.session.add(row)
        data = {"name": row.name, "token": public_id, "scopes": row.scopes}
        record(Action.TOKEN_CREATE, actor=by, of=agent, subject=row.subject, data=data)
        agent.announce("token")
        return token

    @classmethod
    def lock(cls, agent: Agent, public_id: str) -> AgentToken:
        """A token of an agent that the caller has locked, for change. Raises NotFound."""
        query = select(cls).where(cls.agent_id == agent.id, cls.public_id == public_id)
        return require_row(db.session.scalar(lock_row(query)), f"{agent.name} has no such token.")

    @property
    def is_live(self) -> bool:
        return self.revoked_at is None

    @property
    def reader(self) -> str:
        """The fingerprint under which the agent's keys are sealed to it."""
        return MasterPublicKey(self.public_key).fingerprint

    def revoke(self, agent: Agent, *, by: Actor, why: str = "") -> bool:
        """From this commit on it opens nothing: its copies of the agent's keys go with it. False: it was revoked.

        The caller holds the agent's lock, then this row's; `shredding.shred` cleans the disk of the removed copies.
        """
        if self.revoked_at is not None:
            return False
        db.session.execute(delete(AgentKey).where(AgentKey.agent_id == agent.id, AgentKey.reader == self.reader))
        self.mark_revoked(agent, by=by, why=why)
        note_what_to_shred()
        agent.announce("token")
        return True

    def mark_revoked(self, agent: Agent, *, by: Actor, why: str) -> None:
        """Record that it is revoked; the caller removes its copies of the agent's keys."""
        self.revoked_at = now()
        data = {"name": self.name, "token": self.public_id} | ({"why": why} if why else {})
        record(Action.TOKEN_REVOKE, actor=by, of=agent, subject=self.subject, data=data)

    def rotate(self, agent: Agent, *, by: Actor) -> str:
        """A new token of the same name and scopes, returned this once; this one is revoked. The caller as in `revoke`.

        Raises Refused for one that was revoked already, and AgentForgotten.
        """
        if not self.revoke(agent, by=by, why="a new one took its place"):
            raise Refused(f"The token {self.public_id} was revoked already.", "Nothing was changed; make a new one.")
        return AgentToken.issue(agent, by=by, name=self.name, scopes=self.scopes)


def clean_scopes(scopes: object) -> list[str]:
    """Some of the scopes, each once and in their own order. Raises Invalid for none, and for one that is no scope."""
    given = list(scopes) if isinstance(scopes, list | tuple | set | frozenset) else []
    unknown = [scope for scope in given if scope not in SCOPES]
    if unknown or not given:
        wrong = f"{str(unknown[0])[:40]!r} is no scope" if unknown else "A token without a scope could do nothing"
        raise Invalid(f"{wrong}: give one or more of {', '.join(SCOPES)}.", "Nothing was made.")
    return [scope for scope in SCOPES if scope in given]


def live_tokens(agent_id: int) -> Sequence[AgentToken]:
    """Those that were not revoked."""
    query = select(AgentToken).where(AgentToken.agent_id == agent_id, AgentToken.revoked_at.is_(None))
    return db.session.scalars(query.order_by(AgentToken.id)).all()
