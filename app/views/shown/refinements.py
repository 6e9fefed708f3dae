"""What the list of an account's refinements shows: one page of rows in some order, and how many match the filters."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flask import url_for
from sqlalchemy import select
from sqlalchemy.orm import selectinload

from app.errors import Invalid
from app.extensions import db, now
from app.models import Agent, Refinement
from app.models.keyset import cut_page
from app.refinement.attention import MOST_AT_ONCE
from app.refinement.daily_figures import load_daily_figures
from app.refinement.listing import FILTERS, MOST_COUNTED, NEWEST, SORTS, TypedFilters, parse_sort, with_open_items
from app.shapes.refinement import ListedRefinement
from app.values.durations import duration_words
from app.views.forms import Wrong
from app.views.shown.fleet_chart import FleetChart
from app.vocabulary import MODES, STATUSES, TRIGGERS
from app.vocabulary.term import Term

ROWS = 50
SUGGESTED = 100
"""Agents and models that the filters name; others can be typed."""


@dataclass(frozen=True)
class ListedRow:
    """`needs_attention` where nobody has seen yet what it called for."""

    refinement: Refinement
    agent: str
    needs_attention: bool

    @property
    def duration(self) -> str:
        return "" if self.refinement.seconds is None else duration_words(self.refinement.seconds)

    def as_json(self) -> dict[str, Any]:
        more = {"agent": self.agent, "needs_attention": self.needs_attention}
        return ListedRefinement.of(self.refinement, **more).as_json()


@dataclass(frozen=True)
class Offers:
    """What the filters can be set to, as (value, words) pairs; and names that fields which are typed suggest."""

    statuses: Sequence[tuple[str, str]]
    triggers: Sequence[tuple[str, str]]
    modes: Sequence[tuple[str, str]]
    agents: Sequence[str]
    models: Sequence[str]

    @classmethod
    def of(cls, account_id: int, status: str) -> Offers:
        """Of several statuses in one address the choice is kept."""
        mine = Agent.account_id == account_id
        agents = select(Agent.name).where(mine).order_by(Agent.name).limit(SUGGESTED)
        models = select(Agent.model_id).where(mine).distinct().order_by(Agent.model_id).limit(SUGGESTED)
        several = [(status, status.replace(",", ", "))] if "," in status else []
        return cls(
            [("", "Any"), *several, *_choices(STATUSES)],
            [("", "Any"), *_choices(TRIGGERS)],
            [("", "Any"), *_choices(MODES)],
            list(db.session.scalars(agents)),
            list(db.session.scalars(models)),
        )


class RefinementList:
    """`selected` are the boxes that were checked when nothing was done with them, and `problem` says why.

    `before` and `next_before` are ids of refinements, `matching` counts all that the filters leave. The chart is of the
    agent that they name, or of the whole account: `chart_agent` is its name then. A `time_zone` says whose days it has.
    """

    most_at_once = MOST_AT_ONCE
    sort_names = (NEWEST, "duration", "changes", "kept", "tokens", "cost")

    def __init__(
        self,
        account_id: int,
        sent: Mapping[str, str],
        *,
        time_zone: str = "",
        selected: Sequence[str] = (),
        problem: str = "",
    ) -> None:
        self.form = TypedFilters.read(account_id, sent)
        self.errors = dict(self.form.errors)
        self.sort = self._read_sort(sent.get("sort", "").strip())
        self.selected, self.problem = selected, problem
        self.rows: list[ListedRow] = []
        self.matching, self.before, self.next_before = 0, "", ""
        self.offers = Offers.of(account_id, self.form.typed.get("status", ""))
        self.chart: FleetChart | None = None
        self.chart_agent = ""
        if not self.errors:
            self._load_page(sent.get("before", "")[:36])
            self._load_chart(account_id, time_zone)

    def _read_sort(self, typed: str) -> str:
        try:
            return parse_sort(typed)
        except Invalid as error:
            self.errors["sort"] = error.sentence
            return NEWEST

    def _load_page(self, before: str) -> None:
        keyset, wanted = SORTS[self.sort], self.form.filters.conditions
        position = keyset.find(before, *wanted)
        query = select(Refinement, Agent.name).join(Agent, Agent.id == Refinement.agent_id).where(*wanted)
        query = query.options(selectinload(Refinement.notes))
        found, last = cut_page(db.session.execute(keyset.page(query, ROWS, position)).tuples(), ROWS)
        waiting = with_open_items([refinement.id for refinement, _ in found])
        self.rows = [ListedRow(refinement, agent, refinement.id in waiting) for refinement, agent in found]
        self.matching = self.form.filters.count()
        self.before, self.next_before = before if position else "", last[0].id if last else ""

    def _load_chart(self, account_id: int, time_zone: str) -> None:
        """None where the account has no refinement at all: the empty list says so already."""
        if not (self.rows or self.is_filtered):
            return
        agent_id = self.form.filters.agent_id
        self.chart = FleetChart(load_daily_figures(account_id, now(), time_zone=time_zone, agent_id=agent_id))
        if agent_id is not None:
            self.chart_agent = db.session.get_one(Agent, agent_id).name

    @property
    def typed(self) -> Mapping[str, str]:
        return self.form.typed

    @property
    def is_filtered(self) -> bool:
        return bool(self.form.typed)

    @property
    def matching_words(self) -> str:
        return f"{self.matching:,}{' or more' if self.matching >= MOST_COUNTED else ''}"

    @property
    def command(self) -> str:
        """The same list at the command line."""
        options = [(name, self.form.typed[name]) for name in FILTERS if name in self.form.typed]
        options += [("sort", self.sort)] if self.sort != NEWEST else []
        said = "".join(f" --{name} {shlex.quote(value)}" for name, value in options)
        return f"./whetstone refinements list{said}".replace(" --sort -", " --sort=-")

    def url(self, **changed: str | None) -> str:
        """This list with other filters or in another order, from its beginning."""
        kept: dict[str, Any] = {**self.form.typed, "sort": self.sort if self.sort != NEWEST else None}
        return url_for("refinements.index", **(kept | changed))

    def sort_url(self, name: str) -> str:
        """In that order; in the other direction where it is that already."""
        other = f"-{name}" if self.sort == name else name
        return self.url(sort=None if other == NEWEST else other)

    def direction(self, name: str) -> str:
        """How the column is sorted, for `aria-sort`; empty where it is not."""
        return {name: "descending", f"-{name}": "ascending"}.get(self.sort, "")

    def as_json(self) -> dict[str, Any]:
        """Raises `Wrong` when a filter can't be used: a program must not take nothing for an answer."""
        if self.errors:
            raise Wrong(self.errors)
        rows = [row.as_json() for row in self.rows]
        daily = self.chart.figures.as_json() if self.chart else None
        return {"refinements": rows, "matching": self.matching, "next_before": self.next_before or None, "daily": daily}


def _choices(table: Mapping[str, Term]) -> list[tuple[str, str]]:
    return [(str(name), term.words) for name, term in table.items()]
