"""Marks: what an installation remembers about itself, such as the last scheduled tick that it handled."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import String, Text, select
from sqlalchemy.orm import Mapped, mapped_column

from app.extensions import db, now
from app.models.base import Model, UtcDateTime, lock_row


class Mark(Model):
    """A named value."""

    __tablename__ = "marks"

    name: Mapped[str] = mapped_column(String(48), primary_key=True)
    value: Mapped[str] = mapped_column(Text)
    at: Mapped[datetime] = mapped_column(UtcDateTime)

    @classmethod
    def read(cls, name: str) -> str | None:
        return db.session.scalar(select(cls.value).where(cls.name == name))

    @classmethod
    def write(cls, name: str, value: str) -> None:
        mark = db.session.scalar(lock_row(select(cls).where(cls.name == name)))
        if mark is None:
            db.session.add(cls(name=name, value=value, at=now()))
        else:
            mark.value, mark.at = value, now()
