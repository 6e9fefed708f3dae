"""Erasing one memory for good: the texts, hashes and key of all its states are removed. Nothing undoes it.

The log goes on proving itself, because it covers digests: it still says who erased what, and when.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import and_, delete, func, select, update
from sqlalchemy.orm import aliased

from app.errors import Invalid, Refused, WhetstoneError
from app.extensions import db, now, writing
from app.keys.rotation import make_new_data_key
from app.models import (
    AccessGrant,
    AccessView,
    Action,
    Actor,
    ActorKind,
    Agent,
    AuditLog,
    ContentKey,
    IdempotencyKey,
    InstallationMark,
    Memory,
    MemoryState,
    MemoryText,
    Refinement,
    record,
)
from app.models.asked_loss import drop_asked_words
from app.models.audit import queue_note_to_agent
from app.models.base import iso, lock_row, require_row
from app.models.declaring import declare
from app.models.installation import note_what_to_shred
from app.models.master_key import holds_master_key
from app.models.recall_probe import drop_probes
from app.models.second_reading import drop_reader_words
from app.models.statement import StatementKind
from app.silo import TokenKey
from app.values.plural import count_nouns
from app.values.text import clean_text

MOST_A_DAY = 10
"""That an agent itself can erase in 24 hours: so many can't be lost to one mistake."""

DAY = timedelta(hours=24)

LONGEST_REASON = 500

_DUE = "new_data_key:"
"""Marks of agents whose data key is to be replaced by a worker, because a process without keys erased a memory."""


@dataclass(frozen=True)
class Erasure:
    """The receipt: what the log says of one memory that is gone.

    `states` counts the states whose text it was. `made` are memories that refinements made from it, directly or not;
    `copies` are memories that hold or held the very same words. Neither is erased with it.
    """

    memory_id: int
    at: datetime
    by: str
    reason: str
    states: int
    made: Sequence[int]
    copies: Sequence[int]
    entry: int
    entry_hash: str

    @classmethod
    def of(cls, entry: AuditLog) -> Erasure:
        data = entry.data
        return cls(
            memory_id=data["id"],
            at=entry.at,
            by=entry.actor,
            reason=data.get("reason", ""),
            states=data["states"],
            made=data["made"],
            copies=data["copies"],
            entry=entry.id,
            entry_hash=entry.hash.hex(),
        )

    @classmethod
    def find(cls, agent_id: int, memory_id: int) -> Erasure | None:
        """That of a memory of this agent, if it was erased."""
        mine = (Memory.agent_id == agent_id, Memory.id == memory_id, Memory.erased_at.is_not(None))
        erasing = and_(AuditLog.agent_id == Memory.agent_id, AuditLog.at == Memory.erased_at)
        query = select(AuditLog).join(Memory, erasing).where(*mine, AuditLog.action == Action.ERASE)
        entry = db.session.scalar(query.where(AuditLog.subject == f"memory:{memory_id}").limit(1))
        return None if entry is None else cls.of(entry)

    @property
    def sentence(self) -> str:
        """Who erased it, and what of it may still stand elsewhere."""
        kind, _, name = self.by.partition(":")
        who = f"the {name}" if kind == ActorKind.SYSTEM else name
        named = [f"Memory {self.memory_id} was erased for good by {who} on {self.at:%Y-%m-%d %H:%M} UTC."]
        if self.made:
            named.append(f"Made from it, and still there: {_numbers(self.made)}.")
        if self.copies:
            named.append(f"The same words stand in: {_numbers(self.copies)}.")
        return " ".join(named)

    def as_json(self) -> dict[str, Any]:
        """What programs rely on."""
        about = {"id": self.memory_id, "erased_at": iso(self.at), "by": self.by, "reason": self.reason or None}
        left = {"states": self.states, "made": list(self.made), "copies": list(self.copies)}
        return about | left | {"entry": self.entry, "entry_hash": self.entry_hash}


