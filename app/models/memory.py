"""Memory: one sealed text of an agent, and the states that it has had."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from sqlalchemy import BindParameter, ForeignKey, Select, Table, and_, bindparam, select
from sqlalchemy.orm import Mapped, mapped_column

from app.errors import NotFound, Refused
from app.extensions import db, now
from app.models.agent import Agent
from app.models.audit import Action, queue_note_to_agent, record
from app.models.base import Identity, Model, Moment, lock_row, partial_index, read_locked
from app.models.keyset import Keyset
from app.models.memory_numbers import reserve_memory_ids
from app.models.memory_text import (
    ContentKey,
    MemoryText,
    add_first_text,
    content_columns,
    insert_further_text,
    is_text_of,
    join_content,
)
from app.models.refinement import Refinement
from app.models.state import MemoryState, MemoryType, Source, StateColumns
from app.plain_rows import make_row
from app.prepared import Prepared, one_of, spread
from app.silo import AgentKeys, SealedMemory
from app.values.actor import Actor
from app.values.dates import MOST_CARRIED_TAGS, MOST_DATES, TooManyDates, fit_one_memory
from app.values.merge_depth import MergeDepth
from app.values.text import clean_content, clean_tags
from app.values.token_mass import estimate_tokens

AT_ONCE = 10_000
"""Ids in one statement: no database takes any number."""


class _Weight(NamedTuple):
    """What a memory weighed before it changed."""

    is_active: bool
    type: str
    token_estimate: int


class Memory(StateColumns, Model):
    """Soft-deleted (`discarded_at`) ones are kept for ever and never reach a prompt, a search, a count or a total.

    `version` counts changes and is restored with the rest by an undo. `entry_id` is the audit entry that wrote the
    present state. `immutable` says whether a tag forbids the Knife to touch it. `erased_at`: all that it ever said was
    removed (`history/erasing`).
    """

    __tablename__ = "memories"
    __table_args__ = (
        partial_index("ix_memories_active", "agent_id", "type", "origin_at", "id", where="discarded_at IS NULL"),
        partial_index("ix_memories_erased", "agent_id", where="erased_at IS NOT NULL"),
        partial_index(
            "ix_memories_changeable",
            "agent_id",
            where="type = 'core' AND discarded_at IS NULL AND NOT constitutional AND NOT immutable",
        ),
    )

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"))
    immutable: Mapped[bool] = mapped_column(default=False)
    entry_id: Mapped[int | None] = mapped_column(Identity)
    erased_at: Mapped[Moment | None]

    if TYPE_CHECKING:
        _held: SealedMemory | None
    else:
        _held = None

    @classmethod
    def active(cls, agent_id: int | BindParameter[int], type_: MemoryType | None = None) -> Select[Any]:
        """The agent's active memories, oldest first."""
        query = select(cls).where(cls.agent_id == agent_id, cls.discarded_at.is_(None))
        if type_ is not None:
            query = query.where(cls.type == type_)
        return query.order_by(*OLDEST_MEMORIES.order)

    @classmethod
    def lock_active_core(cls, agent_id: int, ids: Sequence[int]) -> dict[int, Memory]:
        """The active core memories among `ids`, locked in the order of ids; what is missing is not the agent's."""
        found: dict[int, Memory] = {}
        if not ids:
            return found
        count, named = spread(ids)
        for memory, *sealed in read_locked(_lock_active_core(count), {"agent": agent_id, **named}, cls):
            memory._held, found[memory.id] = SealedMemory(*sealed), memory
        return found

    @classmethod
    def lock_core(cls, agent: Agent, memory_id: int) -> Memory:
        """One active core memory, for an admin's change. Raises NotFound."""
        found = cls.lock_active_core(agent.id, [memory_id])
        if not found:
            raise NotFound(f"{agent.name} has no active core memory {memory_id}.")
        return found[memory_id]

    @classmethod
    def write(
        cls,
        agent: Agent,
        content: str,
        *,
        keys: AgentKeys,
        source: str,
        type_: MemoryType = MemoryType.CORE,
        tags: Sequence[str] = (),
        origin_at: datetime | None = None,
        other_dates: Iterable[datetime] = (),
        constitutional: bool = False,
        memory_id: int | None = None,
    ) -> Memory:
        """A new row and its weight in the agent's totals; the caller records it. `content` is clean already.

        `source` is one of `Source`, of an import with its name.
        """
        number = reserve_memory_ids(1)[0] if memory_id is None else memory_id
        moment, sealed = now(), keys.seal_memory(number, content)
        values = {
            "id": number,
            "agent_id": agent.id,
            "type": type_,
            "content_digest": sealed.digest,
            "token_estimate": estimate_tokens(content),
            "constitutional": constitutional,
            "tags": list(tags),
            "immutable": agent.is_immutable(tags),
            "origin_at": origin_at or moment,
            "other_dates": sorted({*other_dates} - {origin_at or moment}),
            "merged_sources": 0,
            "merges": 0,
            "source": source,
            "created_at": moment,
            "updated_at": moment,
            "version": 1,
        }
        memory = make_row(cls, values)
        agent.weigh(added=[memory])
        db.session.add(memory)
        add_first_text(agent.id, number, sealed)
        memory._held = sealed
        return memory

    @classmethod
    def save(
        cls,
        agent: Agent,
        content: object,
        *,
        keys: AgentKeys,
        by: Actor,
        type_: MemoryType = MemoryType.CORE,
        tags: object = None,
    ) -> tuple[Memory, bool]:
        """What an agent saves itself, recorded; and whether it is new. The caller holds the agent's lock.

        An exact duplicate of an active core memory of the same day is not written: it answers with that one. Of
        another day it may be another event. Raises Invalid.
        """
        text_, cleaned = clean_content(content), clean_tags(tags)
        if type_ is MemoryType.CORE and (same := cls.same_core(agent.id, keys.content_hash(text_), now())) is not None:
            return same, False
        memory = cls.write(agent, text_, keys=keys, source=Source.AGENT, type_=type_, tags=cleaned)
        data = {"id": memory.id, "type": str(type_), "tokens": memory.token_estimate}
        record(Action.CREATE, actor=by, of=agent, subject=f"memory:{memory.id}", data=data, memories=[memory])
        agent.announce("remembered")
        return memory, True

    @classmethod
    def same_core(cls, agent_id: int, content_hash: bytes, at: datetime) -> Memory | None:
        """The active core memory of exactly this text and day (UTC): the constitutional one, else the earliest."""
        db.session.flush()
        copies = _SAME_CORE.fetch(db.session.connection(), {"agent": agent_id, "hash": content_hash})
        day = at.astimezone(UTC).date()
        same = (number for number, at, others in copies if day in {moment.date() for moment in (at, *others)})
        found = next(same, None)
        return None if found is None else db.session.get(cls, found, populate_existing=True)

    @property
    def is_active(self) -> bool:
        return self.discarded_at is None

    @property
    def is_core(self) -> bool:
        return self.type == MemoryType.CORE

    @property
    def dates(self) -> set[datetime]:
        """All that it speaks from."""
        return {self.origin_at, *self.other_dates}

    @property
    def content(self) -> SealedMemory:
        """What it says, sealed; read from the database unless this row has written or read it."""
        if self._held is None or self._held.digest != self.content_digest:
            self.hold_contents([self])
        return self._held or SealedMemory(None, None, None, self.content_digest)

    @classmethod
    def hold_contents(cls, memories: Iterable[Memory]) -> None:
        """Read at once what each of these says."""
        rows = {memory.id: memory for memory in memories}
        for start in range(0, len(rows), AT_ONCE):
            some = list(rows)[start : start + AT_ONCE]
            for number, sealed in cls.read_contents(select(cls).where(cls.id.in_(some))):
                rows[number]._held = sealed

    @classmethod
    def read_contents(cls, query: Select[Any]) -> Iterator[tuple[int, SealedMemory]]:
        """What each memory of a query says, sealed, by its id and in the query's order."""
        columns = query.with_only_columns(cls.id, *content_columns(cls.content_digest))
        for number, *sealed in db.session.execute(join_content(columns, cls.id, cls.content_digest)):
            yield number, SealedMemory(*sealed)

    def rewrite(self, agent: Agent, content: str, *, keys: AgentKeys) -> None:
        """Give it another text; the caller records it. Raises SealBroken."""
        sealed = keys.seal_memory(self.id, content, self.content.content_key)
        insert_further_text(agent.id, self.id, sealed)
        self._held = sealed
        self.become(
            agent,
            content_digest=sealed.digest,
            token_estimate=estimate_tokens(content),
            updated_at=now(),
            version=self.version + 1,
        )

    def promote(self, agent: Agent) -> None:
        """Let a journal entry become core, as it is; the caller records it."""
        self.become(agent, type=MemoryType.CORE, source=Source.PROMOTION, updated_at=now(), version=self.version + 1)

    def that_it_can_carry(self, others: Iterable[Memory]) -> list[Memory]:
        """Of these, in their order, those whose dates and tags it has room for."""
        dates, tags, found = self.dates, {*self.tags}, list[Memory]()
        for other in others:
            if fit_one_memory(dates | other.dates, tags | {*other.tags}):
                dates, tags = dates | other.dates, tags | {*other.tags}
                found.append(other)
        return found

    def merge(self, agent: Agent, sources: Sequence[Memory]) -> None:
        """Become what these were merged into: their dates, tags and merge depth. The caller records and discards them.

        Raises TooManyDates; nothing is changed then.
        """
        self._carry_on(agent, sources, MergeDepth.merged([source.merge_depth for source in sources]))

    def replace_copies(self, agent: Agent, copies: Sequence[Memory]) -> bool:
        """Stay in the place of exact copies, with their dates and tags; whether that changed it. See `take_over`.

        Its words are theirs, so its merge depth is that of the deepest. Nothing is added: the same words twice are no
        further source, and nothing was rewritten.
        """
        return self._carry_on(agent, copies, MergeDepth.deepest(memory.merge_depth for memory in (self, *copies)))

    def take_over(self, agent: Agent, others: Sequence[Memory]) -> bool:
        """Carry on the dates and tags of others whose content this one carries; whether that changed it.

        Its merge depth stays: nothing was written into it from the others, and its own words are as far from their
        sources as before. The caller records it. Raises TooManyDates; nothing is changed then.
        """
        return self._carry_on(agent, others, self.merge_depth)

    def _carry_on(self, agent: Agent, others: Sequence[Memory], depth: MergeDepth) -> bool:
        dates = self.dates.union(*(other.dates for other in others))
        tags = sorted({*self.tags}.union(*(other.tags for other in others)))
        if not fit_one_memory(dates, tags):
            raise TooManyDates(
                f"Together they carry {len(dates):,} dates and {len(tags):,} tags; one memory can carry {MOST_DATES:,} "
                f"dates and {MOST_CARRIED_TAGS:,} tags.",
                "Nothing was changed.",
            )
        other_dates = sorted(dates - {self.origin_at})
        if (other_dates, tags, depth) == (self.other_dates, self.tags, self.merge_depth):
            return False
        is_new = self.entry_id is None
        self.become(
            agent,
            other_dates=other_dates,
            tags=tags,
            merged_sources=depth.sources,
            merges=depth.merges,
            version=self.version + (not is_new),
        )
        return True

    def discard(self, agent: Agent) -> None:
        """Soft-delete it; the caller records it."""
        moment = now()
        self.become(agent, discarded_at=moment, updated_at=moment, version=self.version + 1)

    def protect(self, agent: Agent, *, by: Actor) -> None:
        """Make it constitutional, by an admin. The caller has locked the agent, then this row."""
        if not self.constitutional:
            self._set_constitutional(agent, True, by)

    def release(self, agent: Agent, *, by: Actor) -> None:
        """Take that back. Raises Refused while a refinement is open. The caller has locked the agent, then this row."""
        if not self.constitutional:
            return
        running = Refinement.open_of(agent.id)
        if running is not None:
            raise Refused(
                f"Memory {self.id} stays constitutional while refinement {running.id} is open.", "Nothing was changed."
            )
        self._set_constitutional(agent, False, by)

    def _set_constitutional(self, agent: Agent, constitutional: bool, by: Actor) -> None:
        self.become(agent, constitutional=constitutional, updated_at=now(), version=self.version + 1)
        subject, data = f"memory:{self.id}", {"id": self.id, "constitutional": constitutional}
        entry = record(Action.CONSTITUTIONAL_TOGGLE, actor=by, of=agent, subject=subject, data=data, memories=[self])
        queue_note_to_agent(entry)
        agent.announce("toggled")

    def become(self, agent: Agent, **fields: Any) -> None:
        """Set state fields and keep the agent's totals true."""
        before = _Weight(self.is_active, self.type, self.token_estimate)
        for field, value in fields.items():
            setattr(self, field, value)
        if "tags" in fields:
            self.immutable = agent.is_immutable(self.tags)
        agent.weigh(removed=[before], added=[self])

    def state(self, *, kept: int | None = None) -> MemoryState:
        """A copy of its present state, to be kept with the audit entry that wrote it."""
        ids = {"memory_id": self.id, "previous_entry_id": self.entry_id, "restores_entry_id": None}
        return make_row(MemoryState, {"kept": kept, **ids, **self.fields()})


