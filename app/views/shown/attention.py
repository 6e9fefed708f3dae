"""What waits for an admin's eyes: the newest of an account or of one agent, and the list of them all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flask import url_for
from sqlalchemy import ColumnElement, literal, tuple_

from app.extensions import db
from app.history.log import LogCursor
from app.models import AttentionItem, AttentionKind
from app.models.base import UtcDateTime
from app.views.shown.entry import ActionStyle, actor_name

SHOWN = 8
ROWS = 50

LOOKS: Mapping[AttentionKind, ActionStyle] = {
    AttentionKind.NOTE: ActionStyle("chat", "Note to admins", "ask"),
    AttentionKind.UNFINISHED: ActionStyle("dashed", "Unfinished, with changes", "warn"),
    AttentionKind.PROTECTIONS: ActionStyle("shield", "Many protections", "warn"),
    AttentionKind.REFUSALS: ActionStyle("ban", "Refused calls", "bad"),
}
"""Of every kind."""


@dataclass(frozen=True)
class ShownItem:
    """One of them, as a page shows it."""

    item: AttentionItem

    @property
    def look(self) -> ActionStyle:
        return LOOKS[AttentionKind(self.item.kind)]

    @property
    def subject_name(self) -> str:
        noun, _, number = self.item.subject.partition(":")
        return f"{noun} {number[:8]}"

    @property
    def subject_url(self) -> str:
        noun, _, number = self.item.subject.partition(":")
        named: dict[str, Any] = {f"{noun}_id": number}
        return url_for(f"{noun}s.show", **named)

    @property
    def rollback_url(self) -> str:
        """Where to take the changes back; empty where there are none, or none any more."""
        if self.item.kind != AttentionKind.UNFINISHED or self.item.is_resolved:
            return ""
        return url_for("rollbacks.undo_refinement", refinement_id=self.item.refinement_id)

    @property
    def seen_by(self) -> str:
        return actor_name(self.item.seen_by or "")


@dataclass(frozen=True)
class Unseen:
    """The newest that nobody has seen yet, for the top of a page."""

    rows: Sequence[ShownItem]
    has_more: bool

    @classmethod
    def load(cls, account_id: int, agent_id: int | None = None) -> Unseen:
        found = _load(_of(account_id, agent_id), AttentionItem.is_open(), limit=SHOWN + 1)
        return cls(found[:SHOWN], len(found) > SHOWN)

    def as_json(self) -> list[dict[str, Any]]:
        return [row.item.as_json() for row in self.rows]


@dataclass(frozen=True)
class AttentionList:
    """All of an account, those that were seen too if wanted, page by page."""

    rows: Sequence[ShownItem]
    with_seen: bool
    next_before: str

    @classmethod
    def load(cls, account_id: int, *, with_seen: bool = False, before: str = "") -> AttentionList:
        conditions = [_of(account_id), *([] if with_seen else [AttentionItem.is_open()])]
        place = LogCursor.parse(before)
        if place is not None:
            behind = tuple_(literal(place.at, UtcDateTime), literal(place.id))
            conditions.append(tuple_(AttentionItem.at, AttentionItem.id) < behind)
        found = _load(*conditions, limit=ROWS + 1)
        last = found[ROWS - 1].item if len(found) > ROWS else None
        return cls(found[:ROWS], with_seen, str(LogCursor(last.at, last.id)) if last else "")

    def as_json(self) -> dict[str, Any]:
        return {"items": [row.item.as_json() for row in self.rows], "next_before": self.next_before or None}


def _of(account_id: int, agent_id: int | None = None) -> ColumnElement[bool]:
    mine = AttentionItem.account_id == account_id
    return mine if agent_id is None else mine & (AttentionItem.agent_id == agent_id)


def _load(*conditions: ColumnElement[bool], limit: int) -> list[ShownItem]:
    query = AttentionItem.newest(*conditions).limit(limit).execution_options(populate_existing=True)
    return [ShownItem(item) for item in db.session.scalars(query)]
