"""Promotion: once a day the agent looks back over its journal, and says what of it is to stay for good.

Beat only says "look"; the database decides who is due, and one conditional UPDATE who asks. A promoted entry is the
same memory, now core; one undo takes all promotions of a reflection back, and a rewind does too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, exists, or_, select, update

from app.extensions import db, now, release, writing
from app.llm import offline
from app.llm.client import ModelError, Usage
from app.models import (
    DEFAULT_MEMORY_REFLECTION_PROMPT,
    WORKER,
    Action,
    Agent,
    Memory,
    MemoryType,
    open_keys,
    record,
)
from app.models.base import lock_row
from app.models.state import JOURNAL_DAYS
from app.refinement.asking import ask_once
from app.refinement.guard import as_actor
from app.refinement.ledger import read_entries, read_journal
from app.refinement.process import Means
from app.reflection.asking import Speaker, spent
from app.reflection.prompts import promotion_messages
from app.reflection.replies import Malformed, read_promotions
from app.silo import SealBroken

REST = timedelta(hours=20)
"""Between two reflections of one agent: less than a day, so that an hourly look finds it every day."""

RECENT = timedelta(days=JOURNAL_DAYS)

BATCH = 5_000
"""Agents that one look starts; the next one goes on."""


def find_due(at: datetime) -> list[int]:
    """Ids of the agents whose journal has news, those that waited longest first."""
    waited = (Agent.last_reflection_at.is_not(None), Agent.last_reflection_at, Agent.id)
    found = list(db.session.scalars(select(Agent.id).where(_is_due(at)).order_by(*waited).limit(BATCH)))
    release()
    return found


def promote(agent_id: int, means: Means) -> None:
    """Ask the agent's model, and promote what it names. Does nothing when the agent is not due, or no longer."""
    speaker = _claim(agent_id)
    if speaker is None:
        return
    outcome = _Outcome()
    try:
        _ask(speaker, means, outcome)
    except ModelError as error:
        outcome.error = str(error.kind)
    except (Malformed, SealBroken) as error:
        outcome.error = error.code
    except Exception:
        release()
        outcome.error = "unexpected"
        _close(agent_id, outcome)
        raise
    _close(agent_id, outcome)


@dataclass
class _Outcome:
    """What a reflection came to: the entries that were shown, those that the agent named, and what went wrong."""

    shown: Sequence[int] = ()
    named: Sequence[int] = ()
    usage: Usage = field(default_factory=Usage)
    error: str | None = None


def _claim(agent_id: int) -> Speaker | None:
    """For exactly one worker: the others find the agent rested."""
    moment = now()
    with writing():
        agent = db.session.scalar(
            update(Agent)
            .where(Agent.id == agent_id, _is_due(moment))
            .values(last_reflection_at=moment)
            .returning(Agent)
            .execution_options(populate_existing=True, synchronize_session=False)
        )
        if agent is None:
            return None
        return Speaker.of(agent, agent.memory_reflection_prompt or DEFAULT_MEMORY_REFLECTION_PROMPT, open_keys(agent))


def _ask(speaker: Speaker, means: Means, outcome: _Outcome) -> None:
    """Raises ModelError, Malformed or SealBroken."""

    def compose(window: int | None) -> list[dict[str, Any]]:
        core = read_entries(speaker.agent_id, speaker.keys)
        journal = read_journal(speaker.agent_id, speaker.keys, since=now() - RECENT)
        messages, outcome.shown = promotion_messages(speaker, core=core, journal=journal, window=window)
        return messages

    reply = ask_once(speaker.voice, compose, means)
    outcome.usage = reply.usage
    outcome.named = read_promotions(reply, outcome.shown)


def _close(agent_id: int, outcome: _Outcome) -> None:
    """Promote, and tell in numbers how the reflection went; an agent that was forgotten meanwhile is left alone."""
    with writing():
        agent = Agent.lock(agent_id)
        if agent.forgotten_at is not None:
            return
        promoted = _promote(agent, outcome.named)
        data = {
            "asked": len(outcome.shown),
            "promoted": len(promoted),
            "skipped": len(outcome.named) - len(promoted),
            **spent(outcome.usage),
            "error": outcome.error,
        }
        actor = WORKER if outcome.error else as_actor(agent)
        record(Action.REFLECTION, actor=actor, of=agent, subject=agent.subject, data=data)
        agent.announce("reflected")


def _promote(agent: Agent, ids: Sequence[int]) -> list[Memory]:
    """Those of them that are journal entries still, and no exact duplicate of a core memory."""
    known: set[bytes] = set()
    promoted: list[Memory] = []
    for memory in _lock_journal(agent, ids):
        if memory.content_hash not in known and Memory.same_core(agent.id, memory.content_hash) is None:
            promoted.append(memory)
        known.add(memory.content_hash)
    for memory in promoted:
        memory.become(agent, type=MemoryType.CORE, updated_at=now(), version=memory.version + 1)
    if promoted:
        data = {
            "ids": [memory.id for memory in promoted],
            "core_tokens": sum(memory.token_estimate for memory in promoted),
        }
        record(Action.PROMOTE, actor=as_actor(agent), of=agent, subject=agent.subject, data=data, memories=promoted)
    return promoted


def _lock_journal(agent: Agent, ids: Sequence[int]) -> Sequence[Memory]:
    query = Memory.active(agent.id, MemoryType.JOURNAL).where(Memory.id.in_(ids))
    return db.session.scalars(lock_row(query.order_by(None).order_by(Memory.id))).all()


def _is_due(at: datetime) -> ColumnElement[bool]:
    """Active, not paused, with a mind of its own, rested, and with a recent journal entry that is news to it."""
    news = exists().where(
        Memory.agent_id == Agent.id,
        Memory.type == MemoryType.JOURNAL,
        Memory.discarded_at.is_(None),
        Memory.origin_at >= at - RECENT,
        or_(Agent.last_reflection_at.is_(None), Memory.created_at > Agent.last_reflection_at),
    )
    rested = or_(Agent.last_reflection_at.is_(None), Agent.last_reflection_at <= at - REST)
    has_mind = Agent.model_id != offline.MODEL_ID
    return and_(Agent.active, ~Agent.paused, has_mind, rested, news)
