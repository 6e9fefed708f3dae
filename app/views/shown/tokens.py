"""What the tokens of an agent show: names, scopes and dates; and once, right after it was made, the token itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flask import request, url_for
from sqlalchemy import select

from app.extensions import db
from app.models import Agent, AgentToken
from app.models.key import SCOPES
from app.shapes.token import TokenShape
from app.views.shown.agent import AgentState

SCOPE_WORDS = {
    "read": "read its memories, context, settings and results",
    "write": "save memories and hand in conversations",
    "author": "change its own settings",
    "decide": "ask for refinements, and answer for exceptions",
}


@dataclass(frozen=True)
class MadeToken:
    """A token in the one answer that shows it. Its secret stays out of a printed form."""

    name: str
    public_id: str
    secret: str = field(repr=False)
    replaced: str = ""

    @property
    def curl(self) -> str:
        """A line that works as it stands, where the token is pasted."""
        return f"curl -H 'Authorization: Bearer {self.secret}' {request.url_root}api/v1/me"


@dataclass(frozen=True)
class TokenForm:
    """What was typed for a new token, with what is wrong."""

    name: str = ""
    scopes: Sequence[str] = SCOPES
    errors: Mapping[str, str] = field(default_factory=dict)

    choices = tuple(SCOPE_WORDS.items())


class TokensPage:
    """Live ones first, the newest first."""

    def __init__(self, agent: Agent, *, form: TokenForm | None = None, made: MadeToken | None = None) -> None:
        query = select(AgentToken).where(AgentToken.agent_id == agent.id)
        order = (AgentToken.revoked_at.is_not(None), AgentToken.id.desc())
        found = db.session.scalars(query.order_by(*order).execution_options(populate_existing=True))
        self.tokens = list(found)
        self.live = sum(token.is_live for token in self.tokens)
        self.state = AgentState.load(agent)
        self.form, self.made = form or TokenForm(), made
        self.url = url_for("tokens.index", agent_id=agent.id)

    def as_json(self) -> dict[str, Any]:
        """Never with a secret: a page that shows one has no twin."""
        return {"agent": self.state.agent.name, "tokens": [TokenShape.of(token).as_json() for token in self.tokens]}
