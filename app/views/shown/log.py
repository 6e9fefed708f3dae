"""A page of the audit log: rows by day, newest first, the entries of a refinement folded into one; and its filters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache, cached_property
from itertools import groupby
from typing import Any

from flask import url_for
from sqlalchemy import BindParameter, bindparam, func, select

from app.events.topics import newest_event
from app.extensions import db, read_rows
from app.history.log import LOOKED_AT, Filters, LogEntry, LogPeriod, newest_entry, read_log_entries, walk_log
from app.history.plan import final_among
from app.models import Action, ActorKind, Agent, AuditLog, MemoryState, Refinement, Rollback, User
from app.models.folded_refinement import FOLDED_REFINEMENT, FoldedRefinement
from app.models.keyset import TimeCursor
from app.prepared import Prepared, one_of, spread
from app.shapes.audit import EntryShape
from app.views.addresses import Address, list_url, query_url, row_url
from app.views.filters import FilterForm
from app.views.shown.agent import AgentState
from app.views.shown.entry import PARTS, Fact, Subject, facts_of, receipt_url_of, subject_of
from app.vocabulary import ACTIONS
from app.vocabulary.actions import ActionTerm, action_term

ROWS = 50
OPENED = 200
"""Entries that a fold opens to; whoever wants more of one refinement filters by it."""

MOST_NEWER = 99

SUGGESTED = 100
"""Agents and people that the filters name; others can be typed, or reached from an entry of theirs."""

_ANYONE = [("", "Anyone"), ("user", "People"), ("system", "The system")]
_PARTS = [(f"{ActorKind.SYSTEM}:{part}", words) for part, words in PARTS.items()]
_ACTIONS = sorted(((str(action), term.words) for action, term in ACTIONS.items()), key=lambda each: each[1])


@dataclass(frozen=True)
class Fold:
    """All entries of one refinement, as one row."""

    refinement: FoldedRefinement
    entries: int

    @property
    def line(self) -> str:
        """The machine's own words."""
        is_bare = self.refinement.is_open and not self.refinement.has_done_something
        return "nothing yet" if is_bare else self.refinement.machine_line

    def as_json(self) -> dict[str, Any]:
        status = str(self.refinement.status)
        return {"refinement": self.refinement.id, "status": status, "line": self.line, "entries": self.entries}


@dataclass(frozen=True)
class AuditRow:
    """One entry, or the newest one of a fold.

    `undid` is the refinement that a rollback took back; `undo_url` leads to the plan of an undo, if there can be one;
    `is_final` where there can be none, because a guard took it back for good.
    """

    entry: LogEntry
    undid: Refinement | None
    undo_url: str
    is_final: bool
    fold: Fold | None

    @property
    def look(self) -> ActionTerm:
        return action_term(self.entry.action)

    @property
    def subject(self) -> Subject | None:
        return subject_of(self.entry)

    @property
    def facts(self) -> Sequence[Fact]:
        """A fold shows none of its own."""
        return facts_of(self.entry)

    @property
    def receipt_url(self) -> str:
        return receipt_url_of(self.entry)

    def as_json(self) -> dict[str, Any]:
        said = EntryShape.of(self.entry).as_json() | {"words": self.look.words, "receipt": self.receipt_url or None}
        return said | {"fold": self.fold.as_json() if self.fold else None}


class Log:
    """`older` and `newer` are the places to go on from; `head` is the newest entry of all, where the page is not.

    `is_cut` when the page ends because it had looked at enough entries that do not fit.
    """

    looked_at = LOOKED_AT

    def __init__(self, form: FilterForm, *, before: str = "", after: str = "") -> None:
        """The page older than a place, the one newer than it, or the newest one: also where there is nothing newer."""
        self.form = form
        is_newest_of_all = not (form.is_filtered or before or after)
        self.head = None if is_newest_of_all else newest_entry(form.filters)
        self.rows: list[AuditRow] = []
        self.older: TimeCursor | None = None
        self.newer: TimeCursor | None = None
        self.is_cut = False
        if not form.errors:
            self._read_page(TimeCursor.parse(before), TimeCursor.parse(after))

    def _read_page(self, before: TimeCursor | None, after: TimeCursor | None) -> None:
        stretch = self._walk(after, newest_first=False) if after else None
        if stretch and stretch.next:
            places = stretch.places[::-1]
            self.older, self.newer = places[-1] if places else after, stretch.next
        else:
            start = None if after else before
            stretch = self._walk(start, newest_first=True)
            places = stretch.places
            self.older, self.newer = stretch.next, places[0] if start and places else start
        self.is_cut = stretch.is_cut
        self.rows = rows_of(read_log_entries(places), fold=not self.form.filters.picks_single_entries)

    def _walk(self, start: TimeCursor | None, *, newest_first: bool) -> LogPeriod:
        fold = not self.form.filters.picks_single_entries
        return walk_log(self.form.filters, start, want=ROWS, newest_first=newest_first, fold=fold)

    @property
    def is_live(self) -> bool:
        """Whether new entries appear on this page as they come: it is the first one, and nothing is filtered away."""
        return self.newer is None and not self.form.is_filtered

    @property
    def days(self) -> list[tuple[date, list[AuditRow]]]:
        return [(day, list(rows)) for day, rows in groupby(self.rows, lambda row: row.entry.at.date())]

    @property
    def bare_url(self) -> str:
        """Its newest page without any filter."""
        return log_url(self.form.agent)

    def url(self, form: str = "", /, **changes: str | TimeCursor | None) -> str:
        """The address of this log with its filters: in another form (`csv`), from another place, or filtered anew."""
        return log_url(self.form.agent, form, **{**self.form.typed, **changes})

    @cached_property
    def actor_url(self) -> Address:
        """The address of this log filtered by an actor."""
        return query_url(log_url(self.form.agent, **{**self.form.typed, "actor": None}), "actor")

    def as_json(self) -> dict[str, Any]:
        self.form.check()
        return {
            "entries": [row.as_json() for row in self.rows],
            "next_before": str(self.older) if self.older else None,
            "next_after": str(self.newer) if self.newer else None,
            "is_cut": self.is_cut,
        }


