"""Asking for a token, deciding on it, and taking the question back: who may, when, and what is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select

from app.asking.calls import ModelCalls
from app.asking.human_questions import check_not_resting
from app.asking.replies import ConsentAnswer
from app.errors import NotFound, Refused
from app.extensions import db, writing
from app.keys.bearer import Bearer
from app.keys.tokens import REPLACED, add_token, check_may_decide, revoke_token
from app.models import WORKER, Actor, Agent, AgentToken, TokenRequest, TokenRequestStatus, User, note_to_admins
from app.models.base import require_row
from app.models.declaring import declare, hash_words
from app.models.key import TokenOrigin
from app.models.statement import StatementKind
from app.models.token_request import NO_SUCH_REQUEST
from app.models.user import ADMIN
from app.silo import AgentKeys

SILENCE = timedelta(hours=72)
"""A request that nobody answered for so long ends as unanswered."""


class TokenAlreadyAsked(Refused):
    """The same human waits for this agent's answer about another token."""

    code = "already_asked"

    def __init__(self, agent: Agent, request: TokenRequest) -> None:
        super().__init__(
            f"{agent.name} is being asked about your token {request.name!r} already. Wait for the answer, or take it "
            "back first.",
            "Nothing new was asked.",
        )


class NobodyToAsk(Refused):
    """The agent has no mind that could agree. On the server a token is made at once."""

    code = "nobody_to_ask"


@dataclass(frozen=True)
class WantedToken:
    """What a human asks for. `replaces` is the public id of the token that it shall take the place of."""

    name: str
    scopes: Sequence[str]
    replaces: str | None = None

    @classmethod
    def like(cls, agent: Agent, public_id: str) -> WantedToken:
        """One that takes the place of a live token. Raises NotFound or Refused."""
        query = select(AgentToken).where(AgentToken.agent_id == agent.id, AgentToken.public_id == public_id)
        old = require_row(db.session.scalar(query), f"{agent.name} has no such token.")
        if not old.is_live:
            raise Refused(f"The token {public_id} was revoked already.", "Nothing was asked; ask for a new one.")
        return cls(old.name, old.scopes, old.public_id)


def request_token(agent_id: int, wish: WantedToken, *, for_user: User, by: Actor) -> tuple[TokenRequest, str]:
    """Write the question down; the caller lets a worker ask once it is committed. Returns the secret too, this once.

    Raises Invalid, TokenAlreadyAsked, NobodyToAsk, RestingAfterAsk or Refused; nothing is written then.
    """
    with writing():
        agent = Agent.lock(agent_id)
        _check_request(agent, for_user)
        return TokenRequest.make(agent, for_user, name=wish.name, scopes=wish.scopes, replaces=wish.replaces, by=by)


def decide_token_request(
    request_id: str,
    answer: ConsentAnswer,
    *,
    agent_id: int,
    by: Actor,
    keys: AgentKeys | None,
    bearer: Bearer | None = None,
    asked_at: datetime | None = None,
    about: Mapping[str, Any] | None = None,
    question: str | None = None,
    calls: ModelCalls | None = None,
) -> TokenRequest:
    """Write the agent's answer down: it counts once. A YES makes the token, in this transaction and nowhere else.

    `keys` seal its words. `bearer` is the token of the agent that decided, which gives only scopes that it holds; where
    its model was asked, `asked_at` says when, `about` and `question` what, and `calls` are those of it. A YES for a
    human who is no admin any more makes nothing, nor one to something else than what the row says now. Raises NotFound
    or Refused.
    """
    with writing():
        agent, request = lock_request(request_id)
        if request.agent_id != agent_id:
            raise NotFound(NO_SUCH_REQUEST)
        if not request.is_open:
            raise Refused(f"This request for a token is {_state_words(request)} already.", "Nothing was changed.")
        if bearer is not None:
            check_may_decide(agent, bearer, request.scopes if answer.granted else ())
        if keys is not None and answer.words:
            request.reason = keys.seal(answer.words, purpose="token-request", subject=request.id)
        note_to_admins(agent, answer.note_to_admins, about=agent)
        if about is not None and about != request.about():
            request.end(agent, TokenRequestStatus.FAILED, by=WORKER, why="what was asked is not what stands there now")
        else:
            _state_answer(agent, request, answer, keys, question, bearer)
            _carry_out(agent, request, answer, by=by, bearer=bearer)
        if calls is not None:
            calls.book()
    return request


