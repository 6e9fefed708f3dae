"""The keys of agents, sealed to their readers; the public half of the master key; and the agents' tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Self

from sqlalchemy import ForeignKey, LargeBinary, String, UniqueConstraint, delete, select
from sqlalchemy.orm import Mapped, mapped_column

from app.errors import Invalid
from app.extensions import db, now
from app.models.agent import Agent
from app.models.audit import Action, record
from app.models.base import Identity, Model, Moment, lock_row, partial_index, require_row
from app.models.declaring import declare
from app.models.installation import note_what_to_shred
from app.models.logged import Logged
from app.models.statement import StatementKind
from app.silo import TokenKey, WrappedKey, hash_token, new_token, parse_token
from app.values.actor import Actor
from app.values.text import clean_name


class Scope(StrEnum):
    """What a token may: read memories and results, save, change its own settings, give consent."""

    READ = "read"
    WRITE = "write"
    AUTHOR = "author"
    DECIDE = "decide"


SCOPES = tuple(scope.value for scope in Scope)


class TokenOrigin(StrEnum):
    """How a token came to be: with its agent, by the agent with a token of its own, by its model that was asked for a
    human, or on the server."""

    FIRST = "first"
    AGENT = "agent"
    MODEL = "model"
    COMMAND_LINE = "command line"


SHOWN_ON_THE_SERVER = "command line"
SHOWN_TO_THE_AGENT = "agent"
"""Who saw a token's secret, where that was no user: who used the command line, or only the agent."""


@dataclass(frozen=True)
class MintedToken:
    """A new token: the secret, which is shown once, and all that the database keeps of it."""

    secret: str = field(repr=False)
    public_id: str
    token_hash: bytes
    public_key: bytes
    signing_key: bytes

    @classmethod
    def mint(cls) -> Self:
        secret = new_token()
        parsed = parse_token(secret)
        if parsed is None:
            raise RuntimeError("a new token does not parse")
        public_id, key = parsed
        return cls(secret, public_id, hash_token(secret), key.public.raw, key.signing_public)

    @property
    def kept(self) -> dict[str, Any]:
        """The columns by which it is known again."""
        return {name: getattr(self, name) for name in KEPT_OF_A_TOKEN}


KEPT_OF_A_TOKEN = ("public_id", "token_hash", "public_key", "signing_key")


class AgentKey(Model):
    """One key of an agent (`purpose` data or dedup), sealed to one reader (its public key in hex)."""

    __tablename__ = "agent_keys"
    __table_args__ = (UniqueConstraint("agent_id", "purpose", "version", "reader"),)

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"))
    purpose: Mapped[str] = mapped_column(String(8))
    version: Mapped[int]
    reader: Mapped[str] = mapped_column(String(64))
    sealed: Mapped[bytes] = mapped_column(LargeBinary)

    @property
    def wrapped(self) -> WrappedKey:
        return WrappedKey(self.purpose, self.version, self.reader, self.sealed)


