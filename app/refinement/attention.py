"""What needs attention, many at once: which items a filter wants, and marking them all as seen, or as not seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from sqlalchemy import ColumnElement, select

from app.errors import Invalid
from app.extensions import reading, writing
from app.models import Actor, Agent, AttentionItem, AttentionKind
from app.models.attention import NEWEST_ITEMS
from app.models.base import lock_row
from app.refinement.failures import has_reason

MOST_AT_ONCE = 500
"""Items or refinements that one click acts on; the newest come first."""


@dataclass(frozen=True)
class AttentionFilter:
    """Without kinds all of them; `reason` is why a refinement failed, as `failures` says it."""

    kinds: Sequence[AttentionKind] = ()
    agent_id: int | None = None
    reason: str = ""
    with_seen: bool = False

    def conditions(self) -> Iterable[ColumnElement[bool]]:
        if not self.with_seen:
            yield AttentionItem.is_open()
        if self.kinds:
            yield AttentionItem.kind.in_(self.kinds)
        if self.agent_id is not None:
            yield AttentionItem.agent_id == self.agent_id
        if self.reason:
            yield AttentionItem.refinement.has(has_reason(self.reason))


@dataclass(frozen=True)
class MarkedSeen:
    """How many items, of how many refinements, and from when to when: so that just these can be unmarked."""

    items: int = 0
    refinements: int = 0
    since: datetime | None = None
    until: datetime | None = None


def parse_kinds(text: str) -> list[AttentionKind]:
    """Of several with commas between them. Raises Invalid."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in list(AttentionKind)]
    if unknown:
        known = ", ".join(AttentionKind)
        raise Invalid(f"There is no kind {unknown[0]!r}. There are {known}.")
    return [AttentionKind(name) for name in dict.fromkeys(names)]


def mark_many_seen(*conditions: ColumnElement[bool], by: Actor, most: int | None = None) -> MarkedSeen:
    """Mark what is so as seen, or the `most` newest of it. Those that somebody saw meanwhile are left as they are.

    An agent a transaction: none may be open here.
    """
    wanted = (AttentionItem.is_open(), *conditions)
    marked = _change_items(*wanted, change=lambda item, agent: item.mark_seen(agent, by=by), most=most)
    moments = [item.seen_at for item in marked if item.seen_at is not None]
    refinements = len({item.refinement_id for item in marked if item.refinement_id})
    return MarkedSeen(len(marked), refinements, min(moments, default=None), max(moments, default=None))


def unsee_many(account_id: int, since: datetime, until: datetime, *, by: Actor) -> int:
    """Take back what this actor marked as seen between two moments, both included; returns how many items."""
    marked = (
        AttentionItem.account_id == account_id,
        AttentionItem.seen_by == str(by),
        AttentionItem.seen_at >= since,
        AttentionItem.seen_at <= until,
    )
    return len(_change_items(*marked, change=lambda item, agent: item.mark_unseen(agent, by=by)))


def _change_items(
    *conditions: ColumnElement[bool], change: Callable[[AttentionItem, Agent], bool], most: int | None = None
) -> list[AttentionItem]:
    """Those that were changed, of the `most` newest. Locks agent, then its items, one agent a transaction."""
    columns = select(AttentionItem.agent_id, AttentionItem.id).where(*conditions)
    with reading() as session:
        found = session.execute(columns.order_by(*NEWEST_ITEMS.order).limit(most)).tuples().all()
    changed: list[AttentionItem] = []
    for agent_id, rows in groupby(sorted(found), key=lambda row: row[0]):
        ids = [item_id for _, item_id in rows]
        wanted = select(AttentionItem).where(AttentionItem.id.in_(ids), *conditions).order_by(AttentionItem.id)
        with writing() as session:
            agent = Agent.lock(agent_id)
            changed += [item for item in session.scalars(lock_row(wanted)).all() if change(item, agent)]
    return changed