class MemoryErased(WhetstoneError):
    """The memory was erased for good."""

    code = "memory_erased"
    http_status = 410
    exit_status = 3

    def __init__(self, receipt: Erasure) -> None:
        super().__init__(receipt.sentence)
        self.receipt = receipt.as_json()


class TooManyErasures(Refused):
    """An agent has erased as many memories as it can in one day."""

    code = "too_many_erasures"


def check_not_erased(agent_id: int, memory_id: int) -> None:
    """Raises MemoryErased, with the receipt."""
    receipt = Erasure.find(agent_id, memory_id)
    if receipt is not None:
        raise MemoryErased(receipt)


def erase_memory(
    agent_id: int,
    memory_id: int,
    *,
    by: Actor,
    reason: object = "",
    signer: TokenKey | None = None,
    is_again: bool = False,
) -> Erasure:
    """Remove all that a memory ever said, in one transaction with its entry; then `shredding.shred` cleans the disk.

    An active one is discarded by it. The agent gets a new data key: at once where the master key is at hand, else by a
    worker (`renew_data_key`). `signer` is the agent's token that decided it; `is_again`: it was erased before, and a
    backup brought it back. Raises NotFound, MemoryErased, Refused,
    Invalid or AgentForgotten.
    """
    words = _clean_reason(reason)
    with writing():
        agent = Agent.lock(agent_id)
        agent.check_not_forgotten()
        memory = _lock_memory(agent, memory_id)
        if not is_again:
            _check_allowed(agent, memory, by)
        data = {"id": memory.id, **find_remains(agent.id, memory.id)} | ({"reason": words} if words else {})
        written = [memory] if memory.is_active else []
        if written:
            memory.discard(agent)
        entry = record(Action.ERASE, actor=by, of=agent, subject=f"memory:{memory.id}", data=data, memories=written)
        memory.erased_at = entry.at
        _remove_content(memory)
        queue_note_to_agent(entry)
        receipt = Erasure.of(entry)
        said = {"by": receipt.by, "reason": receipt.reason or None, "states": receipt.states, "made": receipt.made}
        declare(StatementKind.ERASURE, agent, f"memory:{memory.id}", said, signer=signer)
        db.session.flush()
        _make_or_order_data_key(agent, by)
        note_what_to_shred()
        agent.announce("erased", memory=memory.id)
    return receipt


def find_remains(agent_id: int, memory_id: int) -> dict[str, Any]:
    """As in `Erasure`: how many states a memory of the agent has, what was made from it, and copies of its words."""
    states = db.session.scalar(select(func.count()).where(MemoryState.memory_id == memory_id)) or 0
    return {"states": states, "made": _made_from(agent_id, memory_id), "copies": _copies_of(agent_id, memory_id)}


def find_due_data_keys() -> list[int]:
    """Ids of agents of which a memory was erased by a process that could not replace the data key."""
    query = select(InstallationMark.name).where(InstallationMark.name.startswith(_DUE)).order_by(InstallationMark.at)
    return [int(name.removeprefix(_DUE)) for name in db.session.scalars(query)]


def renew_data_key(agent_id: int, *, by: Actor) -> None:
    """Replace the data key that is due, by a worker. Does nothing when another one was first."""
    with writing():
        agent = Agent.lock(agent_id)
        if InstallationMark.read(f"{_DUE}{agent_id}") is None:
            return
        InstallationMark.drop(f"{_DUE}{agent_id}")
        if agent.forgotten_at is None:
            make_new_data_key(agent, by=by)
            note_what_to_shred()


def _clean_reason(reason: object) -> str:
    """On one line; none is allowed. Raises Invalid."""
    cleaned = " ".join(clean_text(reason, what="reason").split())
    if len(cleaned) > LONGEST_REASON:
        raise Invalid(f"The reason must have at most {LONGEST_REASON} characters.", "Nothing was erased.")
    return cleaned


