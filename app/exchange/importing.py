"""Import: drafts into a ledger, all or none, as one entry that one undo takes back; less what the agent has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from app.exchange.draft import Draft
from app.extensions import db
from app.models.agent import Agent
from app.models.audit import Action, queue_note_to_agent, record
from app.models.memory import Memory
from app.models.memory_numbers import reserve_memory_ids
from app.models.memory_text import MemoryText, is_text_of
from app.models.state import MemoryType, Source
from app.silo import AgentKeys
from app.values.actor import Actor

DuplicateKey = tuple[str, bytes, datetime | None]
"""A memory is known by its exact text and by each of its dates, so that none is lost. None stands for the text alone:
what a file does not date says no more."""


@dataclass(frozen=True)
class Imported:
    """What an import wrote: counts, and the mass that it added to the ledger, in tokens."""

    imported: int
    core: int
    journal: int
    constitutional: int
    core_tokens: int


def write_memories(agent: Agent, drafts: Sequence[Draft], *, keys: AgentKeys, by: Actor, name: str) -> Imported:
    """Write and record them in the caller's transaction, which holds the agent's lock. None leave no entry.

    `name` is the import's, at most 80 characters on one line: their source tells it.
    """
    ids = reserve_memory_ids(len(drafts))
    memories = [
        _write_memory(agent, each, number, keys, f"{Source.IMPORT}:{name}")
        for number, each in zip(ids, drafts, strict=True)
    ]
    done = _count_imported(memories)
    if not memories:
        return done
    entry = record(Action.IMPORT, actor=by, of=agent, subject=agent.subject, data=asdict(done), memories=memories)
    queue_note_to_agent(entry)
    agent.announce("imported", **asdict(done))
    return done


def without_known(agent: Agent, drafts: Sequence[Draft], keys: AgentKeys) -> list[Draft]:
    """Those that the agent does not have, by text, type and exact dates: a file may come twice.

    Of a text that the file holds several times, as many are left out as it has. So a bundle that holds duplicates comes
    back with them, and, brought in once more, adds nothing. The caller holds the agent's lock.
    """
    had = _active_marks(agent.id)
    new: list[Draft] = []
    for each in drafts:
        content_hash = keys.content_hash(each.content)
        marks = [(str(each.type), content_hash, at) for at in each.dates or (None,)]
        if all(had[mark] > 0 for mark in marks):
            had.subtract(marks)
        else:
            new.append(each)
    return new


def _write_memory(agent: Agent, each: Draft, number: int, keys: AgentKeys, source: str) -> Memory:
    return Memory.write(
        agent,
        each.content,
        keys=keys,
        source=source,
        type_=each.type,
        tags=each.tags,
        origin_at=each.origin_at,
        other_dates=each.other_dates,
        constitutional=each.constitutional,
        memory_id=number,
    )


def _count_imported(memories: Sequence[Memory]) -> Imported:
    core = [memory for memory in memories if memory.is_core]
    return Imported(
        imported=len(memories),
        core=len(core),
        journal=len(memories) - len(core),
        constitutional=sum(memory.constitutional for memory in core),
        core_tokens=sum(memory.token_estimate for memory in core),
    )


def _active_marks(agent_id: int) -> Counter[DuplicateKey]:
    columns = (Memory.type, MemoryText.content_hash, Memory.origin_at, Memory.other_dates)
    had = Counter[DuplicateKey]()
    query = Memory.active(agent_id).join(MemoryText, is_text_of(Memory.id, Memory.content_digest))
    rows = db.session.execute(query.with_only_columns(*columns)).tuples()
    for type_, content_hash, origin_at, other_dates in rows:
        had.update((str(type_), content_hash, at) for at in (origin_at, *other_dates))
        had[str(type_), content_hash, None] += type_ == MemoryType.CORE
    return had
