"""What the page of an agent's tokens shows: tokens and who was shown them, and what humans ask the agent for."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flask import request, url_for
from sqlalchemy import select

from app.asking.human_questions import current_rest
from app.extensions import db
from app.models import Agent, AgentToken, TokenRequest
from app.models.base import iso
from app.models.key import SCOPES, TokenOrigin
from app.models.token_request import NEWEST_TOKEN_REQUESTS, TokenRequestStatus
from app.shapes.agent import TokenRequestShape, TokenShape
from app.views.shown.agent import AgentState
from app.views.shown.entry import actor_name, receipt_url
from app.vocabulary import TOKEN_REQUEST_STATUSES
from app.vocabulary.tokens import TokenRequestTerm

REQUESTS = 10
"""The newest that the page lists; the audit log has them all."""

SCOPE_WORDS = {
    "read": "read its memories, context, settings and results",
    "write": "save memories and hand in conversations",
    "author": "change its own settings",
    "decide": "ask for refinements, and answer for exceptions and tokens",
}

ORIGIN_WORDS = {
    TokenOrigin.FIRST: "with the agent",
    TokenOrigin.AGENT: "by a token of its own",
    TokenOrigin.MODEL: "after its YES",
    TokenOrigin.COMMAND_LINE: "on the server",
}

_ANSWERED = (TokenRequestStatus.GRANTED, TokenRequestStatus.DENIED)


@dataclass(frozen=True)
class ShownSecret:
    """A token that is being asked for, in the one answer that shows it. Its secret stays out of a printed form."""

    name: str
    public_id: str
    secret: str = field(repr=False)
    request_id: str
    replaced: str = ""

    @property
    def curl(self) -> str:
        """A line that works as it stands, where the token is pasted, once the agent agreed."""
        return f"curl -H 'Authorization: Bearer {self.secret}' {request.url_root}api/v1/me"


@dataclass(frozen=True)
class TokenForm:
    """What was typed for a new token, with what is wrong."""

    name: str = ""
    scopes: Sequence[str] = SCOPES
    errors: Mapping[str, str] = field(default_factory=dict)

    choices = tuple(SCOPE_WORDS.items())


@dataclass(frozen=True)
class ShownRequest:
    """One request for a token, as the page shows it."""

    row: TokenRequest
    agent: Agent

    @property
    def term(self) -> TokenRequestTerm:
        return TOKEN_REQUEST_STATUSES[self.row.status]

    @property
    def line(self) -> str:
        by = actor_name(self.row.decided_by or "")
        return self.term.line.format(agent=self.agent.name, by=by)

    @property
    def receipt_url(self) -> str:
        """Of the agent's answer; empty where it gave none."""
        return receipt_url(self.row.id) if self.row.status in _ANSWERED else ""

    @property
    def who(self) -> str:
        return actor_name(self.row.requested_by)

    def as_json(self) -> dict[str, Any]:
        return TokenRequestShape.of(self.row).as_json() | {"receipt": self.receipt_url or None}


class TokensPage:
    """Live ones first, the newest first. `refusal` is why nothing was asked just now; `rest` is why nothing can be."""

    origins = ORIGIN_WORDS

    def __init__(
        self, agent: Agent, *, form: TokenForm | None = None, made: ShownSecret | None = None, refusal: str = ""
    ) -> None:
        query = select(AgentToken).where(AgentToken.agent_id == agent.id)
        order = (AgentToken.revoked_at.is_not(None), AgentToken.id.desc())
        found = db.session.scalars(query.order_by(*order).execution_options(populate_existing=True))
        self.tokens = list(found)
        self.live = sum(token.is_live for token in self.tokens)
        self.state = AgentState.load(agent)
        asked = select(TokenRequest).where(TokenRequest.agent_id == agent.id).order_by(*NEWEST_TOKEN_REQUESTS.order)
        newest = db.session.scalars(asked.limit(REQUESTS).execution_options(populate_existing=True))
        self.requests = [ShownRequest(each, agent) for each in newest]
        self.rest = current_rest(agent.id)
        self.form, self.made, self.refusal = form or TokenForm(), made, refusal
        self.url = url_for("tokens.index", agent_id=agent.id)
        self.command = f"./whetstone agents token create {shlex.quote(agent.name)} --name NAME"

    @property
    def can_ask(self) -> bool:
        """Whether the agent can be asked for a token now."""
        return self.state.agent.has_language_model and self.rest is None

    @property
    def first_live(self) -> AgentToken | None:
        """The token that was made with the agent, while it works."""
        return next((each for each in self.tokens if each.is_live and each.how == TokenOrigin.FIRST), None)

    def as_json(self) -> dict[str, Any]:
        """Never with a secret: a page that shows one has no twin."""
        return {
            "agent": self.state.agent.name,
            "tokens": [
                TokenShape.of(each).as_json() | {"receipt": receipt_url(each.public_id)} for each in self.tokens
            ],
            "requests": [each.as_json() for each in self.requests],
            "resting_until": iso(self.rest.until) if self.rest else None,
        }


def _token_json(token: AgentToken) -> dict[str, Any]:
    return TokenShape.of(token).as_json() | {"receipt": receipt_url(token.public_id)}
