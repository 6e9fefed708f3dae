"""Mass over time: a line through what refinements, removals of exact duplicates and rollbacks did, each marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from flask import url_for
from sqlalchemy import select

from app.extensions import db, now
from app.models import Agent, Mode, Refinement, Rollback
from app.models.base import iso
from app.vocabulary import ROLLBACKS, STATUSES

EVENTS = 60
GAP = 3.2
"""The least distance of two marks in percent of the width, as long as there is room for it."""


@dataclass(frozen=True)
class ChartMark:
    """One event. Masses in tokens; `x` in percent of the width. `is_hollow`: it changed nothing, or stands no more.

    `shape` is `refinement`, `dedup` or `rollback`.
    """

    id: str
    shape: str
    at: datetime
    title: str
    before: int
    after: int
    url: str = field(repr=False)
    is_hollow: bool = False
    x: float = 0

    @property
    def words(self) -> str:
        """All that a mark means, for those who do not see it."""
        year = "" if self.at.year == now().year else f" {self.at.year}"
        return f"{self.at.day} {self.at:%b}{year} {self.at:%H:%M} {self.title}, {self.before:,} → {self.after:,} tokens"

    def as_json(self) -> dict[str, Any]:
        masses = {"mass_before": self.before, "mass_after": self.after}
        return {"at": iso(self.at), "kind": self.shape, "title": self.title, "url": self.url} | masses


class MassChart:
    """`points` are (x, tokens), x in percent of the width; `since` is the day of the first mark.

    Time is stretched where marks would cover one another.
    """

    def __init__(self, agent: Agent) -> None:
        marks = sorted([*_of_refinements(agent), *_of_rollbacks(agent)], key=lambda mark: mark.at)[-EVENTS:]
        places = _spread_places([*(mark.at.timestamp() for mark in marks), now().timestamp()]) if marks else []
        self.marks = [replace(mark, x=round(x, 2)) for mark, x in zip(marks, places, strict=False)]
        self.points = [point for mark in self.marks for point in ((mark.x, mark.before), (mark.x, mark.after))]
        if marks:
            self.points.append((places[-1], agent.core_token_usage))
        self.since = f"{marks[0].at:%Y-%m-%d}" if marks else ""

    @property
    def legend(self) -> list[tuple[str, bool, str]]:
        """Shape, hollow or not, and what it means: of those that are there."""
        shapes = {mark.shape for mark in self.marks}
        hollow = next((mark.shape for mark in self.marks if mark.is_hollow), "")
        found = [(shape, False, word) for shape, word in _SHAPES.items() if shape in shapes]
        return [*found, *([(hollow, True, "changed nothing, or undone since")] if hollow else [])]

    def as_json(self) -> list[dict[str, Any]]:
        return [mark.as_json() for mark in self.marks]


_SHAPES = {"refinement": "refinement", "dedup": "exact duplicates removed", "rollback": "rollback"}


def _of_refinements(agent: Agent) -> Iterator[ChartMark]:
    ended = select(Refinement).where(Refinement.agent_id == agent.id, Refinement.ended_at.is_not(None))
    newest = db.session.scalars(ended.order_by(Refinement.requested_at.desc()).limit(EVENTS)).all()
    for refinement in reversed(newest):
        yield from _of_refinement(refinement, refinement.ended_at or refinement.requested_at)


def _of_refinement(refinement: Refinement, ended_at: datetime) -> Iterator[ChartMark]:
    """The exact duplicates that went first are an event of their own."""
    after = refinement.mass_after or 0
    start = after if refinement.mass_before is None else refinement.mass_before
    url = url_for("refinements.show", refinement_id=refinement.id)
    undone = refinement.undone_by is not None
    since = ", undone since" if undone else ""
    if refinement.mode == Mode.DEDUP_ONLY:
        title = "exact duplicates removed" if refinement.deduplicated else "looked for exact duplicates"
        hollow = undone or not refinement.deduplicated
        yield ChartMark(refinement.id, "dedup", ended_at, title + since, start, after, url, hollow)
        return
    if refinement.deduplicated:
        began = refinement.started_at or refinement.requested_at
        title, before = f"exact duplicates removed{since}", start + refinement.deduplicated_tokens
        yield ChartMark(f"{refinement.id}-dedup", "dedup", began, title, before, start, url, undone)
    title = f"refinement {STATUSES[refinement.status].words}{since}"
    yield ChartMark(refinement.id, "refinement", ended_at, title, start, after, url, undone or start == after)


def _of_rollbacks(agent: Agent) -> Iterator[ChartMark]:
    mine = select(Rollback).where(Rollback.agent_id == agent.id)
    newest = db.session.scalars(mine.order_by(Rollback.at.desc(), Rollback.entry_id.desc()).limit(EVENTS)).all()
    for each in reversed(newest):
        title = ROLLBACKS[each.kind].words + ("" if each.stands else ", undone since")
        url = url_for("rollbacks.show", rollback_id=each.id)
        yield ChartMark(each.id, "rollback", each.at, title, each.mass_before, each.mass_after, url, not each.stands)


def _spread_places(times: Sequence[float]) -> list[float]:
    """Where moments stand between 0 and 100: in proportion, but never closer than `GAP`, or than there is room for."""
    gap = min(GAP, 100 / (len(times) - 1))
    span = (times[-1] - times[0]) or 1
    places = [(moment - times[0]) * 100 / span for moment in times]
    for place in range(1, len(places)):
        places[place] = max(places[place], places[place - 1] + gap)
    places[-1] = 100
    for place in range(len(places) - 2, -1, -1):
        places[place] = max(min(places[place], places[place + 1] - gap), 0)
    return places
