"""Account: a tenant. Users and agents belong to one; nothing crosses accounts."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ColumnElement, LargeBinary, String, select
from sqlalchemy.orm import Mapped, mapped_column

from app.errors import NotFound
from app.extensions import db, now
from app.models.audit import Action, record
from app.models.base import Identity, Model, UtcDateTime, lock_row
from app.models.logged import Logged, Owner
from app.values.actor import SETUP, Actor
from app.values.text import clean_name


class Account(Logged, Model):
    __tablename__ = "accounts"
    LOGGED_AS = "account"
    PROVED_ELSEWHERE = frozenset({"audit_sequence", "audit_head"})

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    name: Mapped[str] = mapped_column(String(80), unique=True)
    is_demo: Mapped[bool] = mapped_column(default=False)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    audit_sequence: Mapped[int] = mapped_column(Identity, default=0)
    audit_head: Mapped[bytes] = mapped_column(LargeBinary(32), default=b"")

    @property
    def logged_for(self) -> Owner:
        return "account", self.id

    @classmethod
    def owned_by(cls) -> str:
        return "account"

    @classmethod
    def belongs_to(cls, owner: Owner) -> ColumnElement[bool]:
        return cls.id == owner[1]

    @property
    def chain(self) -> str:
        """The name of its audit chain, for entries that concern no agent."""
        return f"account:{self.id}"

    @property
    def audited_as(self) -> tuple[int, int | None]:
        return self.id, None

    @classmethod
    def create(cls, name: str, *, is_demo: bool = False, by: Actor = SETUP) -> Account:
        account = cls(name=clean_name(name), is_demo=is_demo, created_at=now(), audit_sequence=0, audit_head=b"")
        db.session.add(account)
        db.session.flush()
        data = {"demo": True} if is_demo else {}
        record(Action.ACCOUNT_CREATE, actor=by, of=account, subject=f"account:{account.id}", data=data)
        return account

    @classmethod
    def lock(cls, account_id: int) -> Account:
        """Load it for a change of its chain. Raises NotFound."""
        account = db.session.scalar(lock_row(select(cls).where(cls.id == account_id)))
        if account is None:
            raise NotFound("There is no such account.")
        return account
