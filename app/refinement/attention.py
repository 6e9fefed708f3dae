"""What needs attention, many at once: which items a filter wants, and marking them all as seen, or as not seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, select

from app.errors import Invalid
from app.extensions import db, writing
from app.models import Actor, Agent, AttentionItem, AttentionKind
from app.models.attention import NEWEST_ITEMS
from app.refinement.failures import has_reason

MOST_AT_ONCE = 500


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
class Seen:
    """What was marked as seen: how many items, and the moments of the first and the last, by which it is taken back."""

    count: int
    first: datetime | None = None
    last: datetime | None = None


def parse_kinds(text: str) -> list[AttentionKind]:
    """Of several with commas between them. Raises Invalid."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in list(AttentionKind)]
    if unknown:
        known = ", ".join(AttentionKind)
        raise Invalid(f"There is no kind {unknown[0]!r}. There are {known}.")
    return [AttentionKind(name) for name in dict.fromkeys(names)]


def mark_many_seen(*conditions: ColumnElement[bool], by: Actor) -> Seen:
    """Mark the newest of them as seen, `MOST_AT_ONCE` at most. An agent a transaction: none may be open here."""
    moments: list[datetime] = []

    def mark(item: AttentionItem, agent: Agent) -> None:
        if item.mark_seen(agent, by=by) and item.seen_at:
            moments.append(item.seen_at)

    _change(mark, AttentionItem.is_open(), *conditions)
    return Seen(len(moments), min(moments, default=None), max(moments, default=None))


def unsee_many(*conditions: ColumnElement[bool], first: datetime, last: datetime, by: Actor) -> int:
    """Take back what `by` marked as seen from one moment to another; returns how many items. As `mark_many_seen`."""
    changed: list[int] = []

    def take_back(item: AttentionItem, agent: Agent) -> None:
        if item.mark_unseen(agent, by=by):
            changed.append(item.id)

    theirs = (AttentionItem.seen_by == str(by), AttentionItem.seen_at >= first, AttentionItem.seen_at <= last)
    _change(take_back, *theirs, *conditions)
    return len(changed)


def _change(change: Callable[[AttentionItem, Agent], Any], *conditions: ColumnElement[bool]) -> None:
    columns = select(AttentionItem.agent_id, AttentionItem.id).where(*conditions)
    found = db.session.execute(columns.order_by(*NEWEST_ITEMS.order).limit(MOST_AT_ONCE)).tuples()
    items: dict[int, list[int]] = {}
    for agent_id, item_id in found:
        items.setdefault(agent_id, []).append(item_id)
    for agent_id, ids in items.items():
        with writing():
            agent = Agent.lock(agent_id)
            for item_id in sorted(ids):
                change(AttentionItem.lock(item_id), agent)
