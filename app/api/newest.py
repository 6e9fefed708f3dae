"""Pages of what is shown newest first: from behind a row that the page before ended with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from sqlalchemy import Select, literal, tuple_

from app.errors import Invalid
from app.extensions import db
from app.models import AccessGrant, Refinement
from app.models.base import UtcDateTime

Row = TypeVar("Row", Refinement, AccessGrant)


def newest(
    model: type[Row], mine: Select[tuple[Row]], fitting: Select[tuple[Row]], *, before: str | None, limit: int
) -> tuple[Sequence[Row], str | None]:
    """Those of `fitting` that were asked for before the one that `before` names among `mine`; and where to go on.

    Raises Invalid.
    """
    if before is not None:
        mark = db.session.scalar(mine.where(model.id == before)) if before.isprintable() else None
        if mark is None:
            raise Invalid("The cursor `before` is not one of yours; leave it out to begin at the newest.")
        place = tuple_(literal(mark.requested_at, UtcDateTime), literal(mark.id))
        fitting = fitting.where(tuple_(model.requested_at, model.id) < place)
    found = db.session.scalars(fitting.order_by(model.requested_at.desc(), model.id.desc()).limit(limit + 1)).all()
    shown = found[:limit]
    return shown, shown[-1].id if len(found) > limit else None
