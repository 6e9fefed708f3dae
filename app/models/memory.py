"""Memory: one sealed text of an agent, and the states that it has had."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ForeignKey, Index, LargeBinary, Select, String, bindparam, select, text
from sqlalchemy.orm import Mapped, mapped_column

from app.errors import NotFound, Refused
from app.extensions import db, now
from app.models.actor import Actor
from app.models.agent import Agent
from app.models.audit import Action, record
from app.models.base import Identity, Json, Model, SealedText, UtcDateTime, lock_row, reserve_ids
from app.silo import AgentKeys, Sealed
from app.tokens import estimate_tokens


class MemoryType(StrEnum):
    CORE = "core"
    JOURNAL = "journal"


STATE_FIELDS = (
    "type",
    "content",
    "token_estimate",
    "content_hash",
    "constitutional",
    "tags",
    "origin_at",
    "created_at",
    "updated_at",
    "discarded_at",
    "version",
)
"""All that exact restoration needs."""


class _StateColumns:
    type: Mapped[MemoryType] = mapped_column(String(8))
    content: Mapped[Sealed] = mapped_column(SealedText)
    token_estimate: Mapped[int]
    content_hash: Mapped[bytes] = mapped_column(LargeBinary(32))
    constitutional: Mapped[bool] = mapped_column(default=False)
    tags: Mapped[list[str]] = mapped_column(Json, default=list)
    origin_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
    discarded_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    version: Mapped[int] = mapped_column(default=1)


class Memory(_StateColumns, Model):
    """Soft-deleted (`discarded_at`) ones are kept for ever and never reach a prompt, a search, a count or a total.

    `version` counts changes and is restored with the rest by an undo. `entry_id` is the audit entry that wrote the
    present state. `immutable` says whether a tag forbids the Knife to touch it.
    """

    __tablename__ = "memories"
    __table_args__ = (
        Index(
            "ix_memories_active",
            "agent_id",
            "type",
            "origin_at",
            "id",
            sqlite_where=text("discarded_at IS NULL"),
            postgresql_where=text("discarded_at IS NULL"),
        ),
        Index(
            "ix_memories_changeable",
            "agent_id",
            sqlite_where=text("type = 'core' AND discarded_at IS NULL AND NOT constitutional AND NOT immutable"),
            postgresql_where=text("type = 'core' AND discarded_at IS NULL AND NOT constitutional AND NOT immutable"),
        ),
        Index(
            "ix_memories_duplicates",
            "agent_id",
            "content_hash",
            sqlite_where=text("type = 'core' AND discarded_at IS NULL"),
            postgresql_where=text("type = 'core' AND discarded_at IS NULL"),
        ),
    )

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"))
    immutable: Mapped[bool] = mapped_column(default=False)
    entry_id: Mapped[int | None] = mapped_column(Identity)

    @classmethod
    def active(cls, agent_id: int, type_: MemoryType | None = None) -> Select[Any]:
        """The agent's active memories, oldest first."""
        query = select(cls).where(cls.agent_id == agent_id, cls.discarded_at.is_(None))
        if type_ is not None:
            query = query.where(cls.type == type_)
        return query.order_by(cls.origin_at, cls.id)

    @classmethod
    def lock_active_core(cls, agent_id: int, ids: Sequence[int]) -> dict[int, Memory]:
        """The active core memories among `ids`, locked in the order of ids; what is missing is not the agent's."""
        found = db.session.scalars(_LOCK_ACTIVE_CORE, {"agent_id": agent_id, "ids": list(ids)})
        return {memory.id: memory for memory in found}

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
        type_: MemoryType = MemoryType.CORE,
        tags: Sequence[str] = (),
        origin_at: datetime | None = None,
        constitutional: bool = False,
        memory_id: int | None = None,
    ) -> Memory:
        """A new row and its weight in the agent's totals; the caller records it. `content` is clean already."""
        number = memory_id if memory_id is not None else reserve_ids(db.session(), "memories", 1)[0]
        moment = now()
        memory = cls(
            id=number,
            agent_id=agent.id,
            type=type_,
            content=keys.seal_memory(number, content),
            token_estimate=estimate_tokens(content),
            content_hash=keys.content_hash(content),
            constitutional=constitutional,
            tags=list(tags),
            immutable=agent.is_immutable(tags),
            origin_at=origin_at or moment,
            created_at=moment,
            updated_at=moment,
            version=1,
        )
        agent.weigh(added=memory)
        db.session.add(memory)
        return memory

    @property
    def is_active(self) -> bool:
        return self.discarded_at is None

    @property
    def is_core(self) -> bool:
        return self.type == MemoryType.CORE

    def rewrite(self, agent: Agent, content: str, *, keys: AgentKeys) -> None:
        """Give it another text; the caller records it."""
        self.become(
            agent,
            content=keys.seal_memory(self.id, content),
            token_estimate=estimate_tokens(content),
            content_hash=keys.content_hash(content),
            updated_at=now(),
            version=self.version + 1,
        )

    def discard(self, agent: Agent) -> None:
        """Soft-delete it; the caller records it."""
        moment = now()
        self.become(agent, discarded_at=moment, updated_at=moment, version=self.version + 1)

    def protect(self, agent: Agent, *, by: Actor) -> None:
        """Make it constitutional, by an admin. The caller has locked the agent, then this row."""
        if not self.constitutional:
            self._toggle(agent, True, by)

    def release(self, agent: Agent, *, by: Actor) -> None:
        """Take that back. Raises Refused while a refinement is open. The caller has locked the agent, then this row."""
        from app.models.refinement import Refinement

        if not self.constitutional:
            return
        running = Refinement.open_of(agent.id)
        if running is not None:
            raise Refused(
                f"Memory {self.id} stays constitutional while refinement {running.id} is open. Nothing was changed."
            )
        self._toggle(agent, False, by)

    def _toggle(self, agent: Agent, constitutional: bool, by: Actor) -> None:
        self.become(agent, constitutional=constitutional, updated_at=now(), version=self.version + 1)
        record(
            Action.CONSTITUTIONAL_TOGGLE,
            actor=by,
            of=agent,
            subject=f"memory:{self.id}",
            data={"id": self.id, "constitutional": constitutional},
            memories=[self],
        )
        agent.announce("toggled")

    def become(self, agent: Agent, **fields: Any) -> None:
        """Set state fields and keep the agent's totals true."""
        agent.weigh(removed=self)
        for field, value in fields.items():
            setattr(self, field, value)
        if "tags" in fields:
            self.immutable = agent.is_immutable(self.tags)
        agent.weigh(added=self)

    def state(self, *, kept: int | None = None) -> MemoryState:
        """A copy of its present state, to be kept with the audit entry that wrote it."""
        fields = {field: getattr(self, field) for field in STATE_FIELDS}
        return MemoryState(memory_id=self.id, previous_entry_id=self.entry_id, kept=kept, **fields)


