"""The audit log as it is read: by filters, from any place, newest or oldest first. Open data only; writes nothing.

A step walks one index in its order from a place on, so that it costs the same at any depth. What this index can't
decide (a fold, a second filter) is looked at entry by entry, at most `LOOKED_AT` of them a page: the answer then says
how far it came, and the next one goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, exists, or_, select
from sqlalchemy.orm import aliased

from app.extensions import db, end_reading
from app.models import Action, ActorKind, Agent, AuditLog, Rollback
from app.models.keyset import Keyset, TimeCursor

LOOKED_AT = 10_000
BATCH = 500

Condition = ColumnElement[bool]
Looking = Callable[[Any], Condition]
"""A condition on whatever has the log's columns."""


@dataclass(frozen=True)
class LogActor:
    """An actor as the log names it, or all of one kind. The ids, where they are known, find the entries faster."""

    kind: ActorKind
    name: str = ""
    user_id: int | None = None
    agent_id: int | None = None


@dataclass(frozen=True)
class Filters:
    """What of one account's log is wanted. `since` is inclusive, `until` is not.

    Whoever makes this has seen that agent, user and refinement are the account's own.
    """

    account_id: int
    agent_id: int | None = None
    who: LogActor | None = None
    action: Action | None = None
    refinement_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    @property
    def picks_single_entries(self) -> bool:
        """Whether entries are wanted for what they are; then the related ones are not folded away."""
        return bool(self.who or self.action or self.refinement_id)


@dataclass(frozen=True)
class LogPeriod:
    """A part of the log, in the order in which it was walked. `next` is where to go on, None at the log's end.

    `is_cut` when fewer than wanted were found among the entries that a page looks at.
    """

    places: Sequence[TimeCursor]
    next: TimeCursor | None
    is_cut: bool = False


@dataclass(frozen=True)
class LogEntry:
    """What an entry openly says, with its agent's name of today."""

    id: int
    at: datetime
    actor_kind: str
    actor: str
    action: str
    agent_id: int | None
    agent: str | None
    refinement_id: str | None
    subject: str
    data: dict[str, Any] = field(repr=False)
    hash: bytes
    previous_hash: bytes

    @property
    def place(self) -> TimeCursor:
        return TimeCursor(self.at, self.id)


def walk_log(
    filters: Filters, start: TimeCursor | None = None, *, want: int, newest_first: bool = True, fold: bool = False
) -> LogPeriod:
    """The next entries that fit, from behind a place on, or from the newest (oldest) one.

    With `fold`, of each refinement only its newest entry within the dates.
    """
    route = _IndexWalk(filters, newest_first=newest_first, fold=fold)
    found: list[TimeCursor] = []
    looked, place = 0, start
    size = min((want + 1) * 4, LOOKED_AT) if route.looked_at else want + 1
    while True:
        found += route.fitting(place, size)
        if len(found) > want:
            return LogPeriod(found[:want], found[want - 1])
        place = route.skip(place, size)
        if place is None:
            return LogPeriod(found, None)
        looked += size
        if looked >= LOOKED_AT:
            return LogPeriod(found, place, is_cut=True)
        size = min(size * 4, LOOKED_AT - looked)


def read_batches(filters: Filters) -> Iterator[list[LogEntry]]:
    """All that fits, oldest first, batch by batch: no transaction is open, and nothing kept, between two of them."""
    route = _IndexWalk(filters, newest_first=False, fold=False)
    place: TimeCursor | None = None
    while True:
        entries = read_log_entries(route.fitting(place, BATCH))
        place = route.skip(place, BATCH)
        end_reading()
        if entries:
            yield entries
        if place is None:
            return


def read_log_entries(places: Sequence[TimeCursor]) -> list[LogEntry]:
    """The entries at these places, in this order."""
    query = select(*_COLUMNS).where(AuditLog.id.in_([place.id for place in places]))
    rows = db.session.execute(query) if places else ()
    found = {row[0]: LogEntry(*row) for row in rows}
    return [found[place.id] for place in places]


def newest_entry(filters: Filters) -> TimeCursor | None:
    """The newest entry of the agent or the account, whatever else is wanted."""
    places = walk_log(Filters(filters.account_id, filters.agent_id), want=1).places
    return places[0] if places else None


_AGENT = select(Agent.name).where(Agent.id == AuditLog.agent_id).scalar_subquery()
_COLUMNS = [_AGENT if each.name == "agent" else getattr(AuditLog, each.name) for each in fields(LogEntry)]


