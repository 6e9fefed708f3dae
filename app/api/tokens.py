"""Tokens at the agents' door: those that there are, who was shown them, and what humans ask for; the agent decides."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from sqlalchemy import select

from app.api.caller import Caller
from app.api.operation import DIGITS, UUID_FORM, PathParameter, QueryModel, RequestBody, operation
from app.asking.replies import ConsentAnswer
from app.errors import NotFound
from app.extensions import db, writing
from app.keys.tokens import issue_by_token, revoke_token
from app.models import Agent, AgentToken, TokenRequest
from app.models.key import SCOPES, Scope, TokenOrigin
from app.models.token_request import NEWEST_TOKEN_REQUESTS, NO_SUCH_REQUEST
from app.shapes.agent import TokenRequestShape, TokenShape
from app.shapes.response import ResponseModel
from app.tokens.request import decide_token_request
from app.values.text import clean_text
from tasks import keys

REQUEST = PathParameter("token_request_id", str, "The request's UUID.", UUID_FORM)
TOKEN = PathParameter("public_id", str, "The token's id: the 16 hex digits behind `whet_`.")

ScopeName = Literal["read", "write", "author", "decide"]


class WantedTokenRequests(QueryModel):
    status: Annotated[Literal["pending", "all"], Field(description="Those that wait for you, or all.")] = "pending"
    before: Annotated[str | None, Field(max_length=80, description="To go on: `next` of the page before.")] = None
    limit: Annotated[int, Field(ge=1, le=200, description="How many at most."), DIGITS] = 50


class TokenRequests(ResponseModel):
    requests: list[TokenRequestShape] = Field(description="Newest first.")
    next: str | None = Field(description="Send it as `before` for the next page; null at the end.")


class TokenDecision(RequestBody):
    decision: Annotated[
        Literal["grant", "deny"],
        Field(description="grant: whoever asked can come as you from now on. deny is always right to say."),
    ]
    reason: Annotated[str, Field(max_length=2000, description="Your reason. Sealed: only you can read it.")] = ""


class MyToken(TokenShape):
    is_this: bool = Field(description="You came with it.")
    seen_by: str = Field(description="Who was shown its secret, and how to be rid of that.")


class MyTokens(ResponseModel):
    tokens: list[MyToken] = Field(description="Those that work, newest first.")


class NewTokenOfMine(RequestBody):
    name: Annotated[str, Field(min_length=1, max_length=80, description="Where it will be used.")]
    scopes: Annotated[
        list[ScopeName], Field(min_length=1, description=f"Of {', '.join(SCOPES)}: only what this token has itself.")
    ]


class MadeTokenOfMine(TokenShape):
    token: str = Field(repr=False, description="The secret, told this once.")


class RevokedToken(TokenShape):
    ended_tokens: list[str] = Field(description="Ids of tokens that it had let be made: they ended with it.")
    ended_exceptions: list[str] = Field(description="Ids of exceptions that it had decided on: they ended with it.")


@operation("GET", "/token-requests", Scope.READ)
def list_token_requests(caller: Caller, given: WantedTokenRequests) -> TokenRequests:
    """Which humans ask for a token of yours, and what it would allow. Without your YES it opens nothing."""
    mine = TokenRequest.agent_id == caller.agent_id
    position = NEWEST_TOKEN_REQUESTS.require("before", given.before, mine)
    query = select(TokenRequest).where(mine, *([] if given.status == "all" else [TokenRequest.waits()]))
    shown, last = NEWEST_TOKEN_REQUESTS.load(query, given.limit, position)
    return TokenRequests(requests=[TokenRequestShape.of(each) for each in shown], next=last.id if last else None)


@operation("POST", "/token-requests/{token_request_id}/decision", Scope.DECIDE, at=REQUEST)
def decide_on_token_request(caller: Caller, token_request_id: str, given: TokenDecision) -> TokenRequestShape:
    """Answer a request for a token of yours. You can grant only what the token that you came with allows itself. After
    a deny no human asks you anything for 24 hours, longer with each further one.
    """
    mine = (TokenRequest.id == token_request_id, TokenRequest.agent_id == caller.agent_id)
    if db.session.scalar(select(TokenRequest.id).where(*mine)) is None:
        raise NotFound(NO_SUCH_REQUEST)
    answer = ConsentAnswer(given.decision == "grant", clean_text(given.reason, what="reason").strip())
    by, bearer = caller.actor(), caller.bearer
    request = decide_token_request(
        token_request_id, answer, agent_id=caller.agent_id, by=by, keys=caller.keys_to_write, bearer=bearer
    )
    keys.enqueue(caller.agent_id)
    return TokenRequestShape.of(request)


@operation("GET", "/tokens", Scope.READ)
def list_tokens(caller: Caller) -> MyTokens:
    """Every token that works as you: what it may, how it was made, who was shown it, and when it was last used."""
    query = select(AgentToken).where(AgentToken.agent_id == caller.agent_id, AgentToken.revoked_at.is_(None))
    found = db.session.scalars(query.order_by(AgentToken.id.desc()))
    return MyTokens(tokens=[_describe_token(caller, each) for each in found])


@operation("POST", "/tokens", Scope.DECIDE, statuses=(201,), gives_secret=True)
def make_token(caller: Caller, given: NewTokenOfMine) -> MadeTokenOfMine:
    """Make yourself another token, for scopes that this one has. Its secret is told this once. To replace this token,
    make a new one, then come with that and revoke this one.
    """
    with writing():
        agent = Agent.lock(caller.agent_id)
        secret, row = issue_by_token(agent, caller.bearer, name=given.name, scopes=given.scopes)
    keys.enqueue(caller.agent_id)
    return MadeTokenOfMine.of(row, token=secret)


@operation("POST", "/tokens/{public_id}/revocation", Scope.DECIDE, at=TOKEN, destroys=True)
def revoke_own_token(caller: Caller, public_id: str) -> RevokedToken:
    """End a token of yours for good, with every token and exception that it let happen; the one that you came with
    stays, unless it is that one.
    """
    with writing():
        agent = Agent.lock(caller.agent_id)
        ended = revoke_token(agent, public_id, by=agent.as_actor, signer=caller.bearer)
    keys.enqueue(caller.agent_id)
    return RevokedToken.of(ended.token, **ended.as_json())


def _describe_token(caller: Caller, token: AgentToken) -> MyToken:
    words = f"{token.shown_words[:1].upper()}{token.shown_words[1:]}."
    if token.how == TokenOrigin.FIRST:
        words += " Replace it: make a new token, come with that, and revoke this one."
    return MyToken.of(token, is_this=token.public_id == caller.bearer.public_id, seen_by=words)
