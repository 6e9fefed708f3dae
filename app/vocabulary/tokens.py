"""How a request for an agent's token stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.models import TokenRequestStatus
from app.vocabulary.term import Term


@dataclass(frozen=True)
class TokenRequestTerm(Term):
    """`line` is of the Tokens page, with `{agent}`, `{by}` (who took it back) and `{rest}` (until when not again)."""

    line: str = ""


TOKEN_REQUEST_STATUSES: Mapping[str, TokenRequestTerm] = {
    TokenRequestStatus.PENDING: TokenRequestTerm(
        *("chat", "asking", "ask", "The agent is being asked; the token opens nothing yet"),
        line="{agent} is being asked. The token opens nothing until it agrees.",
    ),
    TokenRequestStatus.GRANTED: TokenRequestTerm(
        *("check", "agreed", "ok", "The agent said YES; the token works"), line="{agent} said YES. The token works."
    ),
    TokenRequestStatus.DENIED: TokenRequestTerm(
        *("ban", "denied", "ask", "The agent declined: a normal outcome"),
        line="{agent} declined. The token never works.",
    ),
    TokenRequestStatus.UNANSWERED: TokenRequestTerm(
        *("clock", "unanswered", "neutral", "No answer within 72 hours"),
        line="{agent} did not answer within 72 hours. The token never works.",
    ),
    TokenRequestStatus.FAILED: TokenRequestTerm(
        *("alert", "failed", "bad", "The agent's model could not be asked"),
        line="{agent} could not be asked. This does not count as a NO. The token never works.",
    ),
    TokenRequestStatus.WITHDRAWN: TokenRequestTerm(
        *("stop", "taken back", "neutral", "It was taken back before the agent answered"),
        line="It was taken back by {by}. The token never works.",
    ),
}
