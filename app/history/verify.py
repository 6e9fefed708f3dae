"""Verify: proves that the log was not altered and that it explains every memory, flag and total as it stands now.

Two passes an agent, each over rows in order and in constant memory: the chain (every entry's hash, with the states that
it wrote), then the replay (the newest state of every memory against its row, and their sum against the totals).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select, text

from app.extensions import db, is_sqlite, release
from app.models import Account, Agent, AuditLog, Memory, MemoryState, MemoryType
from app.models.memory import STATE_FIELDS

BATCH = 500


@dataclass(frozen=True)
class Verdict:
    """`entries` counts what was read; `first_problem` is a sentence that names the first difference, if any."""

    ok: bool
    entries: int
    first_problem: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {"ok": self.ok, "entries": self.entries, "first_problem": self.first_problem}


class _Difference(Exception):
    """The first difference, as a sentence without content."""


class _Checker:
    def __init__(self) -> None:
        self.entries = 0


def verify(agent: Agent | None = None) -> Verdict:
    """Check one agent, or every chain, memory and total, in one consistent snapshot; writes nothing."""
    agent_id = agent.id if agent else None
    release()
    if not is_sqlite(db.session()):
        db.session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
    checked = _Checker()
    try:
        _verify(checked, agent_id)
    except _Difference as found:
        return Verdict(False, checked.entries, str(found))
    finally:
        release()
    return Verdict(True, checked.entries)


def _verify(checked: _Checker, agent_id: int | None) -> None:
    query = select(Agent).order_by(Agent.id)
    for agent in db.session.scalars(query if agent_id is None else query.where(Agent.id == agent_id)).all():
        _check_chain(checked, agent)
        _check_memories(agent)
        db.session.expunge_all()
    if agent_id is None:
        for account in db.session.scalars(select(Account).order_by(Account.id)).all():
            _check_chain(checked, account)
        _check_strays()


def _check_chain(checked: _Checker, of: Agent | Account) -> None:
    """Sequence without gaps, each hash over what is stored and the hash before it, and the head as the row says."""
    sequence, head = 0, b""
    for entry, states in _entries(of.chain):
        sequence += 1
        checked.entries += 1
        if entry.sequence != sequence:
            raise _Difference(
                f"{of.chain}: entry {sequence} is missing; entry id {entry.id} has number {entry.sequence}."
            )
        if entry.previous_hash != head:
            raise _Difference(f"{of.chain}: entry {sequence} (id {entry.id}) does not follow from the entry before it.")
        if (entry.account_id, entry.agent_id) != of.audited_as:
            raise _Difference(f"{of.chain}: entry {sequence} (id {entry.id}) names another account or agent.")
        if entry.digest(states) != entry.hash:
            raise _Difference(f"{of.chain}: entry {sequence} (id {entry.id}) was altered: its hash does not match.")
        head = entry.hash
    if (sequence, head) != (of.audit_sequence, of.audit_head):
        raise _Difference(f"{of.chain}: the log ends at entry {sequence}, but {of.audit_sequence} were written.")


def _entries(chain: str) -> Iterator[tuple[AuditLog, list[MemoryState]]]:
    """Entries with their states, in order, batch by batch."""
    after = 0
    while batch := _batch(chain, after):
        states = defaultdict(list)
        written = select(MemoryState).where(MemoryState.entry_id.in_([entry.id for entry in batch]))
        for state in db.session.scalars(written.order_by(MemoryState.memory_id)):
            states[state.entry_id].append(state)
        for entry in batch:
            yield entry, states[entry.id]
        after = batch[-1].sequence
        db.session.expunge_all()


def _batch(chain: str, after: int) -> Sequence[AuditLog]:
    query = select(AuditLog).where(AuditLog.chain == chain, AuditLog.sequence > after)
    return db.session.scalars(query.order_by(AuditLog.sequence, AuditLog.id).limit(BATCH)).all()


def _check_memories(agent: Agent) -> None:
    """Every memory is what the newest entry that wrote it says, and together they weigh what the agent's row says."""
    totals = {"core_token_usage": 0, "core_count": 0, "journal_count": 0}
    for memory, newest in _memories(agent):
        _check_memory(agent, memory, newest)
        if memory.discarded_at is None and memory.type == MemoryType.CORE:
            totals["core_token_usage"] += memory.token_estimate
            totals["core_count"] += 1
        elif memory.discarded_at is None:
            totals["journal_count"] += 1
    for name, counted in totals.items():
        if getattr(agent, name) != counted:
            raise _Difference(f"{agent.chain}: {name} is {getattr(agent, name)}, but the memories make {counted}.")


def _memories(agent: Agent) -> Iterator[tuple[Memory, MemoryState | None]]:
    after = 0
    while True:
        query = select(Memory).where(Memory.agent_id == agent.id, Memory.id > after).order_by(Memory.id).limit(BATCH)
        batch = db.session.scalars(query).all()
        if not batch:
            return
        newest = _newest_states([memory.id for memory in batch])
        for memory in batch:
            yield memory, newest.get(memory.id)
        after = batch[-1].id
        db.session.expunge_all()


def _newest_states(ids: list[int]) -> dict[int, MemoryState]:
    rows = db.session.scalars(select(MemoryState).where(MemoryState.memory_id.in_(ids)).order_by(MemoryState.entry_id))
    return {state.memory_id: state for state in rows}


def _check_memory(agent: Agent, memory: Memory, newest: MemoryState | None) -> None:
    if newest is None:
        raise _Difference(f"{agent.chain}: memory {memory.id} is in no entry of the log.")
    if memory.entry_id != newest.entry_id:
        raise _Difference(f"{agent.chain}: memory {memory.id} does not name the newest entry that wrote it.")
    for field in STATE_FIELDS:
        if getattr(memory, field) != getattr(newest, field):
            raise _Difference(f"{agent.chain}: {field} of memory {memory.id} is not what the log says.")


def _check_strays() -> None:
    """Entries of chains, and states of entries, that belong to nobody."""
    known = {chain for (chain,) in db.session.execute(select(AuditLog.chain).distinct()).tuples()}
    mine = {f"agent:{uuid}" for uuid in db.session.scalars(select(Agent.uuid))}
    mine |= {f"account:{number}" for number in db.session.scalars(select(Account.id))}
    if known - mine:
        raise _Difference(f"The log has a chain of nobody: {sorted(known - mine)[0]}.")
    stray = db.session.scalar(
        text(
            "SELECT memory_id FROM memory_states s WHERE NOT EXISTS (SELECT 1 FROM audit_log a WHERE a.id = s.entry_id)"
            " OR NOT EXISTS (SELECT 1 FROM memories m WHERE m.id = s.memory_id) LIMIT 1"
        )
    )
    if stray is not None:
        raise _Difference(f"A state of memory {stray} belongs to no entry or to no memory.")
