"""What the pages of one agent show: its state and ledger, its refinements, settings, imports and tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from flask import current_app
from sqlalchemy import literal, select, tuple_

from app.extensions import db, now
from app.models import Action, Agent, AgentToken, AuditLog, Intake, Refinement
from app.models.base import UtcDateTime, iso
from app.models.key import has_keys
from app.views.forms import Form
from app.views.shown.agents import agent_json, last_event
from app.views.shown.due import Due, Timetable
from app.views.shown.ledger import Ledger

REFINEMENT_ROWS = 20
HISTORY_ROWS = 50
INTAKE_NEWS = timedelta(minutes=10)


@dataclass(frozen=True)
class AgentState:
    """The head of all pages of an agent."""

    agent: Agent
    running: Refinement | None
    last: Refinement | None
    due: Due
    has_keys: bool
    changeable: bool
    last_event: int

    @classmethod
    def load(cls, agent: Agent) -> AgentState:
        seen = last_event(agent.account_id)
        running = Refinement.open_of(agent.id)
        changeable = agent.has_changeable_memories()
        due = Timetable(current_app.extensions["settings"], now()).due(agent, running=running, changeable=changeable)
        return cls(agent, running, _last(agent), due, has_keys(agent), changeable, seen)

    @property
    def needs_refinement(self) -> bool:
        return (self.agent.is_due_by_schedule(now()) or self.agent.is_over_budget) and self.changeable

    def as_json(self) -> dict[str, Any]:
        said = agent_json(self.agent, running=self.running)
        return said | {
            "needs_refinement": self.needs_refinement,
            "next_due": iso(self.due.at),
            "next_due_words": self.due.words,
            "has_keys": self.has_keys,
        }


@dataclass(frozen=True)
class LedgerPage:
    state: AgentState
    ledger: Ledger
    recent: Sequence[Refinement]
    intakes: Sequence[Intake]
    mass: Sequence[tuple[float, int]]

    @classmethod
    def load(cls, agent: Agent, *, after: str = "") -> LedgerPage:
        state = AgentState.load(agent)
        recent = refinements_of(agent, limit=5)
        return cls(state, Ledger.load(agent, after=after), recent, fresh_intakes(agent), _mass(agent))

    @property
    def since(self) -> str:
        """The day of the first point of the mass."""
        return f"{datetime.fromtimestamp(self.mass[0][0], UTC):%Y-%m-%d}" if self.mass else ""

    def as_json(self) -> dict[str, Any]:
        return self.state.as_json() | {
            "ledger": [row.as_json() for row in self.ledger.rows],
            "next_after": self.ledger.next_after or None,
            "refinements": [refinement.as_json() for refinement in self.recent],
        }


@dataclass(frozen=True)
class RefinementsPage:
    state: AgentState
    refinements: Sequence[Refinement]
    next_before: str

    @classmethod
    def load(cls, agent: Agent, *, before: str = "") -> RefinementsPage:
        found = refinements_of(agent, limit=REFINEMENT_ROWS + 1, before=before)
        more = found[REFINEMENT_ROWS - 1].id if len(found) > REFINEMENT_ROWS else ""
        return cls(AgentState.load(agent), found[:REFINEMENT_ROWS], more)

    def as_json(self) -> dict[str, Any]:
        rows = [refinement.as_json() for refinement in self.refinements]
        return {"agent": self.state.agent.name, "refinements": rows, "next_before": self.next_before or None}


@dataclass(frozen=True)
class Change:
    """One entry of the settings history."""

    at: datetime
    actor: str
    by_agent: bool
    title: str
    fields: Sequence[tuple[str, object, object]]

    def as_json(self) -> dict[str, Any]:
        changed = {name: {"before": before, "after": after} for name, before, after in self.fields}
        return {"at": iso(self.at), "actor": self.actor, "title": self.title, "changed": changed}


@dataclass(frozen=True)
class SettingsPage:
    state: AgentState
    history: Sequence[Change]
    form: Form

    @classmethod
    def load(cls, agent: Agent, form: Form) -> SettingsPage:
        return cls(AgentState.load(agent), _history(agent), form)

    def as_json(self) -> dict[str, Any]:
        history = [change.as_json() for change in self.history]
        return {"agent": self.state.agent.name, "settings": self.state.agent.configuration(), "history": history}


@dataclass(frozen=True)
class ImportsPage:
    state: AgentState
    intakes: Sequence[Intake]
    problems: Sequence[str] = ()

    @classmethod
    def load(cls, agent: Agent, *, problems: Sequence[str] = ()) -> ImportsPage:
        return cls(AgentState.load(agent), intakes_of(agent), problems)

    def as_json(self) -> dict[str, Any]:
        return {"agent": self.state.agent.name, "imports": [_intake_json(intake) for intake in self.intakes]}


@dataclass(frozen=True)
class TokensPage:
    state: AgentState
    tokens: Sequence[AgentToken]

    @classmethod
    def load(cls, agent: Agent) -> TokensPage:
        query = select(AgentToken).where(AgentToken.agent_id == agent.id).order_by(AgentToken.id.desc())
        return cls(AgentState.load(agent), list(db.session.scalars(query)))

    def as_json(self) -> dict[str, Any]:
        tokens = [
            {
                "id": token.public_id,
                "name": token.name,
                "scopes": token.scopes,
                "created_at": iso(token.created_at),
                "last_used_at": iso(token.last_used_at),
                "revoked_at": iso(token.revoked_at),
            }
            for token in self.tokens
        ]
        return {"agent": self.state.agent.name, "tokens": tokens}


def refinements_of(agent: Agent, *, limit: int, before: str = "") -> list[Refinement]:
    """Newest first, from the one after `before` on."""
    query = select(Refinement).where(Refinement.agent_id == agent.id)
    mark = db.session.scalar(query.where(Refinement.id == before)) if before else None
    if mark is not None:
        place = tuple_(Refinement.requested_at, Refinement.id) < tuple_(
            literal(mark.requested_at, UtcDateTime), literal(mark.id)
        )
        query = query.where(place)
    return list(db.session.scalars(query.order_by(Refinement.requested_at.desc(), Refinement.id.desc()).limit(limit)))


def intakes_of(agent: Agent, *, limit: int = 20) -> list[Intake]:
    query = select(Intake).where(Intake.agent_id == agent.id, Intake.kind == "import")
    return list(db.session.scalars(query.order_by(Intake.created_at.desc()).limit(limit)))


def fresh_intakes(agent: Agent) -> list[Intake]:
    """Imports that wait for the worker, or that it settled just now."""
    since = now() - INTAKE_NEWS
    return [intake for intake in intakes_of(agent) if intake.taken_at is None or intake.taken_at > since]


def _last(agent: Agent) -> Refinement | None:
    ended = select(Refinement).where(Refinement.agent_id == agent.id, Refinement.ended_at.is_not(None))
    return db.session.scalar(ended.order_by(Refinement.requested_at.desc()).limit(1))


def _mass(agent: Agent) -> list[tuple[float, int]]:
    """Mass over time, in tokens by epoch seconds: around each refinement, and now."""
    ended = [
        r for r in reversed(refinements_of(agent, limit=30)) if r.ended_at is not None and r.mass_after is not None
    ]
    if not ended:
        return []
    first = ended[0]
    points: list[tuple[float, int]] = []
    if first.mass_at_start is not None:
        points.append((first.requested_at.timestamp(), first.mass_at_start))
    points += [(r.ended_at.timestamp(), r.mass_after) for r in ended if r.ended_at and r.mass_after is not None]
    return [*points, (now().timestamp(), agent.core_token_usage)]


_SETTINGS_ACTIONS = {
    Action.AGENT_CREATE: "Created",
    Action.AGENT_SETTINGS_UPDATE: "Changed",
    Action.AGENT_PAUSE: "Paused",
    Action.AGENT_RESUME: "Resumed",
}


def _history(agent: Agent) -> list[Change]:
    query = select(AuditLog).where(AuditLog.agent_id == agent.id, AuditLog.action.in_(_SETTINGS_ACTIONS))
    return [_change(entry) for entry in db.session.scalars(query.order_by(AuditLog.id.desc()).limit(HISTORY_ROWS))]


def _change(entry: AuditLog) -> Change:
    before, after = entry.data.get("before", {}), entry.data.get("after", {})
    fields = [(name, before.get(name), after.get(name)) for name in after]
    kind, _, name = entry.actor.partition(":")
    return Change(entry.at, name or entry.actor, kind == "agent", _SETTINGS_ACTIONS[Action(entry.action)], fields)


def _intake_json(intake: Intake) -> dict[str, Any]:
    return {
        "id": intake.id,
        "status": str(intake.status),
        "imported": intake.imported,
        "error": intake.error,
        "created_at": iso(intake.created_at),
        "taken_at": iso(intake.taken_at),
    }
