"""Rows for tests, made through the same doors as the product's own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select

from app.exchange.file_text import parse_lines
from app.exchange.importing import Imported
from app.exchange.parsed import ImportFormat, ParsedFile
from app.exchange.taking_in import bring_in
from app.extensions import db, now, writing
from app.keys.agent_keys import make_keys, open_keys
from app.models import (
    COMMAND_LINE,
    SETUP,
    Account,
    Action,
    Actor,
    Agent,
    Memory,
    MemoryType,
    Mode,
    Refinement,
    Role,
    Source,
    Status,
    Trigger,
    User,
    UserSession,
    record,
)
from app.refinement.dedup import remove_exact_duplicates
from app.refinement.erosion import fix_erosion_limit
from app.refinement.guard import Claim
from app.refinement.start import start_refinement
from app.refinement.tool import RefinementTool
from app.silo import AgentKeys

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


def make_user(email: str, *roles: str, account_id: int = HOME, password: str = "none") -> User:
    """A user, recorded like any other; without a hash for a password nobody can sign in as that."""
    with writing() as session:
        account = Account.lock(account_id)
        name = email.replace("@", "-")
        user = User(email=email, password=password, active=True, fs_uniquifier=name, account_id=account_id)
        user.fs_webauthn_user_handle = f"handle of {name}"[:64]
        user.roles = [role_named(name) for name in roles]
        session.add(user)
        session.flush()
        record(Action.USER_CREATE, actor=SETUP, of=account, subject=f"user:{user.id}", data={"email": email})
    return user


def cookie_id(user: User) -> str:
    """What the cookie of a new session of this user names."""
    with writing():
        key = UserSession.begin(user.id, address="127.0.0.1", browser="Firefox on Linux").key
    return f"{user.fs_uniquifier}:{key}"


def role_named(name: str) -> Role:
    return db.session.scalar(select(Role).where(Role.name == name)) or Role(name=name)


def remember(
    agent: Agent,
    *contents: str,
    type_: MemoryType = MemoryType.CORE,
    constitutional: bool = False,
    tags: Iterable[str] = (),
    source: str = Source.AGENT,
    at: datetime | None = None,
) -> list[int]:
    """Save memories, an hour apart in origin, or all of `at`, and return their ids."""
    with writing():
        locked = Agent.lock(agent.id)
        keys = open_keys(locked)
        first = now() - timedelta(days=30)
        memories = [
            Memory.write(
                locked,
                content,
                keys=keys,
                source=source,
                type_=type_,
                constitutional=constitutional,
                tags=list(tags),
                origin_at=at or first + timedelta(hours=locked.core_count + index),
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


def import_lines(agent_id: int, lines: Iterable[str | bytes], *, keys: AgentKeys, by: Actor) -> Imported:
    """Lines of JSON, each a memory, at once. Raises ImportRefused, with nothing written."""
    return bring_in(agent_id, ParsedFile(ImportFormat.JSON_LINES, parse_lines(lines)), by=by, keys=keys)


def begin(
    agent: Agent, *, worker: str = "test", mode: Mode = Mode.FULL, deduplicate: bool = False, braced: bool = False
) -> Running:
    """Claim, skip the question, take the snapshot: what the process does before its loop.

    `deduplicate`: remove exact duplicates before; `braced`: under the erosion guard too.
    """
    refinement = start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE, mode=mode)
    return proceed(refinement, worker=worker, deduplicate=deduplicate, braced=braced)


def proceed(
    refinement: Refinement, *, worker: str = "test", deduplicate: bool = False, braced: bool = False
) -> Running:
    """The same for one that is queued already."""
    with writing():
        row = Refinement.lock(refinement.id)
        locked = Agent.lock(row.agent_id)
        row.memories_before = locked.core_count
        if deduplicate:
            remove_exact_duplicates(row, locked)
        row.status, row.worker, row.started_at = Status.RUNNING, worker, now()
        row.mass_before = row.kept_mass = locked.core_token_usage
        if braced:
            fix_erosion_limit(row, locked)
        entry = record(
            Action.REFINEMENT_SNAPSHOT, actor=COMMAND_LINE, of=locked, subject=row.subject, refinement_id=row.id
        )
        row.snapshot_entry_id = entry.id
        keys = open_keys(locked)
    return Running(locked, row, RefinementTool(Claim(row.id, worker), keys))


def promote(agent: Agent, memory_id: int) -> None:
    """Let a journal memory become core, as the daily reflection does."""
    with writing():
        locked = Agent.lock(agent.id)
        memory = db.session.get_one(Memory, memory_id, populate_existing=True)
        memory.promote(locked)
        record(Action.PROMOTE, actor=locked.as_actor, of=locked, subject=f"memory:{memory_id}", memories=[memory])


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
            m.content_digest,
            m.token_estimate,
            m.content.content_hash,
            m.constitutional,
            tuple(m.tags),
            m.origin_at,
            tuple(m.other_dates),
            m.merged_sources,
            m.merges,
            m.source,
            m.created_at,
            m.updated_at,
            m.version,
        )
        for m in memories
    ]
