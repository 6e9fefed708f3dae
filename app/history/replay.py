"""The replay of an agent: what the entries, taken in order, make of its settings, against its row as it stands."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select

from app.extensions import db
from app.history.difference import differs, named
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
                self._set(entry, {"paused": False, "forgotten": False, **_part(entry, "settings")})
            case Action.AGENT_SETTINGS_UPDATE:
                self._expect(entry, _part(entry, "before"))
                self._set(entry, _part(entry, "after"))
            case Action.AGENT_PAUSE | Action.AGENT_RESUME:
                self._set(entry, {"paused": entry.action == Action.AGENT_PAUSE})
            case Action.AGENT_FORGET:
                self._set(entry, {"forgotten": True})

    def compare(self, agent: Agent) -> None:
        """Raises Difference unless the agent's row says the same."""
        rows = {"paused": agent.paused, "forgotten": agent.forgotten_at is not None, **agent.configuration()}
        for name, (value, by, entry_id) in self._said.items():
            if name in rows and rows[name] != value:
                raise differs(agent, f"{name} of the agent is not what {by} says.", entry_id)

    def _set(self, entry: AuditLog, settings: dict[str, Any]) -> None:
        self._said |= {name: (value, named(entry), entry.id) for name, value in settings.items()}

    def _expect(self, entry: AuditLog, before: dict[str, Any]) -> None:
        for name, value in before.items():
            if name in self._said and self._said[name][0] != value:
                sentence = f"{named(entry)} changes {name} from what {self._said[name][1]} did not say."
                raise differs(self._agent, sentence, entry.id)


def check_forgotten(agent: Agent) -> None:
    """Raises Difference when there are keys for an agent that was forgotten: somebody put them back."""
    keys = select(func.count(AgentKey.id)).where(AgentKey.agent_id == agent.id)
    if agent.forgotten_at is not None and (count := db.session.scalar(keys)):
        raise differs(agent, f"the agent was forgotten, but {count} of its keys are there again.")


def _part(entry: AuditLog, name: str) -> dict[str, Any]:
    found = entry.data.get(name)
    return found if isinstance(found, dict) else {}
