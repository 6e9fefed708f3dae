"""The agents of an account as a list: which are wanted, in which order, how many fit; for pages and commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    Integer,
    Select,
    bindparam,
    case,
    cast,
    func,
    literal,
    select,
    true,
)

from app.errors import Invalid
from app.extensions import db, read_rows
from app.models import Agent, Refinement, Status
from app.models.agent_standing import LISTED, ListedAgent
from app.models.base import UtcDateTime
from app.models.keyset import Keyset, Position, cut_page
from app.prepared import Prepared
from app.refinement.next_start import LONG_AGO, NEVER, has_open_refinement, next_start
from app.refinement.timetable import HOUR, Timetable
from app.values.refinement_states import OPEN_STATES

IS_KEPT = Agent.forgotten_at.is_(None)
OVER_BUDGET = (Agent.core_token_usage > Agent.core_token_budget) & IS_KEPT

STATES: Mapping[str, tuple[str, ColumnElement[bool]]] = {
    "": ("All states", true()),
    "running": ("Being refined", has_open_refinement()),
    "stopped": ("Stopped", Agent.stopped_at.is_not(None)),
    "over_budget": ("Over budget", OVER_BUDGET),
    "paused": ("Paused", Agent.paused.is_(True) & IS_KEPT),
    "never": ("Never refined", Agent.last_refinement_at.is_(None)),
    "inactive": ("Not active", Agent.active.is_(False) & IS_KEPT),
    "forgotten": ("Forgotten", ~IS_KEPT),
}
"""What the list can be filtered by, as its address names it: the words for it, and what it asks of an agent."""

OUTCOMES = tuple(status for status in Status if status not in OPEN_STATES)
"""How a last refinement can have ended."""

DUE: Mapping[str, tuple[str, timedelta | None]] = {
    "hour": ("Within 1 hour", HOUR),
    "day": ("Within 24 hours", timedelta(days=1)),
    "week": ("Within 7 days", timedelta(days=7)),
    "none": ("Not scheduled", None),
}
"""When the next refinement starts by itself: words, and within which time from now."""

SORTS = ("name", "memory", "state", "last", "next")
"""The columns of the list, as its address names them; `-` before one turns its order round."""

MAX_QUERY = 80

FILTERS = ("query", "state", "outcome", "due", "sort")
"""What an address, a form or a command says of a list: the agents that fit, and their order."""


class FilterRefused(Invalid):
    """A filter or an order of the list that there is not. `field` names it."""

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(sentence)
        self.field = field


@dataclass(frozen=True)
class Fleet:
    """The agents of an account that fit: `query` is a part of the name, the rest are names of the tables above."""

    account_id: int
    query: str = ""
    state: str = ""
    outcome: str = ""
    due: str = ""
    sort: str = ""
    timetable: Timetable = field(default_factory=Timetable, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Raises FilterRefused."""
        orders = [*SORTS, *(f"-{each}" for each in SORTS)]
        for name, known in {"state": STATES, "outcome": OUTCOMES, "due": DUE, "sort": orders}.items():
            given = getattr(self, name)
            if given and given not in known:
                named = ", ".join(filter(None, map(str, known)))
                raise FilterRefused(name, f"There is no {name} {given!r}. There are: {named}.")
        if len(self.query) > MAX_QUERY or not self.query.isprintable():
            raise FilterRefused("query", f"A name has at most {MAX_QUERY} characters, all of which can be seen.")

    @classmethod
    def read(cls, account_id: int, typed: Mapping[str, str]) -> Fleet:
        """By what was typed under the names of FILTERS. Raises FilterRefused."""
        query, state, outcome, due, sort = (typed.get(name, "") for name in FILTERS)
        return cls(account_id, query, state, outcome, due, sort)

    @property
    def is_filtered(self) -> bool:
        return bool(self.query or self.state or self.outcome or self.due)

    @property
    def typed(self) -> dict[str, str]:
        """What an address has to say to mean the same agents in the same order."""
        named = {name: getattr(self, name) for name in FILTERS}
        return {name: value for name, value in named.items() if value}

    @property
    def order(self) -> Keyset:
        column = self.sort.removeprefix("-") or "name"
        keys = () if column == "name" else (self._sort_key(column),)
        return Keyset((*keys, Agent.name), newest_first=self.sort.startswith("-"))

    def load(self, limit: int, after: str = "") -> tuple[list[ListedAgent], ListedAgent | None]:
        """The next that fit, behind the agent of that name, and the last of them if others follow."""
        position = self.position_of(after)
        if self.is_filtered or len(self.order.columns) > 1:
            wanted = select(*_LISTED).where(*self._conditions())
            rows: Iterable[Sequence[Any]] = db.session.execute(self.order.page(wanted, limit, position))
        else:
            asked = {"account_id": self.account_id, "limit": limit + 1, **({"name": position[0]} if position else {})}
            rows = read_rows(_all_by_name(self.order.newest_first, position is not None), asked)
        return cut_page(map(ListedAgent, rows), limit)

    def agents(self) -> Select[tuple[Agent]]:
        """All that fit, in no order."""
        return select(Agent).where(*self._conditions())

    def ids(self) -> list[int]:
        """Of all that fit."""
        return list(db.session.scalars(select(Agent.id).where(*self._conditions()).order_by(Agent.id)))

    def count(self) -> int:
        return db.session.scalar(select(func.count()).select_from(Agent).where(*self._conditions())) or 0

    def position_of(self, name: str) -> Position | None:
        """Where the agent of that name stands in this order; by name alone, also where it stood once."""
        order = self.order
        if not name or len(order.columns) == 1:
            return [name] if name else None
        return order.find(name, Agent.account_id == self.account_id)

    def _conditions(self) -> list[ColumnElement[bool]]:
        found = [Agent.account_id == self.account_id]
        if self.query:
            found.append(Agent.name.icontains(self.query, autoescape=True))
        if self.state:
            found.append(STATES[self.state][1])
        if self.outcome:
            found.append(_last_outcome() == self.outcome)
        if self.due:
            found.append(self._is_due(DUE[self.due][1]))
        return found

    def _is_due(self, within: timedelta | None) -> ColumnElement[bool]:
        start = next_start(self.timetable)
        if within is None:
            return start == literal(NEVER, start.type)
        return (start <= literal(self.timetable.at + within, start.type)) & ~has_open_refinement()

    def _sort_key(self, column: str) -> ColumnElement[Any]:
        match column:
            case "memory":
                return cast(Agent.core_token_usage, BigInteger) * 1000 // Agent.core_token_budget
            case "state":
                return _state_rank()
            case "last":
                return func.coalesce(Agent.last_attempt_at, literal(LONG_AGO, UtcDateTime), type_=UtcDateTime)
        return next_start(self.timetable)


_LISTED = [getattr(Agent, name) for name in LISTED]


@cache
def _all_by_name(turned: bool, has_position: bool) -> Prepared:
    """A page of all agents of an account, as most look at the list: the same as `Keyset.page`, made once."""
    query = select(*_LISTED).where(Agent.account_id == bindparam("account_id"))
    if has_position:
        name: BindParameter[str] = bindparam("name")
        query = query.where(Agent.name < name if turned else Agent.name > name)
    order = Agent.name.desc() if turned else Agent.name.asc()
    return Prepared(query.order_by(order).limit(bindparam("limit", type_=Integer)))


def _last_outcome() -> Any:
    """How the newest refinement that ended did: one probe of an index an agent."""
    ended = select(Refinement.status).where(Refinement.agent_id == Agent.id, Refinement.ended_at.is_not(None))
    return ended.order_by(Refinement.requested_at.desc()).limit(1).scalar_subquery()


def _state_rank() -> ColumnElement[int]:
    """What wants a look comes first; what is over comes last."""
    ranked = (~IS_KEPT, 6), (Agent.stopped_at.is_not(None), 0), (STATES["running"][1], 1), (~Agent.active, 4)
    return case(*ranked, (Agent.paused, 3), (OVER_BUDGET, 2), else_=5)
