"""The replay of memories: every state that the entries wrote, in order, and what it comes to, against the rows.

Each step is a statement that finds a difference where the rows are: no row's bytes are brought here, so that memory
stays constant, and damaged bytes differ instead of failing to load. It goes through a log block by block, always along
the same indexes: over a whole log at once, the database's guess of a way may be one that never ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    Text,
    and_,
    bindparam,
    case,
    cast,
    exists,
    false,
    func,
    or_,
    select,
    true,
    union_all,
)
from sqlalchemy.orm import aliased

from app.extensions import db
from app.history.chain import Difference, chain_of, differences_of, numbered_entry
from app.models import (
    Account,
    Agent,
    AuditLog,
    ContentKey,
    InstallationMark,
    Memory,
    MemoryState,
    MemoryText,
    MemoryType,
)
from app.models.memory_text import is_text_of
from app.models.state import NO_EARLIER_STATE, STATE_FIELDS

BLOCK = 500
"""Entries."""


def check_memories(agent: Agent) -> None:
    """Every state, then every memory, then the totals, against the log. Raises Difference."""
    totals = Counter[str]()
    for first in range(1, agent.audit_sequence + 1, BLOCK):
        block = _Block(agent, first)
        block.check_order()
        block.check_foreign()
        block.check_copies()
        block.check_rows()
        block.check_texts()
        block.check_immutable()
        totals += block.totals()
    for memory_id in db.session.scalars(_unexplained_memory(), {"agent_id": agent.id}):
        raise Difference(f"memory {memory_id} is in no entry of the log.")
    for name in ("core_token_usage", "core_count", "journal_count"):
        if getattr(agent, name) != totals[name]:
            raise Difference(f"{name} is {getattr(agent, name)}, but the memories make {totals[name]}.")


@cache
def _unexplained_memory() -> Select[Any]:
    mine = (Memory.agent_id == bindparam("agent_id"), Memory.discarded_at.is_(None))
    return select(Memory.id).where(*mine, ~_is_written()).order_by(Memory.id).limit(1)


def check_strays() -> None:
    """Raises Difference for the first agent, chain, memory or state that belongs to nothing: no replay meets those."""
    for uuid in db.session.scalars(_homeless_agent()):
        raise Difference(f"agent:{uuid} belongs to no account.")
    _check_chains()
    for memory_id in db.session.scalars(_homeless_memory()):
        raise Difference(f"Memory {memory_id} belongs to no agent.")
    check_unexplained()
    for what, query in _of_no_memory().items():
        for memory_id in db.session.scalars(query):
            raise Difference(f"A {what} of memory {memory_id} has no memory.")
    for what, query in _stray_states().items():
        for memory_id, entry_id in db.session.execute(query).tuples():
            raise Difference(f"A state of memory {memory_id} by entry id {entry_id} has no {what}.", entry_id)


@cache
def _homeless_agent() -> Select[Any]:
    return select(Agent.uuid).where(~exists().where(Account.id == Agent.account_id)).order_by(Agent.id).limit(1)


@cache
def _homeless_memory() -> Select[Any]:
    return select(Memory.id).where(~exists().where(Agent.id == Memory.agent_id)).order_by(Memory.id).limit(1)


@cache
def _of_no_memory() -> dict[str, Select[Any]]:
    owners = {"text": MemoryText.memory_id, "content key": ContentKey.memory_id}
    return {what: select(owner).where(~exists().where(Memory.id == owner)).limit(1) for what, owner in owners.items()}


@cache
def _stray_states() -> dict[str, Select[Any]]:
    owners = {"entry": AuditLog.id == MemoryState.entry_id, "memory": Memory.id == MemoryState.memory_id}
    found = select(MemoryState.memory_id, MemoryState.entry_id).order_by(MemoryState.entry_id).limit(1)
    return {what: found.where(~exists().where(is_owner)) for what, is_owner in owners.items()}


def check_unexplained(whose: ColumnElement[bool] | None = None) -> None:
    """Raises Difference for the first memory of `whose` agents (all, unless given) that no entry wrote.

    The replay finds the active ones by an index. Those that were put in as discarded nothing shows, and the whole table
    is gone through for them: so this is asked once, and not for every agent.
    """
    query = select(Memory.id, Memory.agent_id).join(Agent, Agent.id == Memory.agent_id)
    unexplained = query.where(true() if whose is None else whose, ~_is_written())
    for memory_id, agent_id in db.session.execute(unexplained.order_by(Memory.id).limit(1)).tuples():
        with differences_of(db.session.get_one(Agent, agent_id)):
            raise Difference(f"memory {memory_id} is in no entry of the log.")


def _check_chains() -> None:
    chain = db.session.scalar(_chain_of_nobody())
    if chain is not None:
        entry_id = db.session.scalar(select(func.min(AuditLog.id)).where(AuditLog.chain == chain))
        raise Difference(f"The log has a chain of nobody, {chain}: its first entry is id {entry_id}.", entry_id)


@cache
def _chain_of_nobody() -> Select[Any]:
    owned = union_all(select(chain_of(Agent)), select(chain_of(Account)))
    chains = select(AuditLog.chain).distinct().subquery()
    return select(func.min(chains.c.chain)).where(chains.c.chain.not_in(owned))


class _Block:
    """Some entries of an agent's chain, from a number on, and the states that they wrote."""

    def __init__(self, agent: Agent, first: int) -> None:
        self._agent = agent
        self._values = {"chain": agent.chain, "agent_id": agent.id, "first": first, "behind": first + BLOCK}

    def check_order(self) -> None:
        """Each state names the one before it, a memory's first one names none, and all are of memories of the agent."""
        for sequence, entry_id, memory_id, foreign in self._find(_states_out_of_order()):
            told = "which the agent does not have" if foreign else "but not from the state that it had before"
            raise Difference(f"{numbered_entry(sequence, entry_id)} wrote memory {memory_id}, {told}.", entry_id)

    def check_foreign(self) -> None:
        """No memory that began here has a state from outside of the agent's log."""
        for memory_id, entry_id in self._find(_foreign_states()):
            raise Difference(f"memory {memory_id} has a state of entry id {entry_id}, which is not in this chain.")

    def check_copies(self) -> None:
        """What a reversal wrote is what it says: a copy of the state that it names, or a removed memory's last state.

        The entry's hash covers the name of the copied state; the copied state is covered by its own entry's hash.
        """
        for sequence, entry_id, memory_id in self._find(_states_that_are_no_copies()):
            entry = numbered_entry(sequence, entry_id)
            raise Difference(f"{entry} gave memory {memory_id} another state than the one that it names.", entry_id)

    def check_rows(self) -> None:
        """Every memory that was written here last is what that entry says."""
        for sequence, entry_id, memory_id, stale, *others in self._find(_rows_that_differ()):
            entry = numbered_entry(sequence, entry_id)
            name = next((name for name, other in zip(STATE_FIELDS, others, strict=True) if other), None)
            if stale or name is None:
                raise Difference(f"memory {memory_id} does not name {entry}, which wrote it last.", entry_id)
            raise Difference(f"{name} of memory {memory_id} is not what {entry} wrote.", entry_id)

    def check_texts(self) -> None:
        """Every state that began something here has the text that it names, and every memory the key to it.

        Those that were erased have neither: `ReplayedErasures` looks at them.
        """
        found = self._find(_wrong_texts(needs_keys=self._agent.forgotten_at is None))
        for sequence, entry_id, memory_id, gone, foreign, locked in found:
            what = "gone" if gone else "another agent's" if foreign else "without its key" if locked else "altered"
            entry = numbered_entry(sequence, entry_id)
            raise Difference(f"the text of memory {memory_id} that {entry} wrote is {what}.", entry_id)

    def check_immutable(self) -> None:
        """The flag follows from the tags: those that count now, or that counted when all flags were last set."""
        counted = set((InstallationMark.read("immutable_tags") or "").split(","))
        for memory_id, tags, immutable in db.session.execute(_tagged_memories(), self._values).tuples():
            if immutable not in (self._agent.is_immutable(tags), any(tag.lower() in counted for tag in tags)):
                raise Difference(f"the flag immutable of memory {memory_id} is not what its tags say.")

    def totals(self) -> Counter[str]:
        """What the memories that were written here last make of the agent's totals."""
        return Counter(db.session.execute(_counted_memories(), self._values).mappings().one())

    def _find(self, query: Select[Any]) -> Any:
        """The first one, or none. Without LIMIT: a database would rather look through everything in order for it."""
        found = db.session.execute(query, self._values).first()
        return [] if found is None else [found]


