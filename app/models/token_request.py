"""TokenRequest: what a human asks for, a token of an agent, while only the agent can say whether it ever works."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from sqlalchemy import ColumnElement, ForeignKey, LargeBinary, String, and_, exists, select
from sqlalchemy.orm import Mapped, mapped_column

from app.extensions import db, now
from app.models.audit import Action, record
from app.models.base import Model, Moment, Question, lock_row, partial_index, require_row
from app.models.declaring import sign_request
from app.models.grant import NO_LONGER_ADMIN
from app.models.key import KEPT_OF_A_TOKEN, MintedToken, clean_scopes
from app.models.keyset import Keyset
from app.models.logged import Logged
from app.models.user import ADMIN, User
from app.silo import Sealed
from app.values.actor import Actor
from app.values.text import clean_name

if TYPE_CHECKING:
    from app.models.agent import Agent


TOKEN_REQUEST = "whetstone-token-request/1"  # noqa: S105 - a heading
"""The heading of what the web process signs of one."""


class TokenRequestStatus(StrEnum):
    """`pending` waits for the agent; all others are ends, and are never left."""

    PENDING = "pending"
    GRANTED = "granted"
    DENIED = "denied"
    UNANSWERED = "unanswered"
    FAILED = "failed"
    WITHDRAWN = "withdrawn"


class TokenRequest(Logged, Question, Model):
    """The token's secret was shown to `user_id` when it was asked for, and opens nothing until a YES.

    `replaces` is the public id of the token that ends with the YES. `reason` is the agent's own words: content. `note`
    is the web process's signature under what is asked.
    """

    __tablename__ = "token_requests"
    NOUN = "token-request"
    NOT_AUDITED: ClassVar[Mapping[str, str]] = {
        "asked_at": "which worker asks at the moment; the answer is what counts"
    }
    __table_args__ = (
        partial_index("ix_token_requests_open", "agent_id", "user_id", unique=True, where="status = 'pending'"),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), index=True)
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"), index=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    name: Mapped[str] = mapped_column(String(80))
    scopes: Mapped[list[str]]
    public_id: Mapped[str] = mapped_column(String(16), unique=True)
    token_hash: Mapped[bytes] = mapped_column(LargeBinary(32))
    public_key: Mapped[bytes] = mapped_column(LargeBinary(32))
    signing_key: Mapped[bytes] = mapped_column(LargeBinary(32))
    replaces: Mapped[str | None] = mapped_column(String(16))
    status: Mapped[TokenRequestStatus] = mapped_column(String(16))
    requested_by: Mapped[str] = mapped_column(String(300))
    requested_at: Mapped[Moment]
    decided_at: Mapped[Moment | None]
    decided_by: Mapped[str | None] = mapped_column(String(300))
    reason: Mapped[Sealed | None]
    note: Mapped[bytes] = mapped_column(LargeBinary)

    @classmethod
    def make(
        cls, agent: Agent, user: User, *, name: str, scopes: Sequence[str], by: Actor, replaces: str | None = None
    ) -> tuple[TokenRequest, str]:
        """Write a question down, and mint the token that it is about; returns its secret too, this once.

        The caller holds the agent's lock. Raises Invalid.
        """
        minted = MintedToken.mint()
        request = cls(
            id=str(uuid.uuid4()),
            account_id=agent.account_id,
            agent_id=agent.id,
            user_id=user.id,
            name=clean_name(name),
            scopes=clean_scopes(scopes),
            replaces=replaces,
            **minted.kept,
            status=TokenRequestStatus.PENDING,
            requested_by=str(by),
            requested_at=now(),
        )
        request.note = sign_request(TOKEN_REQUEST, request.about())
        db.session.add(request)
        db.session.flush()
        data = {"name": request.name, "token": request.public_id, "scopes": request.scopes}
        request._record(agent, by, data | ({"replaces": replaces} if replaces else {}))
        return request, minted.secret

    @classmethod
    def lock(cls, request_id: str) -> TokenRequest:
        """Load it for change; its agent is locked already. Raises NotFound."""
        return require_row(db.session.scalar(lock_row(select(cls).where(cls.id == request_id))), NO_SUCH_REQUEST)

    @classmethod
    def waits(cls) -> ColumnElement[bool]:
        return cls.status == TokenRequestStatus.PENDING

    @classmethod
    def is_lost(cls) -> ColumnElement[bool]:
        """Whether it waits, and who asked is no active admin of the account any more."""
        here = and_(User.id == cls.user_id, User.account_id == cls.account_id)
        is_for_an_admin = exists().where(here, User.is_active_with(ADMIN)).correlate(cls)
        return and_(cls.waits(), ~is_for_an_admin)

    @classmethod
    def end_all(cls, agent: Agent, *, by: Actor, why: str) -> None:
        """Take back every one that waits, of an agent that the caller has locked."""
        query = lock_row(select(cls).where(cls.agent_id == agent.id, cls.waits()).order_by(cls.id))
        for request in db.session.scalars(query).all():
            request.end(agent, TokenRequestStatus.WITHDRAWN, by=by, why=why)

    @property
    def is_open(self) -> bool:
        return self.status == TokenRequestStatus.PENDING

    @property
    def kept(self) -> dict[str, Any]:
        """The columns by which the token is known, if it is ever made."""
        return {name: getattr(self, name) for name in KEPT_OF_A_TOKEN}

    def about(self) -> dict[str, Any]:
        """What exactly is asked, as plain data: a YES to this is a YES to nothing else."""
        keys = {name: value.hex() if isinstance(value, bytes) else value for name, value in self.kept.items()}
        wanted = {"name": self.name, "scopes": list(self.scopes), "user": self.user_id, "replaces": self.replaces}
        return keys | wanted | {"request": self.id, "agent": self.agent_id}

    def end(self, agent: Agent, status: TokenRequestStatus, *, by: Actor, why: str = "") -> None:
        """Reach an end, for good. The caller holds the agent's lock, then this row's. Does nothing to an ended one."""
        if not self.is_open:
            return
        self.status, self.decided_at, self.decided_by = status, now(), str(by)
        self._record(agent, by, {"token": self.public_id} | ({"why": why} if why else {}))

    def end_if_lost(self, agent: Agent, *, by: Actor) -> bool:
        """End it where its human is no admin here any more; returns whether it was so. For a caller like `end`'s."""
        if db.session.scalar(select(TokenRequest.id).where(TokenRequest.id == self.id, TokenRequest.is_lost())) is None:
            return False
        self.end(agent, TokenRequestStatus.WITHDRAWN, by=by, why=NO_LONGER_ADMIN)
        return True

    def _record(self, agent: Agent, by: Actor, data: dict[str, Any]) -> None:
        step = "requested" if self.is_open else self.status
        record(Action(f"token_{step}"), actor=by, of=agent, subject=self.subject, data={"request": self.id} | data)
        agent.announce("token", request=self.id, status=str(self.status))


NO_SUCH_REQUEST = "There is no such request for a token."

NEWEST_TOKEN_REQUESTS = Keyset((TokenRequest.requested_at, TokenRequest.id), newest_first=True)
