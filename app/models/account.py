"""Account: a tenant. Users and agents belong to one; nothing crosses accounts."""

from __future__ import annotations

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from app.extensions import db, now
from app.models.audit import Action, Chained, record
from app.models.base import Identity, Model, Moment
from app.values.actor import SETUP, Actor
from app.values.text import clean_name


class Account(Chained, Model):
    __tablename__ = "accounts"
    NOUN = "account"
    OWNER = ("account", "id")
    PROVED_ELSEWHERE = frozenset({"audit_sequence", "audit_head"})

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
