"""Asking the agent's own model whether a token may be made. Only a YES is a yes; no reply is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import select

from app.asking.calls import AskedAgent, Dependencies, ModelCalls
from app.asking.human_questions import render_human_question
from app.asking.replies import read_answer
from app.errors import Refused
from app.extensions import db, end_reading, now, writing
from app.keys.agent_keys import open_keys
from app.llm.client import Message, ModelError
from app.models import WORKER, Agent, CallPurpose, TokenRequest, TokenRequestStatus, User
from app.models.base import CLAIM_EXPIRES_AFTER
from app.models.token_request import TOKEN_REQUEST
from app.statements.signers import is_signed_by_web
from app.tokens.request import SILENCE, decide_token_request, lock_request

SCOPE_MEANINGS = {
    "read": "read all that you remember, your settings and your results",
    "write": "save memories as you, and hand in conversations",
    "author": "change your prompts and settings as you",
    "decide": "answer for you: agree to refinements, to humans who want to read, and to further tokens",
}


@dataclass(frozen=True)
class _TokenQuestion:
    """All that is needed while no row may be held. `about` is what exactly is asked, as data."""

    request_id: str
    agent: AskedAgent
    text: str
    asked_at: datetime | None
    about: Mapping[str, Any] = field(repr=False)

    def messages(self, window: int | None) -> Sequence[Message]:
        return [self.agent.context(window), {"role": "user", "content": self.text}]


def ask_about_token(request_id: str, dependencies: Dependencies) -> int | None:
    """Ask, and write the answer down; returns the agent's id where its keys are to be settled: after a YES.

    Does nothing when another worker asks, or when it is decided already. Nobody is asked on behalf of a human who is no
    admin any more.
    """
    if end_if_lost(request_id):
        return None
    question = _claim_question(request_id)
    if question is None:
        return None
    asked = question.agent
    with ModelCalls(asked, dependencies, subject_id=request_id) as calls:
        try:
            reply = calls.ask(CallPurpose.TOKEN, question.messages)
        except ModelError as error:
            _end_as_failed(request_id, error.sentence, calls)
            return None
        said: dict[str, Any] = {"by": asked.as_actor, "keys": asked.keys, "calls": calls}
        said |= {"asked_at": question.asked_at, "about": question.about, "question": question.text}
        try:
            answer = read_answer(reply)
            request = decide_token_request(request_id, answer, agent_id=asked.agent_id, **said)
        except Refused:
            # It was taken back, or the agent answered at its own door, while its model was thinking: that counts.
            end_reading()
            return None
    return asked.agent_id if request.status == TokenRequestStatus.GRANTED else None


def end_what_is_over() -> None:
    """End what nobody answered in time, and what was asked by who is no admin any more."""
    silent = (TokenRequest.waits(), TokenRequest.requested_at <= now() - SILENCE)
    for request_id in TokenRequest.find_ids(*silent, limit=1000):
        with writing():
            agent, request = lock_request(request_id)
            request.end(agent, TokenRequestStatus.UNANSWERED, by=WORKER)
    for request_id in TokenRequest.find_ids(TokenRequest.is_lost(), limit=1000):
        end_if_lost(request_id)


def end_if_lost(request_id: str) -> bool:
    """End it where who asked is no admin of the account any more. Returns whether it was so. Raises NotFound."""
    with writing():
        agent, request = lock_request(request_id)
        return request.end_if_lost(agent, by=WORKER)


def find_unasked() -> list[str]:
    """Ids of requests whose question got lost on the way to a worker, or died with one."""
    late = TokenRequest.requested_at < now() - CLAIM_EXPIRES_AFTER
    return TokenRequest.find_ids(TokenRequest.waits(), late, TokenRequest.is_free(), first=TokenRequest.requested_at)


def _claim_question(request_id: str) -> _TokenQuestion | None:
    """For exactly one worker at a time."""
    with writing():
        whose = db.session.scalar(select(TokenRequest.agent_id).where(TokenRequest.id == request_id))
        if whose is None:
            return None
        agent = Agent.lock(whose)
        request = TokenRequest.claim(request_id, TokenRequest.waits())
        if request is None:
            return None
        asked = AskedAgent.of(agent, open_keys(agent))
        if not is_signed_by_web(TOKEN_REQUEST, request.note, request.about()):
            request.end(agent, TokenRequestStatus.FAILED, by=WORKER, why="no web process has signed this request")
            return None
        return _TokenQuestion(request.id, asked, _render_question(request), request.asked_at, request.about())


def _render_question(request: TokenRequest) -> str:
    return render_human_question(
        "token_question.txt",
        request.agent_id,
        quoted={
            "who": db.session.get_one(User, request.user_id).email,
            "token_name": request.name,
            "replaces": request.replaces,
        },
        is_rotation=request.replaces is not None,
        may=[f"{scope}: {SCOPE_MEANINGS[scope]}" for scope in request.scopes],
    )


def _end_as_failed(request_id: str, why: str, calls: ModelCalls) -> None:
    """The model could not be reached: no token, and that is no NO."""
    with writing():
        calls.book()
        agent, request = lock_request(request_id)
        request.end(agent, TokenRequestStatus.FAILED, by=WORKER, why=why)
