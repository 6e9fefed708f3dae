"""UserSession: one sign-in of a user in one browser. Its key stands in the signed cookie; ended, it lets nobody in.

An operator enters another account in one session, for an hour at most: the row says which, and until when.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ForeignKey, String, select, update
from sqlalchemy.orm import Mapped, mapped_column

from app.extensions import db, now
from app.models.base import Identity, Model, Moment, drop_old_rows

SEEN_EVERY = timedelta(minutes=5)
"""How exactly it is known when somebody was here last: a page that is only read writes no more often."""

KEPT = timedelta(days=366)
"""A cookie lives for a year at most."""


VISIT = timedelta(minutes=60)
"""How long an operator is in another account at most."""

_CLOCKS_DIFFER = timedelta(minutes=1)


@dataclass(frozen=True)
class AccountVisit:
    """An operator is in another account as its admin, until then."""

    account_id: int
    until: datetime


class UserSession(Model):
    """Outside of the audit log, which has each sign-in, sign-out and end by its own entry."""

    __tablename__ = "user_sessions"

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    key: Mapped[str] = mapped_column(String(32), unique=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    address: Mapped[str] = mapped_column(String(64))
    browser: Mapped[str] = mapped_column(String(200))
    signed_in_at: Mapped[Moment]
    seen_at: Mapped[Moment]
    ended_at: Mapped[Moment | None]
    ended_why: Mapped[str | None] = mapped_column(String(40))
    entered_account_id: Mapped[int | None] = mapped_column(ForeignKey("accounts.id"))
    entered_until: Mapped[Moment | None]

    @classmethod
    def begin(cls, user_id: int, *, address: str, browser: str) -> UserSession:
        at = now()
        made = cls(user_id=user_id, key=secrets.token_hex(16), address=address[:64], browser=browser[:200])
        made.signed_in_at = made.seen_at = at
        db.session.add(made)
        return made

    @classmethod
    def open_of(cls, user_id: int) -> list[UserSession]:
        """Newest first."""
        mine = select(cls).where(cls.user_id == user_id, cls.ended_at.is_(None))
        return list(db.session.scalars(mine.order_by(cls.seen_at.desc(), cls.id.desc())))

    @classmethod
    def end_of(cls, user_id: int, *, but: str = "", only: int | None = None, why: str = "session ended") -> int:
        """End those of a user: all, all but the one with this key, or only the one of this id. Returns how many."""
        wanted = [cls.user_id == user_id, cls.ended_at.is_(None), cls.key != but]
        wanted += [cls.id == only] if only is not None else []
        ended = update(cls).where(*wanted).values(ended_at=now(), ended_why=why).returning(cls.id)
        return len(db.session.scalars(ended.execution_options(synchronize_session=False)).all())

    @classmethod
    def end_by_key(cls, key: str) -> None:
        db.session.execute(update(cls).where(cls.key == key, cls.ended_at.is_(None)).values(ended_at=now()))

    @classmethod
    def note_seen(cls, session_id: int) -> None:
        """Its user is here."""
        db.session.execute(update(cls).where(cls.id == session_id).values(seen_at=now()))

    @classmethod
    def open_by_key(cls, keys: Collection[str]) -> dict[str, UserSession]:
        """The open sessions among those of these keys, as they are now."""
        found = select(cls).where(cls.key.in_(keys), cls.ended_at.is_(None))
        return {each.key: each for each in db.session.scalars(found.execution_options(populate_existing=True))}

    @property
    def visit(self) -> AccountVisit | None:
        """What the row says while it counts. Whether its user may is the user's to say: `User.visit_in`."""
        if self.ended_at is not None or self.entered_account_id is None or self.entered_until is None:
            return None
        if not now() < self.entered_until <= now() + VISIT + _CLOCKS_DIFFER:
            return None
        return AccountVisit(self.entered_account_id, self.entered_until)

    @property
    def is_to_be_noted(self) -> bool:
        """Whether it was not noted for a while that its user is here."""
        return now() - self.seen_at >= SEEN_EVERY


def drop_old_sessions() -> int:
    """Those of which no cookie can live; returns how many."""
    return drop_old_rows(UserSession.id, UserSession.seen_at, now() - KEPT)
