"""What the list of agents shows: one page of rows in the order that its address names, from running totals only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import bindparam, exists, func, select
from sqlalchemy.orm import aliased

from app.events.topics import newest_event
from app.extensions import db, now, read_rows
from app.models import OPEN_STATES, Agent, AgentKey, Refinement
from app.models.agent_standing import LISTED, ListedAgent
from app.models.base import UtcDateTime
from app.prepared import Prepared, one_of, spread
from app.refinement.fleet import DUE, FILTERS, OUTCOMES, STATES, FilterRefused, Fleet
from app.refinement.timetable import Due, OpenRefinement, Timetable
from app.shapes.agent import AdminAgent
from app.views.addresses import list_url
from app.views.forms import Wrong
from app.vocabulary import STATUSES

ROWS = 50
MOST_TYPED = 90
COLUMNS = (
    *(("name", "Agent"), ("memory", "Core memory"), ("state", "State")),
    *(("last", "Last refinement"), ("next", "Next run")),
)
ASCENDING = ("name", "state", "next")
"""Columns that a first click orders from their smallest; the others from their largest."""

RECENT = timedelta(minutes=10)

TREND_DAYS = 90
TREND_POINTS = 12

_WHOLE = Prepared(select(func.count()).select_from(Agent).where(Agent.account_id == bindparam("account_id")))
_IS_OPEN = Refinement.status.in_(OPEN_STATES)

Trend = Sequence[tuple[int, int]]
"""Moments in seconds since 1970 and the mass in tokens then, oldest first."""


class EndedRefinement(NamedTuple):
    """The newest refinement of an agent that has ended."""

    id: str
    status: str
    ended_at: datetime | None
    undone_by: str | None


AgentInHand = Agent | ListedAgent


@dataclass(frozen=True)
class AgentRow:
    """How an agent stands: its open refinement, the last one that ended, and when the next one starts by itself."""

    agent: AgentInHand
    last: EndedRefinement | None
    running: OpenRefinement | None
    due: Due
    changeable: bool
    has_keys: bool
    trend: Trend = field(default=(), kw_only=True)

    @property
    def trend_words(self) -> str:
        before, after = self.trend[0][1], self.trend[-1][1]
        return f"Mass over {TREND_DAYS} days: {before:,} → {after:,} tokens"

    @property
    def needs_refinement(self) -> bool:
        return self.changeable and self.agent.may_need_refinement(now())

    def as_json(self) -> dict[str, Any]:
        running, needs = self.running and self.running.id, self.needs_refinement
        told = AdminAgent.of(self.agent, needs_refinement=needs, open_refinement=running, next_due=self.due.at)
        return told.as_json() | {"has_keys": self.has_keys}


class AgentList:
    """`total` counts the whole account, `matched` those that fit; `next_after` is the name to go on from, if any do.

    `selected` are the boxes that were checked when nothing was done with them, `selects_all` whether all that match
    were, and `problem` says why nothing was done. `errors` are the sentences beside filters that can't be used.
    """

    states = tuple((name, words) for name, (words, _) in STATES.items())
    outcomes = ("", "Any outcome"), *((str(status), STATUSES[status].capitalized) for status in OUTCOMES)
    starts = ("", "Any time"), *((name, words) for name, (words, _) in DUE.items())
    columns = COLUMNS
    orders = (
        *(("", "Name"), ("-name", "Name, Z first"), ("-memory", "Most of budget"), ("memory", "Least of budget")),
        *(("state", "State"), ("-state", "State, reversed"), ("-last", "Latest refinement"), ("last", "Oldest")),
        *(("next", "Soonest run"), ("-next", "Latest run")),
    )

    def __init__(self, account_id: int, typed: Mapping[str, str], *, after: str = "") -> None:
        self.typed = {name: typed.get(name, "").strip()[:MOST_TYPED] for name in FILTERS}
        self.errors: dict[str, str] = {}
        self.fleet = self._read_fleet(account_id)
        self.after, self.selects_all, self.problem = after, False, ""
        self.selected: Sequence[int] = ()
        self.last_event = newest_event(account_id)
        ((self.total,),) = read_rows(_WHOLE, {"account_id": account_id})
        self.rows, self.next_after, self.matched = list[AgentRow](), "", 0
        if not self.errors:
            self._load_page()

    def _read_fleet(self, account_id: int) -> Fleet:
        try:
            return Fleet.read(account_id, self.typed)
        except FilterRefused as error:
            self.errors = {error.field: error.sentence}
            return Fleet(account_id)

    def _load_page(self) -> None:
        fleet = self.fleet
        agents, last = fleet.load(ROWS, self.after)
        self.matched = fleet.count() if fleet.is_filtered else self.total
        self.rows, self.next_after = load_rows(agents, with_trend=True), last.name if last else ""

    @property
    def is_filtered(self) -> bool:
        return self.fleet.is_filtered or bool(self.errors)

    @property
    def lead(self) -> str:
        """How many there are, and how many of them match."""
        if self.is_filtered and self.total:
            return f"{self.matched:,} of {self.total:,} match"
        return f"{self.total:,} in this account" if self.total else ""

    @property
    def sort(self) -> str:
        """The column that orders the list, and `-` before it where the order is turned round."""
        return self.fleet.sort or "name"

    def url(self, **changed: str) -> str:
        """The address of this list with other filters, from its start."""
        typed = {name: value for name, value in (self.fleet.typed | changed).items() if value}
        return list_url("agents.index", **typed)

    def sort_url(self, column: str) -> str:
        """Its order by a column; the other way round where it is ordered so already."""
        first = column if column in ASCENDING else f"-{column}"
        turned = first.removeprefix("-") if first.startswith("-") else f"-{first}"
        return self.url(sort=turned if self.sort == first else first)

    def as_json(self) -> dict[str, Any]:
        if self.errors:
            raise Wrong(self.errors)
        rows = [row.as_json() | {"last_outcome": row.last and str(row.last.status)} for row in self.rows]
        counted = {"total": self.total, "matched": self.matched, "sort": self.sort}
        return {"agents": rows, **counted, "next_after": self.next_after or None}


def load_rows(agents: Sequence[AgentInHand], *, with_trend: bool = False) -> list[AgentRow]:
    """Rows for some agents of one account: a handful of queries, whatever their number."""
    if not agents:
        return []
    outlooks, trends = Timetable().outlooks(agents), load_trends(agents) if with_trend else {}
    count, asked = spread([agent.id for agent in agents])
    found = read_rows(_standing_query(count), asked)
    standing = {
        agent_id: (has_keys, EndedRefinement(*last) if last[0] else None) for agent_id, has_keys, *last in found
    }

    def row(agent: AgentInHand) -> AgentRow:
        has_keys, last = standing[agent.id]
        return AgentRow(agent, last, *outlooks[agent.id], has_keys, trend=trends.get(agent.id, ()))

    return [row(agent) for agent in agents]


@cache
def _standing_query(count: int) -> Prepared:
    """Whether an agent has keys, and its newest ended refinement, by one probe of an index each."""
    ended = select(Refinement.id).where(Refinement.agent_id == Agent.id, Refinement.ended_at.is_not(None))
    newest = ended.order_by(Refinement.requested_at.desc()).limit(1).scalar_subquery()
    last = aliased(Refinement)
    columns = (last.id, last.status, last.ended_at, last.undone_by)
    query = select(Agent.id, exists().where(AgentKey.agent_id == Agent.id), *columns).outerjoin(last, last.id == newest)
    return Prepared(query.where(one_of(Agent.id, count)))


def load_trends(agents: Sequence[AgentInHand]) -> dict[int, Trend]:
    """What each agent's last refinements left, and what it holds now; nothing of one that had none lately."""
    count, asked = spread([agent.id for agent in agents])
    found: dict[int, list[tuple[int, int]]] = {}
    for agent_id, at, mass, _ in read_rows(_trend_query(count), {**asked, "since": now() - timedelta(days=TREND_DAYS)}):
        found.setdefault(agent_id, []).append((int(at.timestamp()), mass))
    today = int(now().timestamp())
    return {agent.id: (*found[agent.id], (today, agent.core_token_usage)) for agent in agents if agent.id in found}


