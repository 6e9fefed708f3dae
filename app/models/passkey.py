"""Passkey: the public key of a credential that a user's device holds; who has the device signs in by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from sqlalchemy import BigInteger, ForeignKey, LargeBinary, String, select
from sqlalchemy.orm import Mapped, mapped_column

from app.errors import Refused
from app.extensions import db, now
from app.models.base import Identity, Model, Moment, require_row
from app.models.logged import Logged

if TYPE_CHECKING:
    from app.models.user import User

MAX_PASSKEYS = 20
"""Of one user."""

MAX_CREDENTIAL_ID = 1364
"""Characters: 1023 bytes as base64url."""


class PasskeyTaken(Refused):
    """This passkey is registered already, or was removed. Your device can make another one."""

    code = "passkey_taken"
    outcome = "Nothing was changed."


class Passkey(Logged, Model):
    """`credential_id` is base64url, `public_key` COSE. `host` is what it was made for: it signs for no other one.

    A removed one stays as a row, so that the same credential never comes back.
    """

    __tablename__ = "passkeys"
    NOUN = "passkey"
    OWNER = ("account", "account_id")
    NOT_AUDITED: ClassVar[Mapping[str, str]] = {
        "sign_count": "moves with each sign-in, and only forward",
        "used_at": "shown on one's own page; every sign-in has an entry of its own",
    }

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    credential_id: Mapped[str] = mapped_column(String(MAX_CREDENTIAL_ID), unique=True)
    public_key: Mapped[bytes] = mapped_column(LargeBinary)
    host: Mapped[str] = mapped_column(String(253))
    name: Mapped[str] = mapped_column(String(80))
    sign_count: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[Moment]
    used_at: Mapped[Moment | None]
    removed_at: Mapped[Moment | None]

    @classmethod
    def find(cls, credential_id: str) -> Passkey | None:
        """The one of this credential, unless it was removed, as it is now."""
        found = select(cls).where(cls.credential_id == credential_id, cls.removed_at.is_(None))
        return db.session.scalar(found.execution_options(populate_existing=True))

    @classmethod
    def of_user(cls, user: User, passkey_id: int) -> Passkey:
        """Raises NotFound, also for one that was removed."""
        mine = select(cls).where(cls.id == passkey_id, cls.user_id == user.id, cls.removed_at.is_(None))
        return require_row(db.session.scalar(mine), "You have no such passkey.")

    def use(self, sign_count: int) -> bool:
        """Whether the count went forward, as far as the device counts at all. The account is locked."""
        if (sign_count or self.sign_count) and sign_count <= self.sign_count:
            return False
        self.sign_count, self.used_at = sign_count, now()
        return True
