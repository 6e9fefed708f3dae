"""Rows for tests, made through the same doors as the product's own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from app.extensions import db, now, writing
from app.models import (
    COMMAND_LINE,
    Account,
    Action,
    Agent,
    Memory,
    MemoryType,
    Mode,
    Refinement,
    Status,
    Trigger,
    make_keys,
    open_keys,
    record,
)
from app.refinement.dedup import remove_exact_duplicates
from app.refinement.erosion import brace
from app.refinement.guard import Claim, as_actor
from app.refinement.start import start
from app.refinement.tool import RefinementTool

HOME = 1
"""The id of the account that every template database has."""


def make_agent(name: str = "ezra", *, account_id: int = HOME, **fields: Any) -> Agent:
    """An agent with keys and no memories."""
    with writing():
        Account.lock(account_id)
        agent = Agent.create(
            account_id, name=name, model_id=fields.pop("model_id", "whetstone/offline"), by=COMMAND_LINE, **fields
        )
        make_keys(agent)
    return agent


def remember(
    agent: Agent,
    *contents: str,
    type_: MemoryType = MemoryType.CORE,
    constitutional: bool = False,
    tags: Iterable[str] = (),
) -> list[int]:
    """Save memories, an hour apart in origin, and return their ids."""
    with writing():
        locked = Agent.lock(agent.id)
        keys = open_keys(locked)
        first = now() - timedelta(days=30)
        memories = [
            Memory.write(
                locked,
                content,
                keys=keys,
                type_=type_,
                constitutional=constitutional,
                tags=list(tags),
                origin_at=first + timedelta(hours=locked.core_count + index),
            )
            for index, content in enumerate(contents)
        ]
        db.session.flush()
        record(Action.CREATE, actor=COMMAND_LINE, of=locked, subject=locked.subject, memories=memories)
    return [memory.id for memory in memories]


@dataclass
class Running:
    """A refinement in the middle of its loop, held by this test."""

    agent: Agent
    refinement: Refinement
    tool: RefinementTool
    claim: Claim = field(init=False)

    def __post_init__(self) -> None:
        self.claim = self.tool.claim

    def reload(self) -> Refinement:
        db.session.rollback()
        return db.session.get_one(Refinement, self.refinement.id, populate_existing=True)


def begin(
    agent: Agent, *, worker: str = "test", mode: Mode = Mode.FULL, deduplicate: bool = False, braced: bool = False
) -> Running:
    """Claim, skip the question, take the snapshot: what the process does before its loop.

    `deduplicate`: remove exact duplicates before; `braced`: under the erosion guard too.
    """
    refinement = start(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE, mode=mode)
    return proceed(refinement, worker=worker, deduplicate=deduplicate, braced=braced)


def proceed(
    refinement: Refinement, *, worker: str = "test", deduplicate: bool = False, braced: bool = False
) -> Running:
    """The same for one that is queued already."""
    with writing():
        row = Refinement.lock(refinement.id)
        locked = Agent.lock(row.agent_id)
        if deduplicate:
            remove_exact_duplicates(row, locked)
        entry = record(
            Action.REFINEMENT_SNAPSHOT, actor=COMMAND_LINE, of=locked, subject=row.subject, refinement_id=row.id
        )
        row.status, row.worker, row.snapshot_entry_id = Status.RUNNING, worker, entry.id
        row.mass_before = row.kept_mass = locked.core_token_usage
        row.started_at = now()
        if braced:
            row.snapshot_entry_id = None
            brace(row, locked)
            row.snapshot_entry_id = entry.id
        keys = open_keys(locked)
    return Running(locked, row, RefinementTool(Claim(row.id, worker), keys))


def promote(agent: Agent, memory_id: int) -> None:
    """Let a journal memory become core, as the daily reflection does."""
    with writing():
        locked = Agent.lock(agent.id)
        memory = db.session.get_one(Memory, memory_id, populate_existing=True)
        memory.become(locked, type=MemoryType.CORE, updated_at=now(), version=memory.version + 1)
        record(Action.PROMOTE, actor=as_actor(locked), of=locked, subject=f"memory:{memory_id}", memories=[memory])


def toggle(agent: Agent, memory_id: int, *, on: bool = True) -> None:
    """An admin turns the constitutional flag of a core memory on or off."""
    with writing():
        locked = Agent.lock(agent.id)
        memory = Memory.lock_core(locked, memory_id)
        (memory.protect if on else memory.release)(locked, by=COMMAND_LINE)


def ledger(agent: Agent) -> list[tuple[Any, ...]]:
    """Every state column of the agent's active core memories, byte for byte."""
    db.session.rollback()
    memories = db.session.scalars(Memory.active(agent.id, MemoryType.CORE).execution_options(populate_existing=True))
    return [
        (
            m.id,
            m.content.at_rest,
            m.token_estimate,
            m.content_hash,
            m.constitutional,
            tuple(m.tags),
            m.origin_at,
            m.created_at,
            m.updated_at,
            m.version,
        )
        for m in memories
    ]