class AgentToken(Logged, Model):
    """A bearer token of one agent: only its hash and the public keys that derive from it are kept.

    `signing_key` is the public half of its signing pair. `shown_to` is the email of the user who saw its secret, or
    SHOWN_ON_THE_SERVER, or SHOWN_TO_THE_AGENT. `by_token` is the public id of the token that let it be made.
    `rekeyed_at` is when the agent got a new data key because this one was revoked.
    """

    __tablename__ = "agent_tokens"
    NOUN = "token"
    LOG_KEY = "public_id"
    NOT_AUDITED: ClassVar[Mapping[str, str]] = {
        "id": "only its own row is found by it",
        "last_used_at": "true to a minute, and no rule reads it",
    }
    __table_args__ = (
        partial_index("ix_agent_tokens_not_rekeyed", "agent_id", where="revoked_at IS NOT NULL AND rekeyed_at IS NULL"),
    )

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"), index=True)
    name: Mapped[str] = mapped_column(String(80))
    public_id: Mapped[str] = mapped_column(String(16), unique=True)
    token_hash: Mapped[bytes] = mapped_column(LargeBinary(32))
    public_key: Mapped[bytes] = mapped_column(LargeBinary(32))
    signing_key: Mapped[bytes] = mapped_column(LargeBinary(32))
    scopes: Mapped[list[str]]
    how: Mapped[TokenOrigin] = mapped_column(String(16))
    shown_to: Mapped[str] = mapped_column(String(254))
    request_id: Mapped[str | None] = mapped_column(String(36))
    by_token: Mapped[str | None] = mapped_column(String(16))
    created_at: Mapped[Moment]
    last_used_at: Mapped[Moment | None]
    revoked_at: Mapped[Moment | None]
    rekeyed_at: Mapped[Moment | None]

    @classmethod
    def add(
        cls,
        agent: Agent,
        kept: Mapping[str, Any],
        *,
        by: Actor,
        name: str,
        scopes: Sequence[str],
        signer: TokenKey | None = None,
        **origin: Any,
    ) -> AgentToken:
        """The row of a token, and the statement that it was made: `kept` and `origin` are columns, `signer` is the
        agent's token that decided. `keys.tokens` calls it.

        The caller holds the agent's lock. Raises Invalid or AgentForgotten.
        """
        agent.check_not_forgotten()
        cleaned = {"name": clean_name(name), "scopes": clean_scopes(scopes)}
        row = cls(agent_id=agent.id, created_at=now(), **cleaned, **kept, **origin)
        db.session.add(row)
        db.session.flush()
        declare(StatementKind.TOKEN_MADE, agent, row.subject, row.stated(), signer=signer)
        data = {"name": row.name, "token": row.public_id, "scopes": row.scopes, "how": str(row.how)}
        said = {"shown_to": row.shown_to, "request": row.request_id, "by_token": row.by_token}
        data |= {key: value for key, value in said.items() if value}
        record(Action.TOKEN_CREATE, actor=by, of=agent, subject=row.subject, data=data)
        agent.announce("token")
        return row

    @classmethod
    def lock(cls, agent: Agent, public_id: str) -> AgentToken:
        """A token of an agent that the caller has locked, for change. Raises NotFound."""
        query = select(cls).where(cls.agent_id == agent.id, cls.public_id == public_id)
        return require_row(db.session.scalar(lock_row(query)), f"{agent.name} has no such token.")

    @property
    def is_live(self) -> bool:
        return self.revoked_at is None

    def stated(self) -> dict[str, Any]:
        """What a statement says of it, word for word."""
        keys = {name: getattr(self, name).hex() for name in ("token_hash", "public_key", "signing_key")}
        origin = {
            "how": str(self.how),
            "shown_to": self.shown_to,
            "request": self.request_id,
            "by_token": self.by_token,
        }
        return {"name": self.name, "scopes": list(self.scopes)} | keys | origin

    @property
    def reader(self) -> str:
        """Its public key in hex: what the agent's keys are sealed to."""
        return self.public_key.hex()

    @property
    def shown_words(self) -> str:
        """Who saw its secret, and when, as a clause."""
        if self.shown_to == SHOWN_TO_THE_AGENT:
            return "shown to the agent only"
        who = "whoever used the command line" if self.shown_to == SHOWN_ON_THE_SERVER else self.shown_to
        when = {TokenOrigin.FIRST: " when the agent was made", TokenOrigin.COMMAND_LINE: ""}
        return f"shown to {who}{when.get(self.how, ', who asked for it')}"

    def revoke(self, agent: Agent, *, by: Actor, why: str = "", signer: TokenKey | None = None) -> None:
        """From this commit on it opens nothing: its copies of the agent's keys go with it.

        The caller holds the agent's lock, then this row's. `keys.tokens.revoke_token` calls it.
        """
        db.session.execute(delete(AgentKey).where(AgentKey.agent_id == agent.id, AgentKey.reader == self.reader))
        self.mark_revoked(agent, by=by, why=why, signer=signer)
        note_what_to_shred()
        agent.announce("token")

    def mark_revoked(self, agent: Agent, *, by: Actor, why: str, signer: TokenKey | None = None) -> None:
        """Record that it is revoked; the caller removes its copies of the agent's keys."""
        self.revoked_at = now()
        declare(StatementKind.TOKEN_ENDED, agent, f"token:{self.public_id}", {"why": why, "by": str(by)}, signer=signer)
        data = {"name": self.name, "token": self.public_id} | ({"why": why} if why else {})
        record(Action.TOKEN_REVOKE, actor=by, of=agent, subject=self.subject, data=data)


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
