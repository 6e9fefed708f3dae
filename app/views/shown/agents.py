"""What the list of agents shows: one page of rows by name, from running totals only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from flask import current_app
from sqlalchemy import ColumnElement, exists, func, select

from app.extensions import db, now
from app.models import OPEN_STATES, Agent, AgentKey, Event, Refinement
from app.models.keyset import Keyset
from app.refinement.timetable import Due, Timetable
from app.shapes.agent import AdminAgent

ROWS = 50
RECENT = timedelta(minutes=10)

_BY_NAME = Keyset((Agent.name,))

STATES = {
    "": "All states",
    "running": "Being refined",
    "over_budget": "Over budget",
    "paused": "Paused",
    "never": "Never refined",
    "inactive": "Not active",
    "forgotten": "Forgotten",
}


@dataclass(frozen=True)
class AgentRow:
    agent: Agent
    last: Refinement | None
    running: Refinement | None
    due: Due
    changeable: bool
    has_keys: bool

    def as_json(self) -> dict[str, Any]:
        needs = self.agent.needs_refinement(now(), changeable=self.changeable)
        told = AdminAgent.of(
            self.agent, needs_refinement=needs, open_refinement=self.running and self.running.id, next_due=self.due.at
        )
        return told.as_json() | {
            "last_outcome": str(self.last.status) if self.last else None,
            "has_keys": self.has_keys,
        }


@dataclass(frozen=True)
class AgentList:
    """`total` counts the whole account; `next_after` is the name to go on from, if there is more.

    `selected` are the boxes that were checked when nothing was done with them, and `problem` says why.
    """

    rows: Sequence[AgentRow]
    total: int
    query: str
    state: str
    after: str
    next_after: str
    last_event: int
    selected: frozenset[int] = frozenset()
    problem: str = ""

    states = STATES

    @classmethod
    def load(cls, account_id: int, *, query: str = "", state: str = "", after: str = "") -> AgentList:
        state = state if state in STATES else ""
        seen = last_event(account_id)
        mine = select(Agent).where(Agent.account_id == account_id, *_filter_conditions(query, state))
        agents, last = _BY_NAME.load(mine, ROWS, [after] if after else None)
        total = db.session.scalar(select(func.count()).select_from(Agent).where(Agent.account_id == account_id)) or 0
        return cls(load_rows(agents), total, query, state, after, last.name if last else "", seen)

    @property
    def is_filtered(self) -> bool:
        return bool(self.query or self.state)

    def as_json(self) -> dict[str, Any]:
        return {
            "agents": [row.as_json() for row in self.rows],
            "total": self.total,
            "next_after": self.next_after or None,
        }


def load_rows(agents: Sequence[Agent]) -> list[AgentRow]:
    """Rows for some agents of one account: four queries, whatever their number."""
    timetable = Timetable(current_app.extensions["settings"], now())
    ids = [agent.id for agent in agents]
    last = _last_refinements(ids)
    keyed = set(db.session.scalars(select(AgentKey.agent_id).where(AgentKey.agent_id.in_(ids)).distinct()))
    running = {r.agent_id: r for r in db.session.scalars(_open_refinements(ids))}
    changeable = set(db.session.scalars(Agent.changeable_among(ids)))
    return [
        AgentRow(
            agent,
            last.get(agent.id),
            running.get(agent.id),
            timetable.due(agent, running=running.get(agent.id), changeable=agent.id in changeable),
            agent.id in changeable,
            agent.id in keyed,
        )
        for agent in agents
    ]


def recently_moved(account_id: int) -> list[AgentRow]:
    """The rows that may have changed under somebody's eyes: with an open refinement, or one that ended just now."""
    moved = select(Refinement.agent_id).where(
        Refinement.account_id == account_id,
        Refinement.status.in_(OPEN_STATES) | (Refinement.ended_at >= now() - RECENT),
        Refinement.requested_at >= now() - timedelta(days=1),
    )
    agents = db.session.scalars(select(Agent).where(Agent.id.in_(moved)).order_by(Agent.name).limit(200))
    return load_rows(list(agents))


def last_event(account_id: int) -> int:
    """The newest event that what is read after this call already shows."""
    return db.session.scalar(select(func.max(Event.id)).where(Event.account_id == account_id)) or 0


def _filter_conditions(query: str, state: str) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if query:
        found.append(Agent.name.icontains(query, autoescape=True))
    conditions: dict[str, ColumnElement[bool]] = {
        "running": exists().where(Refinement.agent_id == Agent.id, Refinement.status.in_(OPEN_STATES)),
        "over_budget": (Agent.core_token_usage > Agent.core_token_budget) & Agent.forgotten_at.is_(None),
        "paused": Agent.paused.is_(True) & Agent.forgotten_at.is_(None),
        "never": Agent.last_refinement_at.is_(None),
        "inactive": Agent.active.is_(False) & Agent.forgotten_at.is_(None),
        "forgotten": Agent.forgotten_at.is_not(None),
    }
    return found + ([conditions[state]] if state else [])


def _open_refinements(ids: Sequence[int]) -> Any:
    return select(Refinement).where(Refinement.agent_id.in_(ids), Refinement.status.in_(OPEN_STATES))


def _last_refinements(ids: Sequence[int]) -> dict[int, Refinement]:
    """The newest ended refinement of each, one index probe an agent."""
    newest = (
        select(Refinement.id)
        .where(Refinement.agent_id == Agent.id, Refinement.ended_at.is_not(None))
        .order_by(Refinement.requested_at.desc())
        .limit(1)
        .scalar_subquery()
    )
    wanted = [
        found for found in db.session.scalars(select(newest).select_from(Agent).where(Agent.id.in_(ids))) if found
    ]
    rows = db.session.scalars(select(Refinement).where(Refinement.id.in_(wanted)))
    return {refinement.agent_id: refinement for refinement in rows}
