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
from app.refinement.guard import Claim
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


def begin(agent: Agent, *, worker: str = "test", mode: Mode = Mode.FULL) -> Running:
    """Claim, skip the question, take the snapshot: what the process does before its loop."""
    refinement = start(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE, mode=mode)
    with writing():
        row = Refinement.lock(refinement.id)
        locked = Agent.lock(agent.id)
        entry = record(
            Action.REFINEMENT_SNAPSHOT, actor=COMMAND_LINE, of=locked, subject=row.subject, refinement_id=row.id
        )
        row.status, row.worker, row.snapshot_entry_id = Status.RUNNING, worker, entry.id
        row.mass_before = row.kept_mass = locked.core_token_usage
        keys = open_keys(locked)
    return Running(locked, row, RefinementTool(Claim(row.id, worker), keys))


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
