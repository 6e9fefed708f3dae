"""The audit log as it is read: by filters, from any place, newest or oldest first. Open data only; writes nothing.

A step walks one index in its order from a place on, so that it costs the same at any depth. What this index can't
decide (a fold, a second filter) is looked at entry by entry, at most `LOOKED_AT` of them a page: the answer then says
how far it came, and the next one goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cache, lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Integer, Select, bindparam, exists, or_, select, tuple_
from sqlalchemy.orm import aliased

from app.extensions import db, end_reading, read_rows
from app.models import Action, ActorKind, Agent, AuditLog, Rollback
from app.models.base import UtcDateTime
from app.models.keyset import Keyset, TimeCursor
from app.prepared import Prepared, one_of, spread

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
        before = len(found)
        found += route.fitting(place, size)
        if len(found) > want:
            return LogPeriod(found[:want], found[want - 1])
        place = route.skip(place, size)
        if place is None:
            return LogPeriod(found, None)
        looked += size
        if looked >= LOOKED_AT:
            return LogPeriod(found, place, is_cut=True)
        size = min(_next_size(size, len(found) - before, want + 1 - len(found)), LOOKED_AT - looked)


def _next_size(size: int, found: int, missing: int) -> int:
    """As many entries as hold what is missing, and a quarter more, if they are like the last `size`; at most four times
    those."""
    return min(size * 4, max(size, size * missing * 5 // (found * 4)) if found else size * 4)


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
    if not places:
        return []
    count, asked = spread([place.id for place in places])
    found = {row[0]: LogEntry(*row) for row in read_rows(_entries_query(count), asked)}
    return [found[place.id] for place in places]


def newest_entry(filters: Filters) -> TimeCursor | None:
    """The newest entry of the agent or the account, whatever else is wanted."""
    places = walk_log(Filters(filters.account_id, filters.agent_id), want=1).places
    return places[0] if places else None


_AGENT = select(Agent.name).where(Agent.id == AuditLog.agent_id).scalar_subquery()
_COLUMNS = [_AGENT if each.name == "agent" else getattr(AuditLog, each.name) for each in fields(LogEntry)]


@cache
def _entries_query(count: int) -> Prepared:
    return Prepared(select(*_COLUMNS).where(one_of(AuditLog.id, count)))


class _IndexWalk:
    """Through which index the log is walked (`along`), and what is looked at on the way (`looked_at`)."""

    def __init__(self, filters: Filters, *, newest_first: bool, fold: bool) -> None:
        self._filters, self._newest_first = filters, newest_first
        self._wanted = _wanted_values(filters)
        self.along = next(names for names in _INDEXES if all(name in self._wanted for name in names))
        self.looked_at = tuple(name for name in self._wanted if name not in self.along)
        if fold:
            self.looked_at += ("newest" if filters.until is None else "newest until",)

    def fitting(self, start: TimeCursor | None, size: int) -> list[TimeCursor]:
        """Those that fit among the next `size` entries behind a place."""
        query = _fitting_query(self.along, self.looked_at, self._range_bounds(start), self._newest_first)
        return [TimeCursor(*row) for row in read_rows(query, self._values(start) | {"size": size})]

    def skip(self, start: TimeCursor | None, size: int) -> TimeCursor | None:
        """The last of the next `size` entries behind a place; None where the log has no more than these."""
        query = _skip_query(self.along, self._range_bounds(start), self._newest_first)
        rows = read_rows(query, self._values(start) | {"skipped": size - 1})
        return TimeCursor(*rows[0]) if len(rows) == 2 else None

    def _values(self, start: TimeCursor | None) -> dict[str, Any]:
        known = {"since": self._filters.since, "until": self._filters.until}
        place = {} if start is None else {"start_at": start.at, "start_id": start.id}
        given = {name: value for values in self._wanted.values() for name, value in values.items()}
        return given | place | {name: value for name, value in known.items() if value is not None}

    def _range_bounds(self, start: TimeCursor | None) -> tuple[str, ...]:
        """One bound at each end, the narrower one: of two, SQLite would walk from the wider, past all in between."""
        since, until = self._filters.since, self._filters.until
        lower = ("since",) if since else ()
        upper = ("until",) if until else ()
        if start is None:
            return lower + upper
        if self._newest_first:
            return lower + (("older",) if until is None or start.at < until else upper)
        return (("newer",) if since is None or start.at >= since else lower) + upper


@lru_cache(500)
def _fitting_query(
    along: tuple[str, ...], looked_at: tuple[str, ...], bounds: tuple[str, ...], newest_first: bool
) -> Prepared:
    """Made once for each set of filters: making it costs more than the database needs for it."""
    near = _query_behind(along, bounds, newest_first, _NEEDED).limit(bindparam("size", type_=Integer)).subquery().c
    query = select(near.at, near.id).where(*(_LOOKINGS[name](near) for name in looked_at))
    return Prepared(query.order_by(*_log_keyset(near, newest_first).order))


@lru_cache(500)
def _skip_query(along: tuple[str, ...], bounds: tuple[str, ...], newest_first: bool) -> Prepared:
    query = _query_behind(along, bounds, newest_first, _PLACE_COLUMNS)
    return Prepared(query.offset(bindparam("skipped", type_=Integer)).limit(2))


def _query_behind(
    along: tuple[str, ...], bounds: tuple[str, ...], newest_first: bool, columns: Sequence[Any]
) -> Select[Any]:
    query = select(*columns).where(*(_LOOKINGS[name](AuditLog) for name in along), *(_BOUNDS[name] for name in bounds))
    return query.order_by(*_log_keyset(AuditLog, newest_first).order)


def _log_keyset(log: Any, newest_first: bool) -> Keyset:
    return Keyset((log.at, log.id), newest_first)


_PLACE_COLUMNS = (AuditLog.at, AuditLog.id)
_NEEDED = [
    getattr(AuditLog, name)
    for name in ("at", "id", "account_id", "agent_id", "user_id", "actor_kind", "actor", "action", "refinement_id")
]
"""What can be looked at on the way."""

_INDEXES = (("refinement",), ("agent",), ("user",), ("account", "action"), ("account",))
"""What the indexes of the log begin with (see `AuditLog`), the narrowest first."""


def _wanted_values(filters: Filters) -> dict[str, dict[str, Any]]:
    """By name of `_LOOKINGS`. The account's own is always among them: an operator acts in several, and nothing crosses
    accounts."""
    found: dict[str, dict[str, Any]] = {"account": {"account_id": filters.account_id}}
    agent_id = filters.agent_id or (filters.who.agent_id if filters.who else None)
    if filters.refinement_id is not None:
        found["refinement"] = _of_refinement(filters.refinement_id)
    if agent_id is not None:
        found["agent"] = {"agent_id": agent_id}
    if filters.action is not None:
        found["action"] = {"action": filters.action}
    if filters.who is not None:
        found |= _actor_values(filters.who)
    return found


def _actor_values(who: LogActor) -> dict[str, dict[str, Any]]:
    if who.user_id is not None:
        return {"user": {"user_id": who.user_id}}
    if who.name:
        return {"actor": {"actor": f"{who.kind}:{who.name}"}}
    return {"kind": {"kind": who.kind}}


def _of_refinement(refinement_id: str) -> dict[str, Any]:
    """Its own entries, and those of the rollbacks that undid it: these stand in the log for themselves."""
    rollbacks = list(db.session.scalars(select(Rollback.entry_id).where(Rollback.refinement_id == refinement_id)))
    return {"refinement_id": refinement_id, "rollbacks": rollbacks}


def _is_newest_of_its_refinement(log: Any, *before_the_end: Condition) -> Condition:
    """True also for what belongs to none."""
    return ~exists().where(_LATER.refinement_id == log.refinement_id, _LATER.id > log.id, *before_the_end)


_LATER = aliased(AuditLog)
_AT = {name: bindparam(name, type_=UtcDateTime) for name in ("since", "until", "start_at")}
_LOOKINGS: Mapping[str, Looking] = {
    "account": lambda log: log.account_id == bindparam("account_id"),
    "refinement": lambda log: or_(
        log.refinement_id == bindparam("refinement_id"), log.id.in_(bindparam("rollbacks", expanding=True))
    ),
    "agent": lambda log: log.agent_id == bindparam("agent_id"),
    "action": lambda log: log.action == bindparam("action"),
    "user": lambda log: log.user_id == bindparam("user_id"),
    "actor": lambda log: log.actor == bindparam("actor"),
    "kind": lambda log: log.actor_kind == bindparam("kind"),
    "newest": _is_newest_of_its_refinement,
    "newest until": lambda log: _is_newest_of_its_refinement(log, _LATER.at < _AT["until"]),
}
_START = tuple_(_AT["start_at"], bindparam("start_id", type_=AuditLog.id.type))
_BOUNDS: Mapping[str, Condition] = {
    "since": AuditLog.at >= _AT["since"],
    "until": AuditLog.at < _AT["until"],
    "older": tuple_(AuditLog.at, AuditLog.id) < _START,
    "newer": tuple_(AuditLog.at, AuditLog.id) > _START,
}