_LOCK_ACTIVE_CORE = lock_row(
    select(Memory)
    .where(
        Memory.agent_id == bindparam("agent_id"),
        Memory.id.in_(bindparam("ids", expanding=True)),
        Memory.type == MemoryType.CORE,
        Memory.discarded_at.is_(None),
    )
    .order_by(Memory.id)
)


class MemoryState(_StateColumns, Model):
    """What a memory became by one audit entry. Append-only. The state before is the row of `previous_entry_id`.

    Content is bound to the memory, not to the entry: an undo copies sealed bytes and needs no key. `kept` is what was
    left, after the entry, of the weight that the memory had when its refinement began, in tokens.
    """

    __tablename__ = "memory_states"

    memory_id: Mapped[int] = mapped_column(ForeignKey("memories.id"), primary_key=True, autoincrement=False)
    entry_id: Mapped[int] = mapped_column(ForeignKey("audit_log.id"), primary_key=True, autoincrement=False, index=True)
    previous_entry_id: Mapped[int | None] = mapped_column(Identity)
    kept: Mapped[int | None]

    def fields(self) -> dict[str, Any]:
        """The state, ready for `Memory.become`."""
        return {field: getattr(self, field) for field in STATE_FIELDS}

    def as_recorded(self) -> dict[str, Any]:
        """The state as plain JSON, sealed as stored: what the audit entry's hash covers."""
        said = {field: _plain(value) for field, value in self.fields().items()}
        return said | {"memory": self.memory_id, "previous_entry": self.previous_entry_id, "kept": self.kept}


def _plain(value: object) -> object:
    match value:
        case Sealed():
            return base64.b64encode(value.at_rest).decode()
        case bytes():
            return value.hex()
        case datetime():
            return value.astimezone(UTC).isoformat()
        case _:
            return value
