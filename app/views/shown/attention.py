"""What waits for an admin's eyes: the newest of an account or of one agent, and the list of them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flask import url_for
from sqlalchemy import ColumnElement

from app.models import AttentionItem, AttentionKind
from app.models.attention import NEWEST_ITEMS
from app.models.keyset import TimeCursor
from app.shapes.attention import AttentionShape
from app.views.shown.entry import Subject, link_subject
from app.vocabulary import ATTENTION_KINDS
from app.vocabulary.term import Term

SHOWN = 8
ROWS = 50


@dataclass(frozen=True)
class ShownItem:
    """One of them, as a page shows it."""

    item: AttentionItem

    @property
    def look(self) -> Term:
        return ATTENTION_KINDS[self.item.kind]

    @property
    def subject(self) -> Subject:
        return link_subject(self.item.subject)

    @property
    def rollback_url(self) -> str:
        """Where to take the changes back; empty where there are none, or none any more."""
        if self.item.kind != AttentionKind.UNFINISHED or self.item.is_resolved:
            return ""
        return url_for("rollbacks.undo_refinement", refinement_id=self.item.refinement_id)


class Unseen:
    """The newest that nobody has seen yet, for the top of a page: of an account, or of one agent of it."""

    def __init__(self, account_id: int, agent_id: int | None = None) -> None:
        mine = AttentionItem.account_id == account_id
        mine = mine if agent_id is None else mine & (AttentionItem.agent_id == agent_id)
        self.rows, last = _load_items(mine, AttentionItem.is_open(), limit=SHOWN)
        self.has_more = last is not None

    def as_json(self) -> list[dict[str, Any]]:
        return [AttentionShape.of(row.item).as_json() for row in self.rows]


class AttentionList:
    """All of an account, those that were seen too if wanted, page by page."""

    def __init__(self, account_id: int, *, with_seen: bool = False, before: str = "") -> None:
        conditions = [AttentionItem.account_id == account_id, *([] if with_seen else [AttentionItem.is_open()])]
        self.rows, last = _load_items(*conditions, limit=ROWS, position=TimeCursor.parse(before))
        self.with_seen = with_seen
        self.next_before = str(TimeCursor(last.at, last.id)) if last else ""

    def as_json(self) -> dict[str, Any]:
        items = [AttentionShape.of(row.item).as_json() for row in self.rows]
        return {"items": items, "next_before": self.next_before or None}


def _load_items(
    *conditions: ColumnElement[bool], limit: int, position: TimeCursor | None = None
) -> tuple[list[ShownItem], AttentionItem | None]:
    query = AttentionItem.newest(*conditions).execution_options(populate_existing=True)
    items, last = NEWEST_ITEMS.load(query, limit, position)
    return [ShownItem(item) for item in items], last
