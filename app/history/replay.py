"""The replay of an agent: what the entries, taken in order, make of its settings, against its row as it stands."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select

from app.extensions import db
from app.history.difference import entry_name, owner_difference
from app.models import Action, Agent, AgentKey, AuditLog


class ReplayedSettings:
    """What the entries say of an agent's settings: the newest word on each, and the entry that said it."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._said: dict[str, tuple[object, str, int]] = {}

    def take(self, entry: AuditLog) -> None:
        """The next entry of the agent's chain. Raises Difference."""
        match entry.action:
            case Action.AGENT_CREATE:
                self._record_settings(entry, {"paused": False, "forgotten": False, **_data_part(entry, "settings")})
            case Action.AGENT_SETTINGS_UPDATE:
                self._check_before(entry, _data_part(entry, "before"))
                self._record_settings(entry, _data_part(entry, "after"))
            case Action.AGENT_PAUSE | Action.AGENT_RESUME:
                self._record_settings(entry, {"paused": entry.action == Action.AGENT_PAUSE})
            case Action.AGENT_FORGET:
                self._record_settings(entry, {"forgotten": True})

    def compare(self, agent: Agent) -> None:
        """Raises Difference unless the agent's row says the same."""
        rows = {"paused": agent.paused, "forgotten": agent.forgotten_at is not None, **agent.configuration()}
        for name, (value, by, entry_id) in self._said.items():
            if name in rows and rows[name] != value:
                raise owner_difference(agent, f"{name} of the agent is not what {by} says.", entry_id)

    def _record_settings(self, entry: AuditLog, settings: dict[str, Any]) -> None:
        self._said |= {name: (value, entry_name(entry), entry.id) for name, value in settings.items()}

    def _check_before(self, entry: AuditLog, before: dict[str, Any]) -> None:
        for name, value in before.items():
            if name in self._said and self._said[name][0] != value:
                sentence = f"{entry_name(entry)} changes {name} from what {self._said[name][1]} did not say."
                raise owner_difference(self._agent, sentence, entry.id)


def check_forgotten(agent: Agent) -> None:
    """Raises Difference when there are keys for an agent that was forgotten: somebody put them back."""
    keys = select(func.count(AgentKey.id)).where(AgentKey.agent_id == agent.id)
    if agent.forgotten_at is not None and (count := db.session.scalar(keys)):
        raise owner_difference(agent, f"the agent was forgotten, but {count} of its keys are there again.")


def _data_part(entry: AuditLog, name: str) -> dict[str, Any]:
    found = entry.data.get(name)
    return found if isinstance(found, dict) else {}
