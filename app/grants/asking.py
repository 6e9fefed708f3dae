"""Asking the agent's own model whether a human may look. Only a YES is a yes; no reply is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from app.asking.dependencies import Dependencies
from app.asking.memory_context import memory_context
from app.asking.model_endpoint import ModelEndpoint
from app.asking.prompt_memories import read_entries, read_journal
from app.asking.questions import ask_once
from app.asking.rendering import encode, render
from app.asking.replies import read_answer
from app.errors import Refused
from app.extensions import db, now, release, writing
from app.grants.endings import end_if_lost
from app.grants.request import Decision, decide, lock_both
from app.llm.client import ModelError, Reply
from app.models import WORKER, AccessGrant, Agent, GrantStatus, User, open_keys
from app.models.state import JOURNAL_DAYS
from app.silo import AgentKeys


@dataclass(frozen=True)
class _ExceptionQuestion:
    """All that is needed while no row may be held."""

    grant_id: str
    agent: Agent
    keys: AgentKeys
    said: dict[str, Any]
    asked_at: datetime | None


def ask(grant_id: str, dependencies: Dependencies) -> None:
    """Ask, and write the answer down. Does nothing when another worker asks, or when it is decided already.

    Nobody is asked on behalf of a human who may not look any more.
    """
    if end_if_lost(grant_id):
        return
    question = _claim(grant_id)
    if question is None:
        return
    try:
        reply = _put(question, dependencies)
    except ModelError as error:
        _fail(grant_id, error.sentence)
        return
    answer = read_answer(reply)
    decision = Decision(answer.granted, answer.words, answer.note_to_admins, question.asked_at)
    try:
        decide(grant_id, decision, agent_id=question.agent.id, by=question.agent.as_actor, keys=question.keys)
    except Refused:
        # It was taken back, or the agent answered at its own door, while its model was thinking: that counts.
        release()


def _claim(grant_id: str) -> _ExceptionQuestion | None:
    """For exactly one worker at a time."""
    with writing():
        grant = AccessGrant.claim(grant_id, AccessGrant.status == GrantStatus.PENDING)
        if grant is None:
            return None
        agent = db.session.get_one(Agent, grant.agent_id, populate_existing=True)
        user = db.session.get_one(User, grant.user_id)
        scope = "your whole ledger of core memories"
        if grant.refinement_id is not None:
            scope = f"what refinement {grant.refinement_id} changed, before and after, and what you said about it"
        said = {
            "who": user.email,
            "category": str(grant.category).replace("_", " "),
            "purpose": grant.purpose,
            "scope": scope,
            "minutes": grant.minutes,
        }
        return _ExceptionQuestion(grant.id, agent, open_keys(agent), said, grant.asked_at)


def _put(question: _ExceptionQuestion, dependencies: Dependencies) -> Reply:
    agent, since = question.agent, now() - timedelta(days=JOURNAL_DAYS)

    def compose(window: int | None) -> list[dict[str, Any]]:
        core = read_entries(agent.id, question.keys)
        journal = read_journal(agent.id, question.keys, since=since)
        context = memory_context(agent.system_prompt, core, journal, window)
        return [context, {"role": "user", "content": _asked(question.said)}]

    return ask_once(ModelEndpoint.of(agent), compose, dependencies)


def _asked(said: Mapping[str, Any]) -> str:
    """The question whether a human may look. What humans wrote (`purpose`) stands in it as quoted data."""
    return render("exception_question.txt", **{**said, "purpose": encode(said["purpose"])})


def _fail(grant_id: str, why: str) -> None:
    """The model could not be reached: no access, and that is no NO."""
    with writing():
        agent, grant = lock_both(grant_id)
        if grant.status == GrantStatus.PENDING:
            grant.end(agent, GrantStatus.FAILED, by=WORKER, why=why)
