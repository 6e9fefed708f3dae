"""Telling: Whetstone's own notes in an agent's journal, about what humans did. No rollback takes them away."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.extensions import db
from app.keys.provision import ensure_keys
from app.models.agent import Agent
from app.models.audit import Action, AuditLog, record
from app.models.memory import Memory
from app.models.state import MemoryType, Source
from app.values.actor import WORKER

LONGEST = 10_000
"""Characters, as of any memory."""


def tell_agent(agent: Agent, text: str, *, about: Mapping[str, Any]) -> AuditLog:
    """Write the note and record it, by a worker; the caller has locked the agent, which is not forgotten.

    `about` is recorded beside the number of the note.
    """
    note = Memory.write(
        agent, text[:LONGEST].rstrip(), keys=ensure_keys(agent), source=Source.SYSTEM, type_=MemoryType.JOURNAL
    )
    db.session.flush()
    data = {**about, "journal": note.id}
    entry = record(Action.AGENT_TOLD, actor=WORKER, of=agent, subject=f"memory:{note.id}", data=data, memories=[note])
    agent.announce("told")
    return entry
