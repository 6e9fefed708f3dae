"""Asking the agent's own model whether a human may look. Only a YES is a yes; no reply is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select

from app.asking.calls import AskedAgent, Dependencies, ModelCalls
from app.asking.human_questions import render_human_question
from app.asking.replies import read_answer
from app.errors import Refused
from app.extensions import db, end_reading, writing
from app.grants.endings import end_if_lost
from app.grants.request import decide_grant, lock_both
from app.keys.agent_keys import open_keys
from app.llm.client import Message, ModelError
from app.models import WORKER, AccessGrant, Agent, CallPurpose, GrantStatus, User
from app.models.grant import ACCESS_REQUEST
from app.statements.signers import is_signed_by_web


@dataclass(frozen=True)
class _ExceptionQuestion:
    """All that is needed while no row may be held. `text` holds what a human wrote (`purpose`) as quoted data."""

    grant_id: str
    agent: AskedAgent
    text: str
    asked_at: datetime | None
    about: Mapping[str, Any]

    def messages(self, window: int | None) -> Sequence[Message]:
        return [self.agent.consent_context(window), {"role": "user", "content": self.text}]


def ask_agent(grant_id: str, dependencies: Dependencies) -> None:
    """Ask, and write the answer down. Does nothing when another worker asks, or when it is decided already.

    Nobody is asked on behalf of a human who may not look any more.
    """
    if end_if_lost(grant_id):
        return
    question = _claim_question(grant_id)
    if question is None:
        return
    with ModelCalls(question.agent, dependencies, subject_id=grant_id) as calls:
        try:
            reply = calls.ask(CallPurpose.EXCEPTION, question.messages)
        except ModelError as error:
            _end_as_failed(grant_id, error.sentence, calls)
            return
        answer, agent_id, asked_at = read_answer(reply), question.agent.agent_id, question.asked_at
        by, keys = question.agent.as_actor, question.agent.keys
        try:
            decide_grant(
                grant_id,
                answer,
                agent_id=agent_id,
                by=by,
                keys=keys,
                asked_at=asked_at,
                calls=calls,
                question=question.text,
                about=question.about,
            )
        except Refused:
            # It was taken back, or the agent answered at its own door, while its model was thinking: that counts.
            end_reading()


def _claim_question(grant_id: str) -> _ExceptionQuestion | None:
    """For exactly one worker at a time."""
    with writing():
        whose = db.session.scalar(select(AccessGrant.agent_id).where(AccessGrant.id == grant_id))
        if whose is None:
            return None
        agent = Agent.lock(whose)
        grant = AccessGrant.claim(grant_id, AccessGrant.status == GrantStatus.PENDING)
        if grant is None:
            return None
        user = db.session.get_one(User, grant.user_id)
        asked = AskedAgent.of(agent, open_keys(agent))
        if not is_signed_by_web(ACCESS_REQUEST, grant.note, grant.requested()):
            grant.end(agent, GrantStatus.FAILED, by=WORKER, why="no web process has signed this request")
            return None
        text = _render_question(grant, user)
        return _ExceptionQuestion(grant.id, asked, text, grant.asked_at, grant.requested())


def _render_question(grant: AccessGrant, user: User) -> str:
    scope = "your whole ledger of core memories"
    if grant.refinement_id is not None:
        scope = (
            f"what refinement {grant.refinement_id} changed, before and after, which words its calls would have lost, "
            "what you said about it, what a second reader said, and the questions that you wrote for yourself, with "
            "their answers"
        )
    return render_human_question(
        "exception_question.txt",
        grant.agent_id,
        quoted={"who": user.email, "purpose": grant.purpose},
        category=str(grant.category).replace("_", " "),
        scope=scope,
        minutes=grant.minutes,
    )


def _end_as_failed(grant_id: str, why: str, calls: ModelCalls) -> None:
    """The model could not be reached: no access, and that is no NO."""
    with writing():
        calls.book()
        agent, grant = lock_both(grant_id)
        if grant.status == GrantStatus.PENDING:
            grant.end(agent, GrantStatus.FAILED, by=WORKER, why=why)