def _lock_memory(agent: Agent, memory_id: int) -> Memory:
    query = select(Memory).where(Memory.agent_id == agent.id, Memory.id == memory_id)
    memory = require_row(db.session.scalar(lock_row(query)), f"{agent.name} has no memory {memory_id}.")
    check_not_erased(agent.id, memory.id)
    return memory


def _check_allowed(agent: Agent, memory: Memory, by: Actor) -> None:
    running = Refinement.open_of(agent.id)
    if running is not None:
        raise Refused(
            f"Refinement {running.id} is open; meanwhile no memory is erased. Wait for its end, or have it stopped.",
            "Nothing was erased.",
        )
    if memory.constitutional:
        raise Refused(
            f"Memory {memory.id} is constitutional: an admin has to take that back first.", "Nothing was erased."
        )
    if by.kind == ActorKind.AGENT and _erased_today(agent) >= MOST_A_DAY:
        raise TooManyErasures(
            f"You erased {count_nouns(MOST_A_DAY, 'memory')} within 24 hours; more can wait until tomorrow.",
            "Nothing was erased.",
        )


def _erased_today(agent: Agent) -> int:
    recent = (AuditLog.agent_id == agent.id, AuditLog.at > now() - DAY, AuditLog.action == Action.ERASE)
    query = select(func.count()).where(*recent, AuditLog.actor_kind == ActorKind.AGENT)
    return db.session.scalar(query) or 0


def _made_from(agent_id: int, memory_id: int) -> list[int]:
    """What refinements made of it: the results of consolidations, and of these again."""
    found: set[int] = set()
    wanted = {memory_id}
    while wanted:
        query = (
            select(AuditLog.data)
            .join(MemoryState, MemoryState.entry_id == AuditLog.id)
            .where(AuditLog.agent_id == agent_id, AuditLog.action == Action.REFINEMENT_CONSOLIDATE)
            .where(MemoryState.memory_id.in_(wanted))
        )
        entries = db.session.scalars(query).all()
        made = {int(each["id"]) for each in entries if wanted & set(each["sources"])}
        wanted = made - found - {memory_id}
        found |= wanted
    return _not_erased(found)


def _copies_of(agent_id: int, memory_id: int) -> list[int]:
    """Other memories of the agent of which some state says what some state of this one says, to the letter."""
    other = aliased(MemoryText)
    same = and_(other.agent_id == agent_id, other.content_hash == MemoryText.content_hash)
    query = select(other.memory_id).join(MemoryText, same).where(MemoryText.memory_id == memory_id)
    return sorted(set(db.session.scalars(query)) - {memory_id})


def _not_erased(ids: set[int]) -> list[int]:
    query = select(Memory.id).where(Memory.id.in_(ids), Memory.erased_at.is_(None))
    return sorted(db.session.scalars(query)) if ids else []


def _remove_content(memory: Memory) -> None:
    """The texts, hashes and key of all states; stored answers, questions, probes and a second reader's words that quote
    one; and what waits for a look's page."""
    for model in (MemoryText, ContentKey):
        db.session.execute(delete(model).where(model.memory_id == memory.id))
    drop_reader_words(memory.id)
    drop_probes(memory.id)
    drop_asked_words(memory.id)
    answers = update(IdempotencyKey).where(IdempotencyKey.memory_id == memory.id).values(answer=None)
    looks = select(AccessGrant.id).where(AccessGrant.agent_id == memory.agent_id)
    views = update(AccessView).where(AccessView.grant_id.in_(looks), AccessView.sealed.is_not(None))
    for statement in (answers, views.values(sealed=None)):
        db.session.execute(statement.execution_options(synchronize_session=False))


def _make_or_order_data_key(agent: Agent, by: Actor) -> None:
    """With it, a copy of the old one opens no content key that stands in the database from now on."""
    if holds_master_key():
        make_new_data_key(agent, by=by)
    else:
        InstallationMark.write(f"{_DUE}{agent.id}")


def _numbers(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))