class AuditFilterOptions:
    """What can be chosen in the filters."""

    def __init__(self, form: FilterForm) -> None:
        account_id = form.filters.account_id
        of_account = {"account_id": account_id}
        people = [(f"{ActorKind.USER}:{email}", email) for (email,) in read_rows(_EMAILS, of_account)]
        itself = ("agent", "The agent itself" if form.agent else "Agents themselves")
        self.actors = [*_ANYONE, itself, *people, *_PARTS]
        chosen = form.typed.get("actor", "")
        if chosen not in dict(self.actors):
            self.actors.append((chosen, chosen.partition(":")[2] or chosen))
        self.agents = [] if form.agent else [name for (name,) in read_rows(_NAMES, of_account)]
        self.actions = [("", "Anything"), *_ACTIONS]


class AuditPage:
    """A page of the account's log, or of one agent's, whose `state` it then shows."""

    def __init__(self, form: FilterForm, *, before: str = "", after: str = "") -> None:
        self.state = AgentState.load(form.agent) if form.agent else None
        self.last_event = self.state.last_event if self.state else newest_event(form.filters.account_id)
        self.log, self.offers = Log(form, before=before, after=after), AuditFilterOptions(form)

    def as_json(self) -> dict[str, Any]:
        """Raises `Wrong` for filters that can't be used."""
        return self.log.as_json() | ({"agent": self.state.agent.name} if self.state else {})


_MINE: BindParameter[int] = bindparam("account_id")
_NAMES = Prepared(select(Agent.name).where(Agent.account_id == _MINE).order_by(Agent.name).limit(SUGGESTED))
_EMAILS = Prepared(select(User.email).where(User.account_id == _MINE).order_by(User.email).limit(SUGGESTED))


@cache
def _folds_query(count: int) -> Prepared:
    """Refinements, each with the number of its entries."""
    entries = select(func.count()).where(AuditLog.refinement_id == Refinement.id).scalar_subquery()
    listed = (getattr(Refinement, name) for name in FOLDED_REFINEMENT)
    return Prepared(select(entries, *listed).where(one_of(Refinement.id, count)))


@cache
def _wrote_states_query(count: int) -> Prepared:
    return Prepared(select(MemoryState.entry_id).where(one_of(MemoryState.entry_id, count)).distinct())


def rows_of_fold(refinement: Refinement) -> tuple[list[AuditRow], bool]:
    """The rows that a fold opens to, newest first, and whether there are more."""
    stretch = walk_log(Filters(refinement.account_id, refinement_id=refinement.id), want=OPENED)
    return rows_of(read_log_entries(stretch.places), fold=False), stretch.next is not None


def newer_entries(filters: Filters, than: TimeCursor) -> int:
    """How many entries fit that are newer; more than `MOST_NEWER` are not counted."""
    return len(walk_log(filters, than, want=MOST_NEWER + 1, newest_first=False).places)


def log_url(agent: Agent | None, form: str = "", /, **params: str | TimeCursor | None) -> str:
    """The address of the account's log, or of an agent's, in one of its forms."""
    endpoint = ("audit.agent" if agent else "audit.index") + (f"_{form}" if form else "")
    given: dict[str, Any] = {name: str(value) for name, value in params.items() if value}
    return url_for(endpoint, **given, agent_id=agent.id) if agent else list_url(endpoint, **given)


def rows_of(entries: Sequence[LogEntry], *, fold: bool) -> list[AuditRow]:
    """Rows for some entries: a handful of queries, whatever their number."""
    folds = _load_folds(entries) if fold else {}
    written = _that_wrote_states(entries)
    final = final_among(entries)
    undid = _undone_refinements(entries)

    def row_of(entry: LogEntry, number: int) -> AuditRow:
        can_be_undone = number in written - final and entry.action != Action.ERASE
        undo_url = row_url("rollbacks.plan_entry", "entry_id", number) if can_be_undone else ""
        return AuditRow(entry, undid.get(number), undo_url, number in final, folds.get(entry.refinement_id or ""))

    return [row_of(entry, entry.id) for entry in entries]


def _load_folds(entries: Sequence[LogEntry]) -> dict[str, Fold]:
    ids = [entry.refinement_id for entry in entries if entry.refinement_id]
    if not ids:
        return {}
    count, asked = spread(ids)
    folds = (Fold(FoldedRefinement(row), entries) for entries, *row in read_rows(_folds_query(count), asked))
    return {fold.refinement.id: fold for fold in folds}


def _that_wrote_states(entries: Sequence[LogEntry]) -> set[int]:
    """But for notes that tell the agent what a human did: these stay."""
    ids = [entry.id for entry in entries if entry.action != Action.AGENT_TOLD]
    if not ids:
        return set()
    count, asked = spread(ids)
    return {number for (number,) in read_rows(_wrote_states_query(count), asked)}


def _undone_refinements(entries: Sequence[LogEntry]) -> dict[int, Refinement]:
    """By the entry of a rollback: the refinement that it undid, or rewound to."""
    ids = [entry.id for entry in entries if entry.action == Action.ROLLBACK]
    if not ids:
        return {}
    query = select(Rollback.entry_id, Refinement).join(Refinement, Refinement.id == Rollback.refinement_id)
    return dict(db.session.execute(query.where(Rollback.entry_id.in_(ids))).tuples().all())