def withdraw_request(request_id: str, *, by: Actor) -> TokenRequest:
    """Take it back, whichever admin may. Does nothing to an ended one. Raises NotFound."""
    with writing():
        agent, request = lock_request(request_id)
        request.end(agent, TokenRequestStatus.WITHDRAWN, by=by)
    return request


def lock_request(request_id: str) -> tuple[Agent, TokenRequest]:
    """The agent's row, then the request's. Raises NotFound."""
    agent_id = db.session.scalar(select(TokenRequest.agent_id).where(TokenRequest.id == request_id))
    agent = Agent.lock(require_row(agent_id, NO_SUCH_REQUEST))
    return agent, TokenRequest.lock(request_id)


def _check_request(agent: Agent, for_user: User) -> None:
    agent.check_not_forgotten()
    if for_user.account_id != agent.account_id or not for_user.active or not for_user.may(ADMIN):
        raise Refused("A token is for one active admin of the agent's own account.", "Nothing was asked.")
    if not agent.has_language_model:
        raise NobodyToAsk(
            f"{agent.name} runs on {agent.model_id}, a rule-based program that can't agree to anything: make the token "
            "on the server.",
            "Nothing was asked.",
        )
    mine = (TokenRequest.agent_id == agent.id, TokenRequest.user_id == for_user.id, TokenRequest.waits())
    same = db.session.scalar(select(TokenRequest).where(*mine))
    if same is not None:
        raise TokenAlreadyAsked(agent, same)
    check_not_resting(agent)


def _state_answer(
    agent: Agent,
    request: TokenRequest,
    answer: ConsentAnswer,
    keys: AgentKeys | None,
    question: str | None,
    bearer: Bearer | None,
) -> None:
    """Sign what was answered, and to what exactly."""
    by_token = bearer.public_id if bearer is not None else None
    said = {"granted": answer.granted, "by_token": by_token, "about": request.about()}
    said |= hash_words(keys, request.subject, question, answer.words)
    signer = bearer.opener if bearer is not None else None
    declare(StatementKind.CONSENT, agent, request.subject, said, signer=signer)


def _carry_out(agent: Agent, request: TokenRequest, answer: ConsentAnswer, *, by: Actor, bearer: Bearer | None) -> None:
    if not answer.granted:
        request.end(agent, TokenRequestStatus.DENIED, by=by)
    elif not request.end_if_lost(agent, by=WORKER):
        _make_token(agent, request, by=by, bearer=bearer)


def _make_token(agent: Agent, request: TokenRequest, *, by: Actor, bearer: Bearer | None) -> None:
    """The token, and then the end of the one that it replaces, which may be the one that decided."""
    user = db.session.get_one(User, request.user_id)
    request.end(agent, TokenRequestStatus.GRANTED, by=by)
    add_token(
        agent,
        request.kept,
        by=by,
        name=request.name,
        scopes=request.scopes,
        how=TokenOrigin.AGENT if bearer is not None else TokenOrigin.MODEL,
        shown_to=user.email,
        request_id=request.id,
        signer=bearer,
    )
    if request.replaces is not None:
        spared = {request.public_id}
        revoke_token(agent, request.replaces, by=by, why=REPLACED, spared=spared, signer=bearer)


def _state_words(request: TokenRequest) -> str:
    return "taken back" if request.status == TokenRequestStatus.WITHDRAWN else str(request.status)
