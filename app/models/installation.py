"""Marks: what an installation remembers about itself, such as the last scheduled tick that it handled."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from functools import cache

from sqlalchemy import String, Text, delete, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Mapped, mapped_column

from app.extensions import db, is_sqlite, now, read_rows
from app.models.base import Model, Moment
from app.prepared import Prepared, one_of, spread

TO_SHRED = "keys_to_shred"
"""The mark that stands while removed keys may still be found in the database's files."""


class InstallationMark(Model):
    """A named value."""

    __tablename__ = "marks"

    name: Mapped[str] = mapped_column(String(48), primary_key=True)
    value: Mapped[str] = mapped_column(Text)
    at: Mapped[Moment]

    @classmethod
    def read(cls, name: str) -> str | None:
        return cls.read_many([name]).get(name)

    @classmethod
    def read_many(cls, names: Sequence[str]) -> dict[str, str]:
        """Those of these names that there are, in one statement."""
        if not names:
            return {}
        count, asked = spread(names)
        return {row[0]: row[1] for row in read_rows(_named_query(count), asked)}

    @classmethod
    def write(cls, name: str, value: str = "", *, unless_since: datetime | None = None) -> bool:
        """Set it, unless somebody did since that moment; returns whether it was set. Of several at once, one does."""
        insert = sqlite.insert if is_sqlite(db.session()) else postgresql.insert
        said, lapsed = {"value": value, "at": now()}, None if unless_since is None else cls.at <= unless_since
        statement = insert(cls).values(name=name, **said)
        statement = statement.on_conflict_do_update(index_elements=[cls.name], set_=said, where=lapsed)
        return db.session.scalar(statement.returning(cls.name)) is not None

    @classmethod
    def drop(cls, name: str) -> None:
        db.session.execute(delete(cls).where(cls.name == name))


@cache
def _named_query(count: int) -> Prepared:
    """Made once: each look at the overview reads three."""
    query = select(InstallationMark.name, InstallationMark.value)
    return Prepared(query.where(one_of(InstallationMark.name, count)))


def note_what_to_shred() -> None:
    """In the transaction that removes keys: from now on their bytes are to be cleaned from the database's files."""
    InstallationMark.write(TO_SHRED, str(uuid.uuid4()))
