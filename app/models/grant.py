"""AccessGrant: a mechanic's exception, a human's time-limited view of content that the agent consented to."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from sqlalchemy import ColumnElement, ForeignKey, Index, LargeBinary, String, and_, exists, or_, select
from sqlalchemy.orm import Mapped, mapped_column

from app.extensions import db, now
from app.models.attention import HasNotesToAdmins
from app.models.audit import Action, record
from app.models.base import Lockable, Model, Moment, Question, database_now, iso, lock_row, partial_index
from app.models.declaring import declare
from app.models.event import announce
from app.models.keyset import Keyset
from app.models.logged import Logged, Owner, Said
from app.models.statement import StatementKind
from app.models.user import ADMIN, User
from app.silo import Sealed, TokenKey
from app.values.actor import Actor

if TYPE_CHECKING:
    from app.models.agent import Agent


ACCESS_REQUEST = "whetstone-access-request/1"
"""The heading of what is signed of a request."""


class GrantCategory(StrEnum):
    DEBUGGING = "debugging"
    SAFETY = "safety"
    LEGAL = "legal"
    AGENT_ASKED = "agent_asked"
    OTHER = "other"


class GrantStatus(StrEnum):
    """`pending` waits for the agent, `granted` is live until it expires; all others are ends, and are never left."""

    PENDING = "pending"
    GRANTED = "granted"
    DENIED = "denied"
    UNANSWERED = "unanswered"
    FAILED = "failed"
    EXPIRED = "expired"
    REVOKED = "revoked"


OPEN_GRANTS = (GrantStatus.PENDING, GrantStatus.GRANTED)
NO_LONGER_ADMIN = "the person is no longer an active admin of this account"


class AccessGrant(HasNotesToAdmins, Logged, Lockable, Question, Model):
    """`refinement_id` null means the ledger; otherwise the history of that one refinement.

    `views` counts receipts; `told_at` is when the agent's journal was told how it ended. `reason` is the agent's own
    words: content. `purpose` is the asking human's. `by_token` is the public id of the token that decided, if one did.
    """

    __tablename__ = "access_grants"
    NOUN = "exception"
    NOTED_BY = "grant_id"
    NOT_AUDITED: ClassVar[Mapping[str, str]] = {
        "asked_at": "which worker asks at the moment; the answer is what counts"
    }
    __table_args__ = (
        partial_index("ix_access_grants_open", "expires_at", where="status IN ('pending', 'granted')"),
        partial_index("ix_access_grants_untold", "agent_id", where="told_at IS NULL"),
        Index("ix_access_grants_user", "user_id", "status"),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), index=True)
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"), index=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    category: Mapped[GrantCategory] = mapped_column(String(16))
    purpose: Mapped[str] = mapped_column(String(500))
    refinement_id: Mapped[str | None] = mapped_column(ForeignKey("refinements.id"))
    minutes: Mapped[int]
    status: Mapped[GrantStatus] = mapped_column(String(16))
    requested_by: Mapped[str] = mapped_column(String(300))
    requested_at: Mapped[Moment]
    decided_at: Mapped[Moment | None]
    expires_at: Mapped[Moment | None]
    ended_at: Mapped[Moment | None]
    ended_by: Mapped[str | None] = mapped_column(String(300))
    reason: Mapped[Sealed | None]
    by_token: Mapped[str | None] = mapped_column(String(16))
    note: Mapped[bytes] = mapped_column(LargeBinary)
    views: Mapped[int] = mapped_column(default=0)
    told_at: Mapped[Moment | None]

    @classmethod
    def row_matches(cls, grant_id: str, *conditions: ColumnElement[bool]) -> bool:
        """Whether the one of that id is as these conditions say, now."""
        return db.session.scalar(select(cls.id).where(cls.id == grant_id, *conditions)) is not None

    @classmethod
    def is_live(cls) -> ColumnElement[bool]:
        """Whether it covers anything now: by the database's clock and roles, whatever any other place says."""
        return and_(cls.status == GrantStatus.GRANTED, cls.expires_at > database_now(), cls.is_for_an_admin())

    @classmethod
    def is_for_an_admin(cls) -> ColumnElement[bool]:
        """Whether its human is an active admin of the agent's account, now: no YES makes up for that."""
        here = and_(User.id == cls.user_id, User.account_id == cls.account_id)
        return exists().where(here, User.is_active_with(ADMIN)).correlate(cls)

    @classmethod
    def is_lost(cls) -> ColumnElement[bool]:
        """Whether it is open, with time left, but not for an admin any more."""
        has_time = or_(cls.expires_at.is_(None), cls.expires_at > database_now())
        return and_(cls.status.in_(OPEN_GRANTS), has_time, ~cls.is_for_an_admin())

    @classmethod
    def revoke_all(cls, agent: Agent, *, by: Actor, why: str) -> int:
        """End every open exception of an agent that the caller has locked; returns how many."""
        query = lock_row(select(cls).where(cls.agent_id == agent.id, cls.status.in_(OPEN_GRANTS)).order_by(cls.id))
        grants = db.session.scalars(query).all()
        for grant in grants:
            grant.end(agent, GrantStatus.REVOKED, by=by, why=why)
        return len(grants)

    @property
    def is_open(self) -> bool:
        return self.status in OPEN_GRANTS

    @property
    def scope(self) -> str:
        """`ledger`, or the id of the refinement whose history it covers."""
        return self.refinement_id or "ledger"

    def requested(self) -> dict[str, Any]:
        """What is asked for, and for whom: signed by who writes the question down, and never anything else asked."""
        about = {"category": str(self.category), "purpose": self.purpose, "scope": self.scope, "minutes": self.minutes}
        return about | {"exception": self.id, "agent": self.agent_id, "user": self.user_id}

    def stated(self) -> dict[str, Any]:
        """What the agent granted: who may see what, why and for how long. The statement says it word for word."""
        user = db.session.get(User, self.user_id)
        email = user.email if user else None
        about = {"category": str(self.category), "purpose": self.purpose, "scope": self.scope, "minutes": self.minutes}
        return about | {"user": self.user_id, "email": email, "by_token": self.by_token}

    def allow(self, agent: Agent, *, by: Actor) -> None:
        """The agent said YES: content is shown from now on, for so many minutes of the database's clock."""
        moment = db.session.scalars(select(database_now())).one()
        self.status, self.decided_at = GrantStatus.GRANTED, moment
        self.expires_at = moment + timedelta(minutes=self.minutes)
        self._record_status(agent, by, minutes=self.minutes, until=iso(self.expires_at))

    def end(
        self, agent: Agent, status: GrantStatus, *, by: Actor, why: str = "", signer: TokenKey | None = None
    ) -> None:
        """Reach an end, for good. The caller holds the agent's lock, then this row's. Does nothing to an ended one.

        `signer` is the agent's token where that ends it.
        """
        if status in OPEN_GRANTS:
            raise ValueError(f"{status} is no end")
        if not self.is_open:
            return
        was_live = self.status == GrantStatus.GRANTED
        self.status, self.ended_by = status, str(by)
        self.ended_at = db.session.scalar(select(database_now())) if was_live else now()
        self.decided_at = self.decided_at or self.ended_at
        if not was_live:
            self.told_at = self.ended_at
        if status != GrantStatus.DENIED:
            said = {"status": str(status), "by": str(by)}
            declare(StatementKind.EXCEPTION_ENDED, agent, self.subject, said, signer=signer)
        self._record_status(agent, by, views=self.views, why=why or None)

    def end_if_lost(self, agent: Agent, *, by: Actor) -> bool:
        """End it where its human is no admin here any more; returns whether it was so. For a caller like `end`'s."""
        if not AccessGrant.row_matches(self.id, AccessGrant.is_lost()):
            return False
        self.end(agent, GrantStatus.REVOKED, by=by, why=NO_LONGER_ADMIN)
        return True

    def _record_status(self, agent: Agent, by: Actor, **data: Any) -> None:
        said = {"exception": self.id} | {name: value for name, value in data.items() if value is not None}
        record(Action(f"access_{self.status}"), actor=by, of=agent, subject=self.subject, data=said)
        announce(f"exception.{self.status}", self.account_id, self.agent_id, exception=self.id, user=self.user_id)


