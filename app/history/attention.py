"""What the log says of the admins' attention: what called for it, and who has seen it, against the rows."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime
from typing import Any

from sqlalchemy import select

from app.extensions import db
from app.history.difference import entry_name, owner_difference
from app.models import Action, Agent, AttentionItem, AuditLog
from app.models.attention import facts_called_for, kinds_called_for

BATCH = 500

Key = tuple[int, str]
"""The entry that called for it, and the kind."""


class ReplayedAttention:
    """Of one agent: by entry and kind what called for attention, and by item who has seen it."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._called: dict[Key, dict[str, Any]] = {}
        self._seen: dict[int, tuple[str, datetime]] = {}

    def take(self, entry: AuditLog) -> None:
        """The next entry of the agent's chain. Raises Difference."""
        try:
            self._take_entry(entry)
        except (KeyError, TypeError, ValueError, AttributeError):
            sentence = f"{entry_name(entry)} does not say what an entry of its kind says."
            raise owner_difference(self._agent, sentence, entry.id) from None

    def _take_entry(self, entry: AuditLog) -> None:
        if entry.action == Action.ATTENTION_SEEN:
            self._seen[int(entry.data["item"])] = entry.actor, entry.at
        elif entry.action == Action.ATTENTION_UNSEEN:
            self._seen.pop(int(entry.data["item"]), None)
        for kind in kinds_called_for(entry):
            self._called[entry.id, kind] = facts_called_for(entry)

    def compare(self, agent: Agent) -> None:
        """Raises Difference unless the rows say the same."""
        left, unseen = dict(self._called), dict(self._seen)
        rows = select(AttentionItem).where(AttentionItem.agent_id == agent.id).order_by(AttentionItem.id)
        with closing(db.session.scalars(rows.execution_options(yield_per=BATCH))) as found:
            for item in found:
                called = left.pop((item.entry_id, item.kind), None)
                if called is None:
                    raise owner_difference(agent, f"attention item {item.id} is called for by no entry.", item.entry_id)
                for name, said in called.items():
                    if getattr(item, name) != said:
                        sentence = f"{name} of attention item {item.id} is not what entry id {item.entry_id} says."
                        raise owner_difference(agent, sentence, item.entry_id)
                if unseen.pop(item.id, (None, None)) != (item.seen_by, item.seen_at):
                    raise owner_difference(
                        agent, f"who has seen attention item {item.id} is not what the log says.", item.entry_id
                    )
        for entry_id, kind in left:
            raise owner_difference(
                agent, f"entry id {entry_id} calls for attention ({kind}), but its row is gone.", entry_id
            )
