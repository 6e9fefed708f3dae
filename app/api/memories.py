"""An agent's own memories: save, list, read one, and search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import Field

from app.api.caller import Caller
from app.api.operation import DIGITS, MOST_ID, PathParameter, QueryModel, RequestBody, operation
from app.errors import Invalid, NotFound
from app.extensions import end_reading, writing
from app.history import erasing
from app.history.erasing import LONGEST_REASON
from app.models import Agent, Memory, MemoryType
from app.models.key import Scope
from app.models.keyset import cut_page
from app.models.memory import OLDEST_MEMORIES
from app.models.memory_rows import SealedRow
from app.shapes.memory import ErasedMemory, MemoryKind, OneMemory
from app.shapes.response import ResponseModel
from app.silo import AgentKeys
from app.values.text import is_blank
from tasks import keys as queue

MOST = 500
USUAL = 100
BATCH = 500

ID = PathParameter("memory_id", int, "The memory's number.", {"minimum": 1, "maximum": MOST_ID})


class NewMemory(RequestBody):
    content: Annotated[str, Field(description="The text, 1 to 10,000 characters. One thought, in full sentences.")]
    type: Annotated[
        MemoryKind,
        Field(description="core: permanent, stands in every prompt. journal: fades from prompts after 7 days."),
    ] = "core"
    tags: Annotated[
        list[str],
        Field(default_factory=list, description="Up to 20 words. audio, somatic and voice protect from refinements."),
    ]


class SavedMemory(OneMemory):
    created: Annotated[
        bool, Field(description="false: you had this very core memory of today already; this is that one.")
    ]


class WantedMemories(QueryModel):
    type: Annotated[MemoryKind | None, Field(description="Only core or only journal; left out: both.")] = None
    after: Annotated[
        Annotated[int, Field(ge=1, le=MOST_ID), DIGITS] | None,
        Field(description="To go on: `next` of the page before."),
    ] = None
    limit: Annotated[int, Field(ge=1, le=MOST, description="How many at most."), DIGITS] = USUAL


class Erasing(RequestBody):
    reason: Annotated[
        str, Field(max_length=LONGEST_REASON, description="Why, for the audit log, where admins read it. Not sealed.")
    ] = ""


class Memories(ResponseModel):
    memories: list[OneMemory]
    next: Annotated[int | None, Field(description="Send it as `after` for the next page; null at the end.")]


class Search(QueryModel):
    query: Annotated[str, Field(min_length=1, max_length=1000, description="What the text must hold, in any case.")]
    type: Annotated[MemoryKind | None, Field(description="Only core or only journal; left out: both.")] = None
    limit: Annotated[int, Field(ge=1, le=MOST, description="How many at most."), DIGITS] = 50


class Found(ResponseModel):
    query: str
    count: Annotated[int, Field(description="How many hold it; `memories` has the newest of them.")]
    memories: list[OneMemory]


@operation("POST", "/memories", Scope.WRITE, statuses=(201, 200), quotes_memory=True)
def save_memory(caller: Caller, given: NewMemory) -> tuple[SavedMemory, int]:
    """Save one thing that you want to remember. A core memory that you have already, word for word and of the same day
    (UTC), is not written again: you are given that one. The same words on another day may be another event, and are a
    memory of their own until exact duplicates are removed; their date is kept then. Only admins and your refinements
    make a memory constitutional.
    """
    keys, kind = caller.keys_to_write, MemoryType(given.type)
    with writing():
        agent = Agent.lock(caller.agent_id)
        memory, created = Memory.save(agent, given.content, keys=keys, by=agent.as_actor, type_=kind, tags=given.tags)
    content = keys.reveal_memory(memory.id, memory.content)
    told = SavedMemory.of(memory, tokens=memory.token_estimate, content=content, created=created)
    return told, 201 if created else 200


@operation("GET", "/memories", Scope.READ)
def list_memories(caller: Caller, given: WantedMemories) -> Memories:
    """Your active memories with their text, oldest first, in pages."""
    keys, kind = caller.keys, MemoryType(given.type) if given.type else None
    found, following = _read_page(caller.agent_id, kind, given.after, given.limit)
    return Memories(memories=[_reveal_memory(memory, keys) for memory in found], next=following)


@operation("GET", "/memories/search", Scope.READ)
def search_memories(caller: Caller, given: Search) -> Found:
    """Find your active memories by a part of their text, in any case; the newest first."""
    if is_blank(given.query):
        raise Invalid("The query is blank; say what the text must hold.")
    keys, kind = caller.keys, MemoryType(given.type) if given.type else None
    wanted, hits = given.query.casefold(), []
    for memory in _read_all_memories(caller.agent_id, kind):
        content = keys.reveal_memory(memory.id, memory.content)
        if wanted in content.casefold():
            hits.append((memory, content))
    newest = [OneMemory.reveal(memory, content) for memory, content in hits[::-1][: given.limit]]
    return Found(query=given.query, count=len(hits), memories=newest)


@operation("GET", "/memories/{memory_id}", Scope.READ, at=ID)
def get_memory(caller: Caller, memory_id: int) -> OneMemory:
    """One of your active memories, by the number that lists and searches show."""
    keys = caller.keys
    found = SealedRow.load(Memory.active(caller.agent_id).where(Memory.id == memory_id))
    if not found:  # another agent's, a discarded one and none at all are alike
        erasing.check_not_erased(caller.agent_id, memory_id)
        raise NotFound(f"You have no active memory {memory_id}.")
    return _reveal_memory(found[0], keys)


@operation("POST", "/memories/{memory_id}/erase", Scope.DECIDE, at=ID, destroys=True)
def erase_memory(caller: Caller, memory_id: int, given: Erasing) -> ErasedMemory:
    """Erase one of your memories for good, a discarded one too: its text, of all its states, is removed, and nobody can
    ever read it again, not you either. Nothing undoes it. The audit log keeps that you did it, and when. What your
    refinements made from it stays and is named, so that you can erase that too. At most 10 in 24 hours, and none while
    a refinement is open. A constitutional one only an admin can release first.
    """
    receipt = erasing.erase_memory(
        caller.agent_id, memory_id, by=caller.actor(), reason=given.reason, signer=caller.signer
    )
    queue.enqueue_renewal(caller.agent_id)
    return ErasedMemory(**receipt.as_json())


def _read_page(
    agent_id: int, kind: MemoryType | None, after: int | None, limit: int
) -> tuple[Sequence[SealedRow], int | None]:
    """Active memories, oldest first, from behind the memory `after` on; and the id to go on from. Raises Invalid.

    A memory that was discarded meanwhile still marks its place.
    """
    position = OLDEST_MEMORIES.require("after", after, Memory.agent_id == agent_id)
    found, last = cut_page(SealedRow.load(OLDEST_MEMORIES.page(Memory.active(agent_id, kind), limit, position)), limit)
    return found, last.id if last else None


def _read_all_memories(agent_id: int, kind: MemoryType | None) -> Iterator[SealedRow]:
    """In batches, with no transaction open in between."""
    after: int | None = None
    while True:
        found, after = _read_page(agent_id, kind, after, BATCH)
        end_reading()
        yield from found
        if after is None:
            return


def _reveal_memory(memory: SealedRow, keys: AgentKeys) -> OneMemory:
    return OneMemory.reveal(memory, keys.reveal_memory(memory.id, memory.content))