NEWEST_GRANTS = Keyset((AccessGrant.requested_at, AccessGrant.id), newest_first=True)


class AccessView(Logged, Model):
    """One look through an exception: asked for by the web, answered by the worker, who seals it to `reader`.

    `reader` is the public half of a key pair that lives as long as the request. `wanted` names the part; `note` is the
    web process's signature under all that; `sealed` is
    emptied when it was fetched; `seen` counts items; `refused` says why there was nothing to see.
    """

    __tablename__ = "access_views"
    NOUN = "view"
    NOT_AUDITED: ClassVar[Mapping[str, str]] = {"sealed": "emptied when it was fetched, or soon after"}
    __table_args__ = (Index("ix_access_views_grant_id", "grant_id", "requested_at"),)

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    grant_id: Mapped[str] = mapped_column(ForeignKey("access_grants.id"))
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    reader: Mapped[bytes] = mapped_column(LargeBinary(32))
    wanted: Mapped[dict[str, Any]]
    note: Mapped[bytes] = mapped_column(LargeBinary)
    sealed: Mapped[bytes | None] = mapped_column(LargeBinary)
    seen: Mapped[int | None]
    refused: Mapped[str | None] = mapped_column(String(300))
    requested_at: Mapped[Moment]
    answered_at: Mapped[Moment | None]

    def signed_fields(self) -> dict[str, Any]:
        """What the web process signs of it."""
        asked = {"view": self.id, "exception": self.grant_id, "user": self.user_id, "wanted": self.wanted}
        return asked | {"reader": self.reader.hex(), "at": iso(self.requested_at)}

    @property
    def logged_for(self) -> Owner:
        return "agent", db.session.get_one(AccessGrant, self.grant_id).agent_id

    @classmethod
    def belongs_to(cls, owner_id: int | ColumnElement[int]) -> ColumnElement[bool]:
        return cls.grant_id.in_(select(AccessGrant.id).where(AccessGrant.agent_id == owner_id))

    def said(self) -> Said:
        """Once something was shown: that is what has a receipt."""
        return {} if self.seen is None else super().said()
