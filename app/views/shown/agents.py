"""What the list of agents shows: one page of rows by name, from running totals only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, exists, func, select, true

from app.events.topics import newest_event
from app.extensions import db, now
from app.models import OPEN_STATES, Agent, AgentKey, Refinement
from app.models.keyset import Keyset
from app.refinement.timetable import Due, Timetable
from app.shapes.agent import AdminAgent

ROWS = 50
RECENT = timedelta(minutes=10)

IS_KEPT = Agent.forgotten_at.is_(None)
OVER_BUDGET = (Agent.core_token_usage > Agent.core_token_budget) & IS_KEPT

_BY_NAME = Keyset((Agent.name,))

_IS_OPEN = Refinement.status.in_(OPEN_STATES)

STATES: Mapping[str, tuple[str, ColumnElement[bool]]] = {
    "": ("All states", true()),
    "running": ("Being refined", exists().where(Refinement.agent_id == Agent.id, _IS_OPEN)),
    "stopped": ("Stopped", Agent.stopped_at.is_not(None)),
    "over_budget": ("Over budget", OVER_BUDGET),
    "paused": ("Paused", Agent.paused.is_(True) & IS_KEPT),
    "never": ("Never refined", Agent.last_refinement_at.is_(None)),
    "inactive": ("Not active", Agent.active.is_(False) & IS_KEPT),
    "forgotten": ("Forgotten", ~IS_KEPT),
}
"""What the list can be filtered by, as its address names it: the words for it, and what it asks of an agent."""


@dataclass(frozen=True)
class AgentRow:
    """How an agent stands: its open refinement, the last one that ended, and when the next one starts by itself."""

    agent: Agent
    last: Refinement | None
    running: Refinement | None
    due: Due
    changeable: bool
    has_keys: bool

    @property
    def needs_refinement(self) -> bool:
        return self.agent.needs_refinement(now(), changeable=self.changeable)

    def as_json(self) -> dict[str, Any]:
        running, needs = self.running and self.running.id, self.needs_refinement
        told = AdminAgent.of(self.agent, needs_refinement=needs, open_refinement=running, next_due=self.due.at)
        return told.as_json() | {"has_keys": self.has_keys}


class AgentList:
    """`total` counts the whole account; `next_after` is the name to go on from, if there is more.

    `selected` are the boxes that were checked when nothing was done with them, and `problem` says why.
    """

    states = tuple((name, words) for name, (words, _) in STATES.items())

    def __init__(self, account_id: int, *, query: str = "", state: str = "", after: str = "") -> None:
        self.query, self.after = query, after
        self.state = state if state in STATES else ""
        self.is_filtered = bool(query or self.state)
        self.selected: Sequence[int] = ()
        self.problem = ""
        self.last_event = newest_event(account_id)
        mine = select(Agent).where(Agent.account_id == account_id, STATES[self.state][1])
        if query:
            mine = mine.where(Agent.name.icontains(query, autoescape=True))
        agents, last = _BY_NAME.load(mine, ROWS, [after] if after else None)
        whole = select(func.count()).select_from(Agent).where(Agent.account_id == account_id)
        self.total = db.session.scalar(whole) or 0
        self.rows, self.next_after = load_rows(agents), last.name if last else ""

    def as_json(self) -> dict[str, Any]:
        rows = [row.as_json() | {"last_outcome": row.last and str(row.last.status)} for row in self.rows]
        return {"agents": rows, "total": self.total, "next_after": self.next_after or None}


def load_rows(agents: Sequence[Agent]) -> list[AgentRow]:
    """Rows for some agents of one account: a handful of queries, whatever their number."""
    ids = [agent.id for agent in agents]
    last = _last_refinements(ids)
    keyed = set(db.session.scalars(select(AgentKey.agent_id).where(AgentKey.agent_id.in_(ids)).distinct()))
    outlooks = Timetable().outlooks(agents)
    return [AgentRow(agent, last.get(agent.id), *outlooks[agent.id], agent.id in keyed) for agent in agents]


def recently_moved(account_id: int) -> list[AgentRow]:
    """The rows that may have changed under somebody's eyes: with an open refinement, or one that ended just now."""
    moved = select(Refinement.agent_id).where(
        Refinement.account_id == account_id,
        _IS_OPEN | (Refinement.ended_at >= now() - RECENT),
        Refinement.requested_at >= now() - timedelta(days=1),
    )
    agents = db.session.scalars(select(Agent).where(Agent.id.in_(moved)).order_by(Agent.name).limit(200))
    return load_rows(list(agents))


def _last_refinements(ids: Sequence[int]) -> dict[int, Refinement]:
    """The newest ended refinement of each, one index probe an agent."""
    ended = select(Refinement.id).where(Refinement.agent_id == Agent.id, Refinement.ended_at.is_not(None))
    newest = ended.order_by(Refinement.requested_at.desc()).limit(1).scalar_subquery()
    probed = select(newest.label("id")).select_from(Agent).where(Agent.id.in_(ids)).subquery()
    rows = db.session.scalars(select(Refinement).join(probed, Refinement.id == probed.c.id))
    return {refinement.agent_id: refinement for refinement in rows}
