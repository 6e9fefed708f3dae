"""Telling an agent, in its journal, what humans did to its memories: one note a person, at most one in an hour.

No rollback takes such notes away. `tell_agent` writes those of other parts too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from sqlalchemy import exists, func, select
from sqlalchemy.orm import aliased

from app.extensions import db, now, reading, writing
from app.keys.provision import ensure_keys
from app.models import COMMAND_LINE, WORKER, Action, Agent, AuditLog, HumanAct, Memory, MemoryType, record
from app.models.state import Source
from app.values.plural import count_nouns
from app.vocabulary import ROLLBACKS
from app.vocabulary.rollbacks import describe_memories

NOTE_DELAY = timedelta(minutes=1)
"""An act is told once it has stood for so long: what goes with it often follows at once."""

HOUR = timedelta(hours=1)

LONGEST = 10_000
"""Characters of a note, as of any memory."""

MOST_ACTS = 200
"""That one note sums up; the next one goes on."""


def find_acts_to_tell() -> list[tuple[int, str]]:
    """Agent and actor where there is something to tell, and the agent was not told of this actor within the hour."""
    earlier = aliased(HumanAct)
    told = exists().where(
        earlier.agent_id == HumanAct.agent_id, earlier.actor == HumanAct.actor, earlier.told_at > now() - HOUR
    )
    untold = (HumanAct.told_at.is_(None), HumanAct.at <= now() - NOTE_DELAY, Agent.forgotten_at.is_(None), ~told)
    query = select(HumanAct.agent_id, HumanAct.actor).join(Agent, Agent.id == HumanAct.agent_id).where(*untold)
    grouped = query.group_by(HumanAct.agent_id, HumanAct.actor).order_by(func.min(HumanAct.at)).limit(100)
    with reading() as session:
        return [(agent_id, actor) for agent_id, actor in session.execute(grouped).tuples()]


def tell_human_acts(agent_id: int, actor: str) -> None:
    """Write one note about all that this actor did since the last one. Does nothing when another worker was first."""
    with writing():
        agent = Agent.lock(agent_id)
        acts = _untold_acts(agent, actor)
        if not acts or agent.forgotten_at is not None:
            return
        entries = [entry for _, entry in acts]
        told = tell_agent(agent, _note_text(actor, entries), about={"entries": [entry.id for entry in entries]})
        for act, _ in acts:
            act.told_at = told.at


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


def _untold_acts(agent: Agent, actor: str) -> Sequence[tuple[HumanAct, AuditLog]]:
    mine = (HumanAct.agent_id == agent.id, HumanAct.actor == actor)
    recent = select(HumanAct.id).where(*mine, HumanAct.told_at > now() - HOUR).limit(1)
    if db.session.scalar(recent) is not None:
        return []
    query = select(HumanAct, AuditLog).join(AuditLog, AuditLog.id == HumanAct.entry_id)
    query = query.where(*mine, HumanAct.told_at.is_(None)).order_by(HumanAct.entry_id).limit(MOST_ACTS)
    return db.session.execute(query.execution_options(populate_existing=True)).tuples().all()


def _note_text(actor: str, entries: Sequence[AuditLog]) -> str:
    said = "; ".join(words for _, group in groupby(entries, key=_group_key) for words in _act_words(list(group)))
    return f"{_actor_words(actor)} changed my memories {_period_words(entries[0].at, entries[-1].at)}: {said}."


def _actor_words(actor: str) -> str:
    if actor == str(COMMAND_LINE):
        return "Somebody at the command line of this system"
    return f"A human who runs this system, {actor.partition(':')[2]},"


def _period_words(first: datetime, last: datetime) -> str:
    begin, end = f"{first:%Y-%m-%d %H:%M}", f"{last:%Y-%m-%d %H:%M}"
    if begin == end:
        return f"on {begin} UTC"
    return f"between {begin} and {end[11:] if begin[:10] == end[:10] else end} UTC"


def _group_key(entry: AuditLog) -> tuple[Action, object]:
    """What is told together when it follows one upon the other."""
    return Action(entry.action), entry.data["constitutional"] if entry.action == Action.CONSTITUTIONAL_TOGGLE else None


def _act_words(entries: list[AuditLog]) -> list[str]:
    """Of what is told together, words for all of it or for each."""
    action, data = entries[0].action, entries[0].data
    if action == Action.CONSTITUTIONAL_TOGGLE:
        named = describe_memories([entry.data["id"] for entry in entries])
        return [
            f"made {named} constitutional" if data["constitutional"] else f"took the constitutional flag off {named}"
        ]
    if action == Action.ERASE:
        return [_erasure_words(entry.data) for entry in entries]
    if action == Action.IMPORT:
        return [f"imported {count_nouns(entry.data['imported'], 'memory')}" for entry in entries]
    return [_rollback_words(entry.data) for entry in entries]


def _erasure_words(data: dict[str, Any]) -> str:
    why = f", saying: {json.dumps(data['reason'], ensure_ascii=False)}" if data.get("reason") else ""
    return f"erased memory {data['id']} for good, so that nobody can ever read it again{why}"


def _rollback_words(data: dict[str, Any]) -> str:
    counts = f"{count_nouns(data['restored'], 'memory')} restored, {data['removed']:,} removed"
    return f"{ROLLBACKS[data['kind']].told.format(**data)} ({counts})"