# Of a block, in order of entries and memories. To make one of these takes longer than to run it where little is found:
# each is made once, and gets the block's values.

_IS_HERE = and_(
    AuditLog.chain == bindparam("chain"),
    AuditLog.sequence >= bindparam("first"),
    AuditLog.sequence < bindparam("behind"),
)


@cache
def _states_out_of_order() -> Select[Any]:
    earlier = aliased(MemoryState)
    is_earlier = and_(earlier.memory_id == MemoryState.memory_id, earlier.entry_id < MemoryState.entry_id)
    before = select(func.max(earlier.entry_id)).where(is_earlier).scalar_subquery()
    is_foreign = Memory.agent_id.is_distinct_from(bindparam("agent_id"))
    return (
        _select_states(AuditLog.sequence, AuditLog.id, MemoryState.memory_id, is_foreign)
        .outerjoin(Memory, Memory.id == MemoryState.memory_id)
        .where(or_(MemoryState.previous_entry_id.is_distinct_from(before), is_foreign))
        .order_by(*_IN_ORDER)
    )


@cache
def _foreign_states() -> Select[Any]:
    state, entry = aliased(MemoryState), aliased(AuditLog)
    return (
        _select_states(state.memory_id, state.entry_id)
        .join(state, state.memory_id == MemoryState.memory_id)
        .outerjoin(entry, entry.id == state.entry_id)
        .where(MemoryState.previous_entry_id.is_(None), entry.chain.is_distinct_from(bindparam("chain")))
        .order_by(*_IN_ORDER)
    )


