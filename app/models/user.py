"""User: a person with a role in one account; Account: a tenant, with its agents and users.

Sign-in is Flask-Security's; what a user shows beside the password is in `second_factor`.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar
from zoneinfo import available_timezones

from flask_security import AsaList
from flask_security.models import sqla
from sqlalchemy import ColumnElement, ForeignKey, String, and_, or_, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Mapped, mapped_column, relationship

from app.errors import Invalid, Refused
from app.extensions import db, end_reading, now
from app.models.account_limits import AccountLimits
from app.models.audit import NOT_LOGGED_YET, Action, Chained, record
from app.models.base import Identity, Micros, Model, Moment, partial_index, require_row
from app.models.logged import Logged, Said
from app.models.passkey import Passkey
from app.models.second_factor import SecondFactor
from app.models.user_session import AccountVisit, UserSession
from app.values.actor import SETUP, Actor, ActorKind
from app.values.text import clean_name

AsaList.cache_ok = True  # it has no options; else statements with it are compiled anew each time
sqla.FsModels.set_db_info(base_model=Model, user_table_name="users", role_table_name="roles")


class AccountNameTaken(Refused):
    """This name is taken. Choose another one."""

    outcome = "Nothing was changed."


class Account(Chained, Model):
    """A tenant. Users and agents belong to one; nothing crosses accounts. Its limits are the operator's."""

    __tablename__ = "accounts"
    NOUN = "account"
    OWNER = ("account", "id")
    CHECKED_ELSEWHERE = frozenset({"audit_sequence", "audit_head"})
    __table_args__ = (partial_index("ix_accounts_not_logged", "id", where=NOT_LOGGED_YET),)

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    name: Mapped[str] = mapped_column(String(80), unique=True)
    is_demo: Mapped[bool] = mapped_column(default=False)
    max_agents: Mapped[int | None]
    max_refinements: Mapped[int | None]
    max_monthly_cost: Mapped[Decimal | None] = mapped_column(Micros)
    created_at: Mapped[Moment]

    @property
    def audited_as(self) -> tuple[int, int | None]:
        return self.id, None

    @classmethod
    def create(
        cls, name: str, *, is_demo: bool = False, limits: AccountLimits | None = None, by: Actor = SETUP
    ) -> Account:
        """Raises Invalid, and AccountNameTaken."""
        cleaned, limits = clean_name(name), limits or AccountLimits()
        account = cls(name=cleaned, is_demo=is_demo, created_at=now(), **vars(limits))
        db.session.add(account)
        try:
            db.session.flush()
        except IntegrityError:
            raise AccountNameTaken from None
        data: dict[str, Any] = {"demo": True} if is_demo else {}
        data |= {"limits": limits.as_json()} if limits != AccountLimits() else {}
        record(Action.ACCOUNT_CREATE, actor=by, of=account, subject=account.subject, data=data)
        return account

    def rename(self, name: str, *, by: Actor) -> None:
        """Raises Invalid, and Refused for a name that is taken. The row is locked."""
        cleaned, before = clean_name(name), self.name
        if cleaned == before:
            return
        if db.session.scalar(select(Account.id).where(Account.name == cleaned, Account.id != self.id)) is not None:
            raise AccountNameTaken
        self.name = cleaned
        record(
            Action.ACCOUNT_RENAME, actor=by, of=self, subject=self.subject, data={"before": before, "after": cleaned}
        )

    @property
    def limits(self) -> AccountLimits:
        return AccountLimits(self.max_agents, self.max_refinements, self.max_monthly_cost)

    def set_limits(self, limits: AccountLimits, *, by: Actor) -> bool:
        """Returns whether they were others before. What is over them already stays and goes on. The row is locked."""
        before = self.limits
        if limits == before:
            return False
        for name, value in vars(limits).items():
            setattr(self, name, value)
        data = {"before": before.as_json(), "after": limits.as_json()}
        record(Action.ACCOUNT_LIMITS, actor=by, of=self, subject=self.subject, data=data)
        return True


AUDITOR, ADMIN, OWNER, SITE_ADMIN = "auditor", "admin", "owner", "site_admin"
ROLES = (AUDITOR, ADMIN, OWNER, SITE_ADMIN)
ACCOUNT_ROLES = (AUDITOR, ADMIN, OWNER)
"""What an owner can let somebody be; operators are made on the server."""

