"""Finding a refinement by its id, or by the beginning of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from app.errors import NotFound

if TYPE_CHECKING:
    from app.models import Refinement

_BEGINNING = re.compile(r"[0-9a-f-]{6,36}")
"""Six characters of an id are enough where only one refinement has them."""


def find_refinement(number: str) -> Refinement:
    """Raises NotFound, also when the beginning of an id fits several."""
    from sqlalchemy import select

    from app.extensions import db
    from app.models import Refinement

    begins = number.strip().lower()
    if _BEGINNING.fullmatch(begins):
        query = select(Refinement).where(Refinement.id.startswith(begins, autoescape=True))
        found = db.session.scalars(query.limit(2)).all()
        if len(found) == 1:
            return found[0]
        if found:
            raise NotFound(f"More than one refinement begins with {begins!r}: give more of the id.")
    raise NotFound(f"There is no refinement {number!r}. `whetstone refinements list` names them all.")