class _IndexWalk:
    """Through which index the log is walked (`along`), and what is looked at on the way (`looked_at`)."""

    def __init__(self, filters: Filters, *, newest_first: bool, fold: bool) -> None:
        wanted = _wanted_conditions(filters)
        chosen = next(names for names in _INDEXES if all(name in wanted for name in names))
        self.along = [wanted[name](AuditLog) for name in chosen]
        self.looked_at = [fits for name, fits in wanted.items() if name not in chosen]
        if fold:
            self.looked_at.append(_is_newest_of_its_refinement(filters.until))
        self.since, self.until, self.newest_first = filters.since, filters.until, newest_first

    def fitting(self, start: TimeCursor | None, size: int) -> list[TimeCursor]:
        """Those that fit among the next `size` entries behind a place."""
        near = self._query_behind(start, _NEEDED).limit(size).subquery().c
        query = select(near.at, near.id).where(*(fits(near) for fits in self.looked_at))
        return [TimeCursor(*row) for row in db.session.execute(query.order_by(*self._log_keyset(near).order)).tuples()]

    def skip(self, start: TimeCursor | None, size: int) -> TimeCursor | None:
        """The last of the next `size` entries behind a place; None where the log has no more than these."""
        query = self._query_behind(start, _PLACE_COLUMNS).offset(size - 1).limit(2)
        rows = db.session.execute(query).all()
        return TimeCursor(*rows[0]) if len(rows) == 2 else None

    def _query_behind(self, start: TimeCursor | None, columns: Sequence[Any]) -> Select[Any]:
        query = select(*columns).where(*self.along, *self._range_bounds(start))
        return query.order_by(*self._log_keyset(AuditLog).order)

    def _range_bounds(self, start: TimeCursor | None) -> list[Condition]:
        """One bound at each end, the narrower one: of two, SQLite would walk from the wider, past all in between."""
        at = AuditLog.at
        lower = [at >= self.since] if self.since else []
        upper = [at < self.until] if self.until else []
        if start is None:
            return lower + upper
        behind = self._log_keyset(AuditLog).behind(start)
        if self.newest_first:
            return lower + ([behind] if self.until is None or start.at < self.until else upper)
        return ([behind] if self.since is None or start.at >= self.since else lower) + upper

    def _log_keyset(self, log: Any) -> Keyset:
        return Keyset((log.at, log.id), self.newest_first)


_PLACE_COLUMNS = (AuditLog.at, AuditLog.id)
_NEEDED = [
    getattr(AuditLog, name)
    for name in ("at", "id", "account_id", "agent_id", "user_id", "actor_kind", "actor", "action", "refinement_id")
]
"""What can be looked at on the way."""

_INDEXES = (("refinement",), ("agent",), ("user",), ("account", "action"), ("account",))
"""What the indexes of the log begin with (see `AuditLog`), the narrowest first."""


def _wanted_conditions(filters: Filters) -> dict[str, Looking]:
    """By name. The account's own is always among them: an operator acts in several, and nothing crosses accounts."""
    found: dict[str, Looking] = {"account": lambda log: log.account_id == filters.account_id}
    agent_id = filters.agent_id or (filters.who.agent_id if filters.who else None)
    if filters.refinement_id is not None:
        found["refinement"] = _of_refinement(filters.refinement_id)
    if agent_id is not None:
        found["agent"] = lambda log: log.agent_id == agent_id
    if filters.action is not None:
        found["action"] = lambda log: log.action == filters.action
    if filters.who is not None:
        found |= _actor_condition(filters.who)
    return found


def _actor_condition(who: LogActor) -> dict[str, Looking]:
    if who.user_id is not None:
        return {"user": lambda log: log.user_id == who.user_id}
    if who.name:
        return {"actor": lambda log: log.actor == f"{who.kind}:{who.name}"}
    return {"kind": lambda log: log.actor_kind == who.kind}


def _of_refinement(refinement_id: str) -> Looking:
    """Its own entries, and those of the rollbacks that undid it: these stand in the log for themselves."""
    rollbacks = list(db.session.scalars(select(Rollback.entry_id).where(Rollback.refinement_id == refinement_id)))
    return lambda log: or_(log.refinement_id == refinement_id, log.id.in_(rollbacks))


def _is_newest_of_its_refinement(until: datetime | None) -> Looking:
    """True also for what belongs to none."""
    later = aliased(AuditLog)
    before_the_end = [later.at < until] if until is not None else []
    return lambda log: ~exists().where(later.refinement_id == log.refinement_id, later.id > log.id, *before_the_end)