_SAME_CORE = Prepared(
    select(Memory.id, Memory.origin_at, Memory.other_dates)
    .join(MemoryText, is_text_of(Memory.id, Memory.content_digest))
    .where(
        Memory.agent_id == bindparam("agent"),
        Memory.discarded_at.is_(None),
        Memory.type == MemoryType.CORE,
        MemoryText.agent_id == bindparam("agent"),
        MemoryText.content_hash == bindparam("hash"),
    )
    .order_by(Memory.constitutional.desc(), Memory.origin_at, Memory.id)
)

OLDEST_MEMORIES = Keyset((Memory.origin_at, Memory.id))

_MEMORIES, _TEXTS, _KEYS = (cast(Table, model.__table__) for model in (Memory, MemoryText, ContentKey))
_HAS_TEXT = and_(_TEXTS.c.memory_id == _MEMORIES.c.id, _TEXTS.c.content_digest == _MEMORIES.c.content_digest)


@cache
def _lock_active_core(count: int) -> Prepared:
    """Behind a memory's columns, what `SealedMemory` is made of: null where it is missing, and that does not open."""
    query = (
        select(*_MEMORIES.c, _TEXTS.c.sealed, _TEXTS.c.content_hash, _KEYS.c.sealed, _MEMORIES.c.content_digest)
        .select_from(_MEMORIES.outerjoin(_TEXTS, _HAS_TEXT).outerjoin(_KEYS, _KEYS.c.memory_id == _MEMORIES.c.id))
        .where(
            _MEMORIES.c.agent_id == bindparam("agent"),
            _MEMORIES.c.discarded_at.is_(None),
            _MEMORIES.c.type == MemoryType.CORE,
            one_of(_MEMORIES.c.id, count),
        )
        .order_by(_MEMORIES.c.id)
    )
    return Prepared(lock_row(query, of=_MEMORIES))
