"""The replay of an agent: what the entries, taken in order, say of its settings and of what was undone, called for
attention or is to be told, against the rows as they stand.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import select

from app.extensions import db
from app.history.difference import Difference, as_dict, entry_difference, entry_name, stream_rows
from app.models import Action, Agent, AttentionItem, AuditLog, HumanAct, Refinement, Rollback
from app.models.attention import facts_called_for, kinds_called_for
from app.models.human_act import is_human_act


class ReplayedSettings:
    """What the entries say of an agent's settings: the newest word on each, and the entry that said it."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[object, str, int]] = {}

    def take(self, entry: AuditLog) -> None:
        """The next entry of the agent's chain. Raises Difference."""
        match entry.action:
            case Action.AGENT_CREATE:
                made = as_dict(entry.data.get("settings"))
                self._record_settings(entry, {"paused": False, "forgotten": False, **made})
            case Action.AGENT_SETTINGS_UPDATE:
                self._check_before(entry, as_dict(entry.data.get("before")))
                self._record_settings(entry, as_dict(entry.data.get("after")))
            case Action.AGENT_PAUSE | Action.AGENT_RESUME:
                self._record_settings(entry, {"paused": entry.action == Action.AGENT_PAUSE})
            case Action.AGENT_FORGET:
                self._record_settings(entry, {"forgotten": True})

    def compare(self, agent: Agent) -> None:
        """Raises Difference unless the agent's row says the same."""
        rows = {"paused": agent.paused, "forgotten": agent.forgotten_at is not None, **agent.configuration()}
        for name, (value, by, entry_id) in self._said.items():
            if name in rows and rows[name] != value:
                raise Difference(f"{name} of the agent is not what {by} says.", entry_id)

    def _record_settings(self, entry: AuditLog, settings: dict[str, Any]) -> None:
        self._said |= {name: (value, entry_name(entry), entry.id) for name, value in settings.items()}

    def _check_before(self, entry: AuditLog, before: dict[str, Any]) -> None:
        for name, value in before.items():
            if name in self._said and self._said[name][0] != value:
                raise entry_difference(entry, f"changes {name} from what {self._said[name][1]} did not say.")


class ReplayedUndoing:
    """What the entries say is undone: by the id of a refinement or rollback, the rollback that stands against it."""

    def __init__(self) -> None:
        self._by: dict[str, tuple[str, str, int]] = {}

    def take(self, entry: AuditLog) -> None:
        """The next entry of the agent's chain."""
        if entry.action != Action.ROLLBACK:
            return
        for undone in _listed_ids(entry, "undid"):
            self._by[undone] = str(entry.data.get("rollback")), entry_name(entry), entry.id
        for redone in _listed_ids(entry, "redid"):
            self._by.pop(redone, None)

    def compare(self, agent: Agent) -> None:
        """Raises Difference unless the rows say the same."""
        left = dict(self._by)
        for model in (Refinement, Rollback):
            rows = select(model.id, model.undone_by).where(model.agent_id == agent.id, model.undone_by.is_not(None))
            for number, undone_by in db.session.execute(rows.order_by(model.id)).tuples():
                said, entry, entry_id = left.pop(number, ("", "no entry", None))
                if undone_by != said:
                    what = f"{model.__name__.lower()} {number}"
                    raise Difference(f"{what} counts as undone, but {entry} undid it so.", entry_id)
        for number, (_, entry, entry_id) in left.items():
            raise Difference(f"{entry} undid {number}, but its row does not say so.", entry_id)


class ReplayedAttention:
    """By entry and kind what called for attention, and by item who has seen it."""

    def __init__(self) -> None:
        self._called: dict[tuple[int, str], dict[str, Any]] = {}
        self._seen: dict[int, tuple[str, datetime]] = {}

    def take(self, entry: AuditLog) -> None:
        """The next entry of the agent's chain. Raises Difference."""
        try:
            if entry.action == Action.ATTENTION_SEEN:
                self._seen[int(entry.data["item"])] = entry.actor, entry.at
            elif entry.action == Action.ATTENTION_UNSEEN:
                self._seen.pop(int(entry.data["item"]), None)
            self._called |= {(entry.id, kind): facts_called_for(entry) for kind in kinds_called_for(entry)}
        except (KeyError, TypeError, ValueError, AttributeError):
            raise entry_difference(entry, "does not say what an entry of its kind says.") from None

    def compare(self, agent: Agent) -> None:
        """Raises Difference unless the rows say the same."""
        left, unseen = dict(self._called), dict(self._seen)
        rows = select(AttentionItem).where(AttentionItem.agent_id == agent.id).order_by(AttentionItem.id)
        for (item,) in stream_rows(rows):
            named, entry_id = f"attention item {item.id}", item.entry_id
            called = left.pop((entry_id, item.kind), None)
            if called is None:
                raise Difference(f"{named} is called for by no entry.", entry_id)
            for name, said in called.items():
                if getattr(item, name) != said:
                    raise Difference(f"{name} of {named} is not what entry id {entry_id} says.", entry_id)
            if unseen.pop(item.id, (None, None)) != (item.seen_by, item.seen_at):
                raise Difference(f"who has seen {named} is not what the log says.", entry_id)
        for entry_id, kind in left:
            raise Difference(f"entry id {entry_id} calls for attention ({kind}), but its row is gone.", entry_id)


class ReplayedActs:
    """By entry: which human acted on memories and when, and when the agent was told of it."""

    def __init__(self) -> None:
        self._acts: dict[int, tuple[str, datetime]] = {}
        self._told: dict[int, datetime] = {}

    def take(self, entry: AuditLog) -> None:
        """The next entry of the agent's chain. Raises Difference."""
        if is_human_act(entry):
            self._acts[entry.id] = entry.actor, entry.at
        if entry.action != Action.AGENT_TOLD:
            return
        told = entry.data.get("entries", [])
        if not isinstance(told, list) or not set(told) <= set(self._acts):
            raise entry_difference(entry, "tells of what no human did.")
        self._told |= dict.fromkeys(told, entry.at)

    def compare(self, agent: Agent) -> None:
        """Raises Difference unless the rows say the same."""
        left = dict(self._acts)
        for (act,) in stream_rows(select(HumanAct).where(HumanAct.agent_id == agent.id).order_by(HumanAct.entry_id)):
            named = f"entry id {act.entry_id}"
            if left.pop(act.entry_id, None) != (act.actor, act.at):
                raise Difference(f"the human act of {named} is not what the log says.", act.entry_id)
            if act.told_at != self._told.get(act.entry_id):
                raise Difference(f"when the agent was told of {named} is not what the log says.", act.entry_id)
        for entry_id in left:
            raise Difference(f"of entry id {entry_id} the agent would never be told: its row is gone.", entry_id)


def _listed_ids(entry: AuditLog, name: str) -> list[str]:
    found = entry.data.get(name)
    return [str(each) for each in found] if isinstance(found, list) else []