@cache
def _trend_query(count: int) -> Prepared:
    newest = func.row_number().over(partition_by=Refinement.agent_id, order_by=Refinement.requested_at.desc())
    wanted = one_of(Refinement.agent_id, count)
    lately = (Refinement.requested_at >= bindparam("since", type_=UtcDateTime), Refinement.mass_after.is_not(None))
    columns = (Refinement.agent_id, Refinement.requested_at, Refinement.mass_after, newest.label("place"))
    ended = select(*columns).where(wanted, *lately).subquery()
    return Prepared(select(ended).where(ended.c.place < TREND_POINTS).order_by(ended.c.requested_at))


def recently_moved(account_id: int) -> list[AgentRow]:
    """The rows that may have changed under somebody's eyes: with an open refinement, or one that ended just now."""
    moved = select(Refinement.agent_id).where(
        Refinement.account_id == account_id,
        _IS_OPEN | (Refinement.ended_at >= now() - RECENT),
        Refinement.requested_at >= now() - timedelta(days=1),
    )
    found = select(*(getattr(Agent, name) for name in LISTED)).where(Agent.id.in_(moved))
    rows = db.session.execute(found.order_by(Agent.name).limit(200)).tuples()
    return load_rows([ListedAgent(row) for row in rows], with_trend=True)
