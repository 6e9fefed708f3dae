"""User: a person with a role in one account; Account: a tenant, with its agents and users.

Sign-in, second factors and passkeys are Flask-Security's.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from flask_security.models import sqla
from sqlalchemy import ColumnElement, ForeignKey, String, and_
from sqlalchemy.orm import Mapped, mapped_column

from app.extensions import db, end_reading, now
from app.models.audit import NOT_LOGGED_YET, Action, Chained, record
from app.models.base import Identity, Model, Moment, partial_index
from app.models.logged import Logged, Said
from app.values.actor import SETUP, Actor, ActorKind
from app.values.text import clean_name

sqla.FsModels.set_db_info(
    base_model=Model, user_table_name="users", role_table_name="roles", webauthn_table_name="passkeys"
)


class Account(Chained, Model):
    """A tenant. Users and agents belong to one; nothing crosses accounts."""

    __tablename__ = "accounts"
    NOUN = "account"
    OWNER = ("account", "id")
    CHECKED_ELSEWHERE = frozenset({"audit_sequence", "audit_head"})
    __table_args__ = (partial_index("ix_accounts_not_logged", "id", where=NOT_LOGGED_YET),)

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    name: Mapped[str] = mapped_column(String(80), unique=True)
    is_demo: Mapped[bool] = mapped_column(default=False)
    created_at: Mapped[Moment]

    @property
    def audited_as(self) -> tuple[int, int | None]:
        return self.id, None

    @classmethod
    def create(cls, name: str, *, is_demo: bool = False, by: Actor = SETUP) -> Account:
        account = cls(name=clean_name(name), is_demo=is_demo, created_at=now())
        db.session.add(account)
        db.session.flush()
        data = {"demo": True} if is_demo else {}
        record(Action.ACCOUNT_CREATE, actor=by, of=account, subject=account.subject, data=data)
        return account


AUDITOR, ADMIN, OWNER, SITE_ADMIN = "auditor", "admin", "owner", "site_admin"
ROLES = (AUDITOR, ADMIN, OWNER, SITE_ADMIN)
_INCLUDED = {AUDITOR: {AUDITOR}, ADMIN: {AUDITOR, ADMIN}, OWNER: {AUDITOR, ADMIN, OWNER}, SITE_ADMIN: {SITE_ADMIN}}

_NOT_KEPT = ("last_login_at", "current_login_at", "last_login_ip", "current_login_ip", "login_count")


class Role(Model, sqla.FsRoleMixin):
    __tablename__ = "roles"


class User(Logged, Model, sqla.FsUserMixin):
    """Roles include the ones below them: an owner may do what an admin may, an admin what an auditor may."""

    __tablename__ = "users"
    NOUN = "user"
    OWNER = ("account", "account_id")
    NOT_AUDITED: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(_NOT_KEPT, "nothing writes or reads it"),
        "create_datetime": "the entry of its making has its own time",
        "update_datetime": "a note of the library's; no rule reads it",
    }

    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), index=True)

    _renewed: tuple[str | None, str | None] = (None, None)

    if TYPE_CHECKING:
        id: Mapped[int]
        email: Mapped[str]
        active: Mapped[bool]
        password: Mapped[str | None]
        fs_uniquifier: Mapped[str]
        roles: Mapped[list[Any]]

    def verify_and_update_password(self, password: str) -> bool:
        """Whether it is right. A hash of another cost than today's is kept for `renew_password_hash`."""
        before = self.password
        right: bool = super().verify_and_update_password(password)
        if self.password != before:
            self._renewed = (before, self.password)
            end_reading()
        return right

    def renew_password_hash(self) -> None:
        """Store the hash of today's cost, if a password was checked by an older one and not changed since.

        In `writing()`, with the account's row locked.
        """
        before, renewed = self._renewed
        if before is not None and self.password == before:
            self.password = renewed

    def said(self) -> Said:
        """With the names of its roles."""
        return super().said() | {"roles": sorted(role.name for role in self.roles)}

    def may(self, role: str) -> bool:
        """Whether the user's roles include `role`."""
        return any(role in _INCLUDED.get(held.name, set()) for held in self.roles)

    @classmethod
    def is_active_with(cls, role: str) -> ColumnElement[bool]:
        """The same for a query: active now, with a role that includes `role`."""
        sufficient = [held for held, included in _INCLUDED.items() if role in included]
        return and_(cls.active.is_(True), cls.roles.any(Role.name.in_(sufficient)))

    def deactivate(self, account: Account, *, by: Actor) -> bool:
        """Nobody signs in as this user any more, and open sessions end; returns whether it was active.

        The caller holds the account's lock. What is for an admin only ends by itself: exceptions, requests for tokens.
        """
        if not self.active:
            return False
        self.active, self.fs_uniquifier = False, uuid.uuid4().hex
        data = {"email": self.email}
        record(Action.USER_DEACTIVATE, actor=by, of=account, subject=f"user:{self.id}", data=data)
        return True

    @property
    def actor(self) -> Actor:
        return Actor(ActorKind.USER, self.email, self.id)


class WebAuthn(Model, sqla.FsWebAuthnMixin):
    __tablename__ = "passkeys"
