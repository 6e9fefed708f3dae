"""Finding a refinement or an exception by its id or by the beginning of it; and what else can be undone."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import select

from app.errors import NotFound
from app.extensions import db
from app.history.plan import Target
from app.models import AccessGrant, AuditLog, Refinement, Rollback

_BEGINNING = re.compile(r"[0-9a-f-]{6,36}")
"""Six characters of an id are enough where only one refinement has them."""

_ENTRY = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)

_TARGETS: dict[str, tuple[type, Callable[[Any], Target]]] = {
    "refinement": (Refinement, Target.refinement),
    "rollback": (Rollback, Target.rollback),
    "entry": (AuditLog, Target.entry),
}
"""What can be undone, by the word that may stand before its id."""

_NOUNS: dict[type, tuple[str, str]] = {
    Refinement: ("refinement", "refinements list"),
    AccessGrant: ("exception", "grants list --all"),
}
"""With the command that lists them."""

R = TypeVar("R", Refinement, AccessGrant)


def find_row(rows: type[R], number: str, account_id: int | None = None) -> R:
    """A refinement or an exception, of this account or of any. Raises NotFound, also for a beginning of several ids."""
    noun, listing = _NOUNS[rows]
    begins = number.strip().lower()
    found: list[R] = _find_rows(rows, begins, account_id)
    if len(found) == 1:
        return found[0]
    if found:
        raise NotFound(f"More than one {noun} begins with {begins!r}: give more of the id.")
    raise NotFound(f"There is no {noun} {number!r}. `whetstone {listing}` names them all.")


def find_target(number: str, account_id: int | None) -> Target:
    """What can be undone: a refinement, an earlier rollback, or the audit entry of that number.

    `refinement:`, `rollback:` or `entry:` in front says which, where several fit. Raises NotFound.
    """
    kind, _, begins = number.strip().lower().rpartition(":")
    wanted = [target for name, target in _TARGETS.items() if kind in ("", name)]
    found = [target(row.id) for rows, target in wanted for row in _find_rows(rows, begins, account_id)]
    if len(found) == 1:
        return found[0]
    if found:
        fitting = ", ".join(f"{target.kind}:{target.id}" for target in found)
        raise NotFound(f"{number!r} fits more than one: {fitting}. Give one of them whole, as it stands here.")
    raise NotFound(
        f"There is no refinement, rollback or audit entry {number!r}. `./whetstone refinements list` and `./whetstone "
        "audit` name them."
    )


def _find_rows(rows: Any, begins: str, account_id: int | None) -> list[Any]:
    """By the beginning of an id; an entry by its number. At most two of them: more than one is one too many."""
    is_entry = rows is AuditLog
    if not (_ENTRY if is_entry else _BEGINNING).fullmatch(begins):
        return []
    query = select(rows).where(rows.id == int(begins) if is_entry else rows.id.startswith(begins, autoescape=True))
    if account_id is not None:
        query = query.where(rows.account_id == account_id)
    return list(db.session.scalars(query.limit(2)))
