"""What tests of the keys look at: sealed copies, tokens, and the bytes that lie in the database's own files."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sqlalchemy import select, text

from app.config import Settings
from app.extensions import db, writing
from app.keys.agent_keys import open_keys, share_with_tokens
from app.keys.tokens import issue_token
from app.models import COMMAND_LINE, Agent, Intake, Memory
from app.models.key import AgentKey
from app.silo import MasterPublicKey, TokenKey, parse_token
from tests.support.databases import SERVER

TABLES = "SELECT pg_read_binary_file(pg_relation_filepath(oid)) FROM pg_class WHERE relkind IN ('r', 't')"


def bytes_on_disk(settings: Settings) -> bytes:
    """All that the database's files hold: on PostgreSQL those of its tables, read through the server."""
    if not SERVER:
        return b"".join(path.read_bytes() for path in sorted(settings.data.glob("whetstone.db*")))
    with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("CHECKPOINT"))
        return b"".join(bytes(file) for file in connection.scalars(text(TABLES)) if file)


def sealed_keys(agent: Agent) -> list[bytes]:
    """Every sealed copy of every key of the agent."""
    found = list(db.session.scalars(select(AgentKey.sealed).where(AgentKey.agent_id == agent.id)))
    db.session.rollback()
    return found


def readers(agent: Agent) -> list[tuple[str, int, str]]:
    """Purpose, version and the reader's fingerprint of each."""
    query = select(AgentKey.purpose, AgentKey.version, AgentKey.reader).where(AgentKey.agent_id == agent.id)
    found = sorted(
        (purpose, version, MasterPublicKey(bytes.fromhex(reader)).fingerprint)
        for purpose, version, reader in db.session.execute(query)
    )
    db.session.rollback()
    return found


def give_token(agent: Agent, *, provisioned: bool = True) -> TokenKey:
    """Issue a token; `provisioned`: with its copies of the agent's keys."""
    with writing():
        locked = Agent.lock(agent.id)
        token = issue_token(locked, by=COMMAND_LINE)
        db.session.flush()
        if provisioned:
            share_with_tokens(locked, open_keys(locked))
    parsed = parse_token(token)
    assert parsed is not None
    return parsed[1]


def hand_in(agent: Agent, *contents: str) -> str:
    """What the web takes in for an agent; returns the intake's id."""
    text_ = "\n".join(json.dumps({"content": content}) for content in contents)
    with writing():
        return Intake.receive(Agent.lock(agent.id), text_, by=COMMAND_LINE).id


def texts(agent: Agent, key: TokenKey | None = None) -> Sequence[str]:
    """What the agent remembers, opened with the master key or with a token."""
    db.session.rollback()
    keys = open_keys(agent, key)
    return [keys.reveal_memory(memory.id, memory.content) for memory in db.session.scalars(Memory.active(agent.id))]