@cache
def _states_that_are_no_copies() -> Select[Any]:
    source = aliased(MemoryState)
    is_taken = MemoryState.restores_entry_id == NO_EARLIER_STATE
    named_entry = case((is_taken, MemoryState.previous_entry_id), else_=MemoryState.restores_entry_id)
    is_other = _differing_columns(MemoryState, source, [each for each in STATE_FIELDS if each not in _TAKEN_FIELDS])
    is_no_copy = _differing_columns(MemoryState, source, _COPIED_FIELDS)
    is_not_taken = [
        MemoryState.constitutional,
        MemoryState.discarded_at.is_(None),
        MemoryState.updated_at.is_distinct_from(MemoryState.discarded_at),
        MemoryState.version.is_distinct_from(source.version + 1),
    ]
    wrong = or_(
        source.entry_id.is_(None),
        MemoryState.kept.is_not(None),
        *is_other,
        and_(is_taken, or_(*is_not_taken)),
        and_(~is_taken, or_(source.restores_entry_id != NO_EARLIER_STATE, *is_no_copy)),
    )
    return (
        _select_states(AuditLog.sequence, AuditLog.id, MemoryState.memory_id)
        .outerjoin(source, and_(source.memory_id == MemoryState.memory_id, source.entry_id == named_entry))
        .where(MemoryState.restores_entry_id.is_not(None), wrong)
        .order_by(*_IN_ORDER)
    )


@cache
def _rows_that_differ() -> Select[Any]:
    is_stale = Memory.entry_id.is_distinct_from(MemoryState.entry_id)
    is_other = _differing_columns(Memory, MemoryState, STATE_FIELDS)
    query = _select_newest(AuditLog.sequence, AuditLog.id, MemoryState.memory_id, is_stale, *is_other)
    return query.where(or_(is_stale, *is_other)).order_by(*_IN_ORDER)