_INCLUDED = {AUDITOR: {AUDITOR}, ADMIN: {AUDITOR, ADMIN}, OWNER: {AUDITOR, ADMIN, OWNER}, SITE_ADMIN: {SITE_ADMIN}}

VISITING_ROLES = frozenset(_INCLUDED[ADMIN])
"""What an operator is in an account that they entered."""

_NOT_KEPT = ("last_login_at", "last_login_ip", "current_login_ip", "login_count")


class LastOwner(Refused):
    """An account keeps at least one active owner."""

    code = "last_owner"
    outcome = "Nothing was changed."


class Role(Model, sqla.FsRoleMixin):
    __tablename__ = "roles"

    @classmethod
    def named(cls, name: str) -> Role:
        """The role of that name, made where nobody had it yet."""
        role = db.session.scalar(select(cls).where(cls.name == name))
        if role is None:
            role = cls(name=name)
            db.session.add(role)
            db.session.flush()
        return role


class User(SecondFactor, Logged, Model, sqla.FsUserMixin):
    """Roles include the ones below them: an owner may do what an admin may, an admin what an auditor may."""

    __tablename__ = "users"
    NOUN = "user"
    OWNER = ("account", "account_id")
    NOT_AUDITED: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(_NOT_KEPT, "nothing writes or reads it"),
        "current_login_at": "shown on the page of users; every sign-in has an entry of its own",
        "totp_step": "moves with each sign-in, and only forward",
        "challenge_at": "moves with each sign-in by a passkey, and only forward",
        "create_datetime": "the entry of its making has its own time",
        "update_datetime": "a note of the library's; no rule reads it",
    }

    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), index=True)
    time_zone: Mapped[str | None] = mapped_column(String(64))
    passkeys: Mapped[list[Passkey]] = relationship(
        primaryjoin=lambda: and_(User.id == Passkey.user_id, Passkey.removed_at.is_(None)),
        order_by=Passkey.id,
        viewonly=True,
    )
    """Without those that were removed."""

    webauthn: ClassVar[tuple[()]] = ()
    """Flask-Security's own rows for passkeys, which only processes with that library would have: none."""

    _asks_in: tuple[str, AccountVisit | None] = ("", None)
    _renewed: tuple[str | None, str | None] = (None, None)

    if TYPE_CHECKING:
        id: Mapped[int]
        email: Mapped[str]
        active: Mapped[bool]
        password: Mapped[str | None]
        fs_uniquifier: Mapped[str]
        fs_webauthn_user_handle: Mapped[str | None]
        roles: Mapped[list[Any]]
        current_login_at: Mapped[datetime | None]

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

    @property
    def role_names(self) -> list[str]:
        return sorted(role.name for role in self.roles)

    @property
    def passkey_handle(self) -> bytes:
        """By which a passkey names its user: random, and nobody's address."""
        return (self.fs_webauthn_user_handle or "").encode()

    @property
    def session_key(self) -> str:
        """Of the session in which the user asks; empty where nobody is signed in."""
        return self._asks_in[0]

    @property
    def visit(self) -> AccountVisit | None:
        """The other account that the user is in as its admin, by the session in which they ask."""
        return self._asks_in[1]

    def ask_in_session(self, opened: UserSession) -> None:
        self._asks_in = (opened.key, self.visit_in(opened))

    def visit_in(self, opened: UserSession) -> AccountVisit | None:
        """The other account that this session is in, as long as its user is an active operator."""
        visit = opened.visit
        allowed = opened.user_id == self.id and self.active and self.may(SITE_ADMIN)
        return visit if visit is not None and allowed and visit.account_id != self.account_id else None

    @property
    def last_sign_in_at(self) -> datetime | None:
        """None for who did not sign in yet. The library's column has no time zone: it is UTC."""
        at = self.current_login_at
        return at and at.replace(tzinfo=UTC)

    def note_sign_in(self) -> None:
        """In the transaction of the sign-in's entry."""
        self.current_login_at = now().replace(tzinfo=None)

    def said(self) -> Said:
        """With the names of its roles, and the digests of recovery codes as one digest."""
        said = super().said()
        codes = " ".join(said["mf_recovery_codes"] or [])
        digest = f"sha256:{hashlib.sha256(codes.encode()).hexdigest()}" if codes else None
        return said | {"roles": self.role_names, "mf_recovery_codes": digest}

    def may(self, role: str) -> bool:
        """Whether the user's roles include `role`."""
        return any(role in _INCLUDED.get(held.name, set()) for held in self.roles)

    @classmethod
    def is_active_with(cls, role: str) -> ColumnElement[bool]:
        """The same for a query: active now, with a role that includes `role`."""
        sufficient = [held for held, included in _INCLUDED.items() if role in included]
        return and_(cls.active.is_(True), cls.roles.any(or_(*(Role.name == held for held in sufficient))))

    @classmethod
    def of_account(cls, account: Account, user_id: int) -> User:
        """As it is now, behind the account's lock, which orders all changes of its users. Raises NotFound."""
        found = select(cls).where(cls.id == user_id, cls.account_id == account.id)
        user = db.session.scalar(found.execution_options(populate_existing=True))
        return require_row(user, "There is no such user in this account.")

    @property
    def account_role(self) -> str:
        """The widest that it has in its account; empty for none."""
        return next((role for role in reversed(ACCOUNT_ROLES) if role in self.role_names), "")

    def change_role(self, account: Account, role: str, *, by: Actor) -> bool:
        """Returns whether it was another one before. Raises Invalid, and LastOwner. The account is locked."""
        if role not in ACCOUNT_ROLES:
            raise Invalid(f"There is no role {role[:40]!r}. Choose auditor, admin or owner.")
        before = self.account_role
        if role == before:
            return False
        if before == OWNER:
            self._require_another_owner()
        others = [held for held in self.roles if held.name not in ACCOUNT_ROLES]
        self.roles = [*others, Role.named(role)]
        data = {"email": self.email, "before": before, "after": role}
        record(Action.USER_ROLE, actor=by, of=account, subject=self.subject, data=data)
        return True

    def deactivate(self, account: Account, *, by: Actor) -> bool:
        """Nobody signs in as this user any more, and open sessions end; returns whether it was active.

        The caller holds the account's lock. What is for an admin only ends by itself: exceptions, requests for tokens.
        Raises LastOwner.
        """
        if not self.active:
            return False
        if self.may(OWNER):
            self._require_another_owner()
        self.active = False
        self._end_all_sessions(why="deactivated")
        record(Action.USER_DEACTIVATE, actor=by, of=account, subject=self.subject, data={"email": self.email})
        return True

    def reactivate(self, account: Account, *, by: Actor) -> bool:
        """With the role and the password that it had; returns whether it was deactivated. The account is locked."""
        if self.active:
            return False
        self.active = True
        record(Action.USER_REACTIVATE, actor=by, of=account, subject=self.subject, data={"email": self.email})
        return True

    def set_password(self, account: Account, hashed: str, *, by: Actor, how: str, keeping: str = "") -> None:
        """All its sessions end but the one of the key `keeping`. The account is locked."""
        self.password = hashed
        self._end_all_sessions(keeping, why="new password")
        data = {"email": self.email, "how": how}
        record(Action.USER_PASSWORD, actor=by, of=account, subject=self.subject, data=data)

    def end_sessions(self, account: Account, *, but: str, only: int | None = None, by: Actor) -> int:
        """All but the one with the key `but`, or only the one of this id; returns how many. The account is locked."""
        count = UserSession.end_of(self.id, but=but, only=only)
        if count:
            record(Action.SESSIONS_END, actor=by, of=account, subject=self.subject, data={"sessions": count})
        return count

    def set_time_zone(self, account: Account, name: str, *, by: Actor) -> None:
        """By its IANA name; an empty one stands for the browser's own. Raises Invalid. The account is locked."""
        zone = name.strip() or None
        if zone is not None and zone not in available_timezones():
            raise Invalid(f"There is no time zone {zone[:64]!r}. Write a name such as Europe/Lisbon.")
        if zone != self.time_zone:
            self.time_zone = zone
            record(Action.USER_TIME_ZONE, actor=by, of=account, subject=self.subject, data={"time_zone": zone})

    def _end_all_sessions(self, keeping: str = "", *, why: str) -> None:
        """No cookie of before names this user any more."""
        self.fs_uniquifier = uuid.uuid4().hex
        UserSession.end_of(self.id, but=keeping, why=why)

    def _require_another_owner(self) -> None:
        others = (User.account_id == self.account_id, User.id != self.id, User.is_active_with(OWNER))
        if self.active and db.session.scalar(select(User.id).where(*others).limit(1)) is None:
            raise LastOwner(f"{self.email} is the only active owner of this account. Make somebody else one first.")

    @property
    def actor(self) -> Actor:
        return Actor(ActorKind.USER, self.email, self.id)
