"""What the overview shows: what needs attention, runs, comes and was."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Select, bindparam, select

from app.events.topics import newest_event
from app.extensions import db
from app.history.proof import Proof
from app.models import OPEN_STATES, Agent, Refinement
from app.models.base import iso
from app.refinement.fleet_figures import COUNTED
from app.shapes.refinement import NamedRefinement
from app.views.shown.attention import Unseen
from app.views.shown.first_run import FirstRun
from app.views.shown.fleet import AccountFigures, FleetTrend
from app.views.shown.worklist import find_attention, make_lines

Pair = tuple[Refinement, str]
"""With the name of its agent."""

RUNNING_ROWS = 5
RECENT_ROWS = 8
"""Each table has as many rows as this, filled or not, so that nothing moves when one fills."""


class Overview:
    """What is counted of the whole account is as of `last_event`."""

    def __init__(self, account_id: int) -> None:
        self.account_id = account_id
        self.last_event = newest_event(account_id)
        self.figures = AccountFigures(account_id, self.last_event)
        self.trend = FleetTrend.of(account_id, self.last_event)
        self.is_empty = self.figures.agents == 0
        proof, rest = Proof.of_each([account_id, None])
        self.verified_at = proof.at if proof else None
        self.attention = find_attention(account_id, self.figures, self.trend, (proof, rest))
        self.lines = make_lines(self.attention)
        recent = _read_pairs(_recent_query(), account_id)
        self.recent = sorted(recent, key=lambda pair: pair[0].ended_at or pair[0].requested_at, reverse=True)
        self.running = _read_pairs(_running_query(), account_id) if self.figures.running else []
        newest = self.running[0][0] if self.running else None
        self.first_run = FirstRun(account_id, self.figures, newest, is_over=bool(self.recent))

    @property
    def running_rows(self) -> Sequence[Pair | None]:
        return _fill(self.running, RUNNING_ROWS)

    @property
    def recent_rows(self) -> Sequence[Pair | None]:
        return _fill(self.recent, RECENT_ROWS)

    def as_json(self) -> dict[str, Any]:
        figures = {name: getattr(self.figures, name) for name in ("agents", "over_budget", "paused", "core_tokens")}
        return figures | {
            "next_tick": iso(self.figures.next_tick),
            "due_at_next_tick": min(self.figures.due, COUNTED),
            "next_attempts": {when: min(count, COUNTED) for when, count in self.figures.next_attempts},
            "trend": self.trend.weeks.as_json(),
            "over_budget_twice": list(self.trend.over_budget_twice),
            "eroding": [{"agent": each.name, "kept": str(each.kept)} for each in self.trend.eroding],
            "verified_at": iso(self.verified_at),
            "worklist": [line.as_json() for line in self.lines],
            "attention_items": Unseen(self.account_id).as_json(),
            "attention": [each.as_json() for each in self.attention],
            "running": _refinements_json(self.running),
            "recent": _refinements_json(self.recent),
            "first_run": None if self.first_run.is_over else self.first_run.as_json(),
        }


def _fill(pairs: Sequence[Pair], rows: int) -> Sequence[Pair | None]:
    return [*pairs, *[None] * (rows - len(pairs))]


def _refinements_json(pairs: Iterable[Pair]) -> list[dict[str, Any]]:
    return [NamedRefinement.of(refinement, agent=agent).as_json() for refinement, agent in pairs]


def _read_pairs(query: Select[tuple[Refinement, str]], account_id: int) -> list[Pair]:
    return [row._tuple() for row in db.session.execute(query, {"account_id": account_id})]


@cache
def _recent_query() -> Select[tuple[Refinement, str]]:
    """Made once, as all that each look at the page asks."""
    ended = _pairs_query().where(Refinement.ended_at.is_not(None))
    return ended.order_by(Refinement.requested_at.desc()).limit(RECENT_ROWS)


@cache
def _running_query() -> Select[tuple[Refinement, str]]:
    waiting_last = (Refinement.started_at.is_(None), Refinement.started_at.desc(), Refinement.id)
    return _pairs_query().where(Refinement.status.in_(OPEN_STATES)).order_by(*waiting_last).limit(RUNNING_ROWS)


def _pairs_query() -> Select[tuple[Refinement, str]]:
    """Refinements with the names of their agents."""
    query = select(Refinement, Agent.name).join(Agent, Agent.id == Refinement.agent_id)
    return query.where(Refinement.account_id == bindparam("account_id"))
