"""OneTimeLink: lets whoever holds it choose a password, once: of a user to be made, or of one that there is.

Only the digest of its secret is kept. Its account's log says who made it and what became of it.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta
from enum import StrEnum

from sqlalchemy import ForeignKey, String, select
from sqlalchemy.orm import Mapped, mapped_column

from app.errors import Invalid, NotFound, Refused
from app.extensions import db, now
from app.models.audit import Action, record
from app.models.base import Identity, Lockable, Model, Moment, lock_row, require_row
from app.models.logged import Logged
from app.models.user import ACCOUNT_ROLES, Account, User
from app.values.actor import Actor
from app.values.text import clean_address

VALID = timedelta(days=7)


class LinkKind(StrEnum):
    INVITATION = "invitation"
    PASSWORD = "password"  # noqa: S105 - a kind's name


class LinkOver(Refused):
    """This link can't be used any more."""

    code = "link_over"
    http_status = 410
    outcome = "Nothing was changed."


class OneTimeLink(Logged, Lockable, Model):
    """`role` is what an invited person may do; `user_id` whose password it is, of an invitation who came of it."""

    __tablename__ = "one_time_links"
    NOUN = "link"
    OWNER = ("account", "account_id")

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), index=True)
    kind: Mapped[LinkKind] = mapped_column(String(16))
    email: Mapped[str] = mapped_column(String(255))
    role: Mapped[str | None] = mapped_column(String(16))
    user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[Moment]
    expires_at: Mapped[Moment]
    used_at: Mapped[Moment | None]
    revoked_at: Mapped[Moment | None]

    @classmethod
    def invite(cls, account: Account, email: str, role: str, *, by: Actor) -> tuple[OneTimeLink, str]:
        """An invitation and its secret, shown this once; an earlier one to the address ends. The account is locked.

        Raises Invalid, and Refused for somebody who is in the account already.
        """
        address = clean_address(email)
        if role not in ACCOUNT_ROLES:
            raise Invalid(f"There is no role {role!r}.")
        here = db.session.scalar(select(User.id).where(User.email == address, User.account_id == account.id))
        if here is not None:
            raise Refused(f"{address} is a user of this account already.")
        return cls._make(account, LinkKind.INVITATION, address, by=by, role=role)

    @classmethod
    def for_password(cls, account: Account, user: User, *, by: Actor) -> tuple[OneTimeLink, str]:
        """A link by which this user, or whoever holds it, sets a new password. Raises Refused for a deactivated one."""
        if not user.active:
            raise Refused(f"{user.email} is deactivated. Reactivate them first.")
        return cls._make(account, LinkKind.PASSWORD, user.email, by=by, user_id=user.id)

    @classmethod
    def find(cls, secret: str) -> OneTimeLink:
        """The one of this secret, if it can be used. Raises NotFound and LinkOver."""
        return cls._require_open(select(cls).where(cls.digest == _digest(secret)))

    @classmethod
    def lock_found(cls, link: OneTimeLink) -> OneTimeLink:
        """The same once more, for change: its account is locked. Raises LinkOver."""
        return cls._require_open(lock_row(select(cls).where(cls.id == link.id)))

    @classmethod
    def of_account(cls, account: Account, link_id: int) -> OneTimeLink:
        """For change: the account is locked. Raises NotFound."""
        found = lock_row(select(cls).where(cls.id == link_id, cls.account_id == account.id))
        return require_row(db.session.scalar(found), "There is no such link in this account.")

    @classmethod
    def open_of(cls, account_id: int) -> list[OneTimeLink]:
        """Those of an account that can be used, newest first."""
        waiting = (cls.used_at.is_(None), cls.revoked_at.is_(None), cls.expires_at > now())
        found = select(cls).where(cls.account_id == account_id, *waiting)
        return list(db.session.scalars(found.order_by(cls.id.desc())))

    def mark_used(self, user: User) -> None:
        """The caller records it, with what it was used for."""
        self.used_at, self.user_id = now(), user.id

    def revoke(self, account: Account, *, by: Actor) -> bool:
        """Whether it could be used until now. The account is locked."""
        if self._why_over():
            return False
        self.revoked_at = now()
        record(Action.LINK_REVOKE, actor=by, of=account, subject=self.subject, data=self._data())
        return True

    @classmethod
    def _make(
        cls,
        account: Account,
        kind: LinkKind,
        email: str,
        *,
        by: Actor,
        role: str | None = None,
        user_id: int | None = None,
    ) -> tuple[OneTimeLink, str]:
        for earlier in cls.open_of(account.id):
            if (earlier.kind, earlier.email) == (kind, email):
                earlier.revoke(account, by=by)
        secret, at = secrets.token_urlsafe(32), now()
        made = cls(account_id=account.id, kind=kind, email=email, role=role, user_id=user_id, digest=_digest(secret))
        made.created_at, made.expires_at = at, at + VALID
        db.session.add(made)
        db.session.flush()
        action = Action.USER_INVITE if kind is LinkKind.INVITATION else Action.PASSWORD_LINK
        record(action, actor=by, of=account, subject=made.subject, data=made._data())
        return made, secret

    @classmethod
    def _require_open(cls, query: object) -> OneTimeLink:
        found = db.session.scalar(query)  # type: ignore[call-overload]
        if found is None:
            raise NotFound("There is no such link. Copy it whole, or ask for a new one.")
        link: OneTimeLink = found
        if why := link._why_over():
            raise LinkOver(why)
        return link

    def _why_over(self) -> str:
        """A sentence; empty while it can be used."""
        if self.used_at is not None:
            return "This link was used already. Sign in, or ask an owner of the account for a new one."
        if self.revoked_at is not None:
            return "This link was taken back. Ask an owner of the account for a new one."
        if self.expires_at <= now():
            return "This link has expired. Ask an owner of the account for a new one."
        return ""

    def _data(self) -> dict[str, str]:
        return {"email": self.email} | ({"role": self.role} if self.role else {})


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()