@cache
def _wrong_texts(*, needs_keys: bool) -> Select[Any]:
    """Of an agent that was not forgotten, each memory `needs_keys`."""
    is_gone, is_other = MemoryText.memory_id.is_(None), func.sha256(MemoryText.sealed) != MemoryText.content_digest
    is_foreign = or_(*(each.agent_id != bindparam("agent_id") for each in (MemoryText, ContentKey)))
    is_locked = ContentKey.memory_id.is_(None) if needs_keys else false()
    wrong = or_(is_gone, is_other, func.sha256(MemoryText.sealed).is_(None), is_foreign, is_locked)
    return (
        _select_states(AuditLog.sequence, AuditLog.id, MemoryState.memory_id, is_gone, is_foreign, is_locked)
        .outerjoin(MemoryText, is_text_of(MemoryState.memory_id, MemoryState.content_digest))
        .outerjoin(ContentKey, ContentKey.memory_id == MemoryState.memory_id)
        .join(Memory, Memory.id == MemoryState.memory_id)
        .where(MemoryState.restores_entry_id.is_(None), Memory.erased_at.is_(None), wrong)
        .order_by(*_IN_ORDER)
    )


@cache
def _tagged_memories() -> Select[Any]:
    tagged = or_(Memory.immutable, cast(Memory.tags, Text) != "[]")
    return _select_newest(Memory.id, Memory.tags, Memory.immutable).where(tagged)


@cache
def _counted_memories() -> Select[Any]:
    is_core = MemoryState.type == MemoryType.CORE
    counted = _select_newest(
        func.coalesce(func.sum(case((is_core, MemoryState.token_estimate), else_=0)), 0).label("core_token_usage"),
        func.coalesce(func.sum(case((is_core, 1), else_=0)), 0).label("core_count"),
        func.coalesce(func.sum(case((is_core, 0), else_=1)), 0).label("journal_count"),
    )
    return counted.where(MemoryState.discarded_at.is_(None))


_IN_ORDER = AuditLog.id, MemoryState.memory_id


def _select_states(*columns: Any) -> Select[Any]:
    written = select(*columns).select_from(AuditLog).join(MemoryState, MemoryState.entry_id == AuditLog.id)
    return written.where(_IS_HERE)


def _select_newest(*columns: Any) -> Select[Any]:
    """Of the memories that were written here last: the state, and the row."""
    later = aliased(MemoryState)
    is_old = exists().where(later.memory_id == MemoryState.memory_id, later.entry_id > MemoryState.entry_id)
    return _select_states(*columns).outerjoin(Memory, Memory.id == MemoryState.memory_id).where(~is_old)


_TAKEN_FIELDS = ("constitutional", "updated_at", "discarded_at", "version")
"""What taking a memory away changes."""

_COPIED_FIELDS = tuple(name for name in _TAKEN_FIELDS if name != "constitutional")
"""Of these, what a copy has like its source; the flag may be an admin's since."""


def _is_written() -> ColumnElement[bool]:
    """Whether an entry of its agent wrote a memory: a state alone, put in with it, explains nothing."""
    is_own = (AuditLog.id == MemoryState.entry_id, AuditLog.agent_id == Memory.agent_id)
    return exists().where(MemoryState.memory_id == Memory.id, *is_own)


def _differing_columns(one: Any, other: Any, names: Iterable[str]) -> list[ColumnElement[bool]]:
    return [_comparable_column(one, name).is_distinct_from(_comparable_column(other, name)) for name in names]


def _comparable_column(model: Any, name: str) -> ColumnElement[Any]:
    """PostgreSQL compares no JSON; its text was copied, or written by one and the same serialiser."""
    column: ColumnElement[Any] = getattr(model, name)
    return cast(column, Text) if name in ("tags", "other_dates") else column
