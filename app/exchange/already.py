"""What an agent brings in and has already is not written again, as when it saves: the file may come twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from app.extensions import db
from app.models.agent import Agent
from app.models.draft import Draft
from app.models.memory import Memory
from app.models.state import MemoryType
from app.silo import AgentKeys

Mark = tuple[str, bytes, datetime | None]
"""A core memory is known by its text, upper and lower case aside; a journal entry also by its date."""


def without_known(agent: Agent, drafts: Sequence[Draft], keys: AgentKeys) -> list[Draft]:
    """Those that the agent does not have. Of a text that the file holds several times, as many are left out as it has.

    So a bundle that holds duplicates comes back with them, and, brought in once more, adds nothing. The caller holds
    the agent's lock.
    """
    had = _active(agent.id)
    new: list[Draft] = []
    for each in drafts:
        mark = _mark(each.type, keys.content_hash(each.content), each.origin_at)
        if had[mark] > 0:
            had[mark] -= 1
        else:
            new.append(each)
    return new


def _active(agent_id: int) -> Counter[Mark]:
    columns = (Memory.type, Memory.content_hash, Memory.origin_at)
    return Counter(
        _mark(*row) for row in db.session.execute(Memory.active(agent_id).with_only_columns(*columns)).tuples()
    )


def _mark(type_: str, content_hash: bytes, origin_at: datetime | None) -> Mark:
    return str(type_), content_hash, origin_at if type_ == MemoryType.JOURNAL else None
