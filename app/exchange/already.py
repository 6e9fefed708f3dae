"""What an agent brings in and has already is not written again, as when it saves: the file may come twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from app.exchange.draft import Draft
from app.extensions import db
from app.models.agent import Agent
from app.models.memory import Memory
from app.models.state import MemoryType
from app.silo import AgentKeys

Mark = tuple[str, bytes, datetime | None]
"""A memory is known by its exact text and by each of its dates, so that none is lost. None stands for the text alone:
what a file does not date says no more."""


def without_known(agent: Agent, drafts: Sequence[Draft], keys: AgentKeys) -> list[Draft]:
    """Those that the agent does not have. Of a text that the file holds several times, as many are left out as it has.

    So a bundle that holds duplicates comes back with them, and, brought in once more, adds nothing. The caller holds
    the agent's lock.
    """
    had = _active_marks(agent.id)
    new: list[Draft] = []
    for each in drafts:
        marks = list(_draft_marks(each, keys))
        if all(had[mark] > 0 for mark in marks):
            had.subtract(marks)
        else:
            new.append(each)
    return new


def _active_marks(agent_id: int) -> Counter[Mark]:
    columns = (Memory.type, Memory.content_hash, Memory.origin_at, Memory.other_dates)
    had = Counter[Mark]()
    for type_, content_hash, origin_at, other_dates in db.session.execute(
        Memory.active(agent_id).with_only_columns(*columns)
    ).tuples():
        had.update((str(type_), content_hash, at) for at in (origin_at, *other_dates))
        had[str(type_), content_hash, None] += type_ == MemoryType.CORE
    return had


def _draft_marks(each: Draft, keys: AgentKeys) -> Iterator[Mark]:
    content_hash = keys.content_hash(each.content)
    for at in each.dates or (None,):
        yield str(each.type), content_hash, at
