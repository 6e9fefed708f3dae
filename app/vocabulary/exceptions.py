"""How a mechanic's exception stands, and why one is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.models import GrantCategory, GrantStatus
from app.vocabulary.term import Term

_NOBODY = "Nobody was shown anything."


@dataclass(frozen=True)
class GrantTerm(Term):
    """`line` is of its page: `{agent}`, `{email}`, `{ended_by}`, `{looks}` (how often) and `{rest}` (until when not).

    `unopened` takes its place where no YES came before the end. `answer` is what the command line says, with `{agent}`,
    `{id}`, `{status}`, `{until}` and `{rest}` (how long no human asks the agent).
    """

    line: str = ""
    unopened: str = ""
    answer: str = "It ended: {status}."


GRANT_STATUSES: Mapping[str, GrantTerm] = {
    GrantStatus.PENDING: GrantTerm(
        *("chat", "asking", "ask", "The agent is being asked"),
        line="{agent} is being asked whether {email} may read this. It may say no.",
        answer="Asked {agent}: exception {id}.",
    ),
    GrantStatus.GRANTED: GrantTerm(
        *("eye", "live", "broken", "The agent said YES; content is shown to one admin until it ends"),
        line="{agent} said YES. {email} may read this; {agent} is told of every view.",
        answer="{agent} said YES: until {until} UTC.",
    ),
    GrantStatus.DENIED: GrantTerm(
        *("ban", "denied", "ask", "The agent declined: a normal outcome"),
        line=f"{{agent}} declined. {_NOBODY} {{rest}}",
        answer="{agent} declined. You can ask again after {rest}.",
    ),
    GrantStatus.UNANSWERED: GrantTerm(
        *("clock", "unanswered", "neutral", "No answer within 72 hours"),
        line=f"{{agent}} did not answer within 72 hours. {_NOBODY} {{rest}}",
    ),
    GrantStatus.FAILED: GrantTerm(
        *("alert", "failed", "bad", "The agent's model could not be asked"),
        line=f"{{agent}} could not be asked. This does not count as a NO. {_NOBODY} {{rest}}",
        answer="{agent} could not be asked. This does not count as a NO. You can ask again after {rest}.",
    ),
    GrantStatus.EXPIRED: GrantTerm(
        *("clock", "expired", "neutral", "It ended by itself"),
        line="Its time is over. {looks} {agent} may be asked again.",
    ),
    GrantStatus.REVOKED: GrantTerm(
        *("stop", "revoked", "neutral", "It was taken back"),
        line="It was taken back by {ended_by}. {looks} {agent} may be asked again.",
        unopened=f"The question was taken back by {{ended_by}}. {_NOBODY}",
    ),
}

GRANT_CATEGORIES: Mapping[str, Term] = {
    GrantCategory.DEBUGGING: Term(words="Debugging"),
    GrantCategory.SAFETY: Term(words="Safety"),
    GrantCategory.LEGAL: Term(words="Legal"),
    GrantCategory.AGENT_ASKED: Term(words="The agent asked for it"),
    GrantCategory.OTHER: Term(words="Other"),
}
