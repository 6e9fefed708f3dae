"""An agent's tokens: how one is made, and how one ends with all that it let happen. Every way to a token leads here."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from app.errors import Refused
from app.extensions import db
from app.keys.bearer import Bearer
from app.models.agent import Agent
from app.models.base import lock_row
from app.models.grant import OPEN_GRANTS, AccessGrant, GrantStatus
from app.models.key import (
    SCOPES,
    SHOWN_ON_THE_SERVER,
    SHOWN_TO_THE_AGENT,
    AgentToken,
    MintedToken,
    Scope,
    TokenOrigin,
    clean_scopes,
)
from app.values.actor import Actor
from app.values.plural import count_nouns

REPLACED = "a new one took its place"


class NotForThisToken(Refused):
    """The token that you came with can't decide this."""

    code = "beyond_this_token"
    outcome = "Nothing was changed."
    http_status = 403


@dataclass(frozen=True)
class EndedToken:
    """A token that was revoked, and what ended with it: tokens by their public ids, exceptions by their ids."""

    token: AgentToken
    tokens: Sequence[str] = ()
    exceptions: Sequence[str] = ()

    @property
    def was_live(self) -> bool:
        return bool(self.tokens)

    @property
    def with_it(self) -> str:
        """What ended beside itself, in words; empty where nothing did."""
        counts = {"token": len(self.tokens) - 1, "exception": len(self.exceptions)}
        return " and ".join(count_nouns(count, noun) for noun, count in counts.items() if count > 0)

    def as_json(self) -> dict[str, list[str]]:
        """What ended beside itself, by ids."""
        return {"ended_tokens": list(self.tokens[1:]), "ended_exceptions": list(self.exceptions)}


def issue_token(
    agent: Agent,
    *,
    by: Actor,
    name: str = "first",
    scopes: Sequence[str] = SCOPES,
    how: TokenOrigin = TokenOrigin.COMMAND_LINE,
    shown_to: str = SHOWN_ON_THE_SERVER,
) -> str:
    """Make a token without asking the agent and return it: the only time that it is seen. The first one, or on the
    server. The worker seals the agent's keys to it.

    The caller holds the agent's lock. Raises Invalid or AgentForgotten.
    """
    minted = MintedToken.mint()
    add_token(agent, minted.kept, by=by, name=name, scopes=scopes, how=how, shown_to=shown_to)
    return minted.secret


def issue_by_token(agent: Agent, bearer: Bearer, *, name: str, scopes: Sequence[str]) -> tuple[str, AgentToken]:
    """The agent makes itself another one, with a token of its own. Returns the secret and the row.

    The caller holds the agent's lock. Raises Invalid, NotForThisToken or AgentForgotten.
    """
    check_may_decide(agent, bearer, scopes)
    minted = MintedToken.mint()
    wanted: dict[str, Any] = {"name": name, "scopes": scopes, "how": TokenOrigin.AGENT}
    row = add_token(agent, minted.kept, by=agent.as_actor, shown_to=SHOWN_TO_THE_AGENT, signer=bearer, **wanted)
    return minted.secret, row


def add_token(
    agent: Agent,
    kept: dict[str, Any],
    *,
    by: Actor,
    name: str,
    scopes: Sequence[str],
    how: TokenOrigin,
    shown_to: str,
    request_id: str | None = None,
    signer: Bearer | None = None,
) -> AgentToken:
    """The row of a token, and the statement that it was made: `signer` is the token that decided, if one did.

    The caller holds the agent's lock. Raises Invalid or AgentForgotten.
    """
    decided = {"request_id": request_id, "by_token": signer.public_id if signer else None}
    origin = {"how": how, "shown_to": shown_to} | decided
    opener = signer.opener if signer else None
    return AgentToken.add(agent, kept, by=by, name=name, scopes=scopes, signer=opener, **origin)


def revoke_token(
    agent: Agent,
    public_id: str,
    *,
    by: Actor,
    why: str = "",
    signer: Bearer | None = None,
    spared: Collection[str] = (),
) -> EndedToken:
    """End a token for good, with every token and exception that it let happen, and what those let happen.

    `spared` are public ids that live on with what they let happen: one that takes its place. A token that ends the one
    by which it was made is spared itself. The caller holds the agent's lock and, in this transaction, no row behind
    that; a worker makes a new data key after (`provision_keys`), and `shredding.shred` cleans the disk. Raises NotFound
    or NotForThisToken.
    """
    if signer is not None:
        check_may_decide(agent, signer, ())
        spared = {*spared, signer.public_id} - {public_id}
    ids, opener = _with_descendants(agent, public_id, spared), signer.opener if signer else None
    grants = AccessGrant.by_token.in_(ids), AccessGrant.status.in_(OPEN_GRANTS)
    found = select(AccessGrant).where(AccessGrant.agent_id == agent.id, *grants).order_by(AccessGrant.id)
    ended = db.session.scalars(lock_row(found)).all()
    for grant in ended:
        grant.end(agent, GrantStatus.REVOKED, by=by, why="the token that decided on it was revoked", signer=opener)
    first, *others = [AgentToken.lock(agent, each) for each in ids]
    if not first.is_live:
        return EndedToken(first)
    tokens = [first, *(each for each in others if each.is_live)]
    for token in reversed(tokens):  # what it let be made ends first: its own signature counts until its own end
        told = why if token is first else f"the token {public_id} had let it be made"
        token.revoke(agent, by=by, why=told, signer=opener)
    return EndedToken(first, [each.public_id for each in tokens], [each.id for each in ended])


def rotate_token(agent: Agent, public_id: str, *, by: Actor) -> str:
    """On the server: a new token of the same name and scopes, returned this once; the old one is revoked.

    The caller as of `revoke_token`. Raises NotFound, Refused for one that was revoked already, and AgentForgotten.
    """
    ended = revoke_token(agent, public_id, by=by, why=REPLACED)
    if not ended.was_live:
        raise Refused(f"The token {public_id} was revoked already.", "Nothing was changed; make a new one.")
    return issue_token(agent, by=by, name=ended.token.name, scopes=ended.token.scopes)


def check_may_decide(agent: Agent, bearer: Bearer, scopes: Sequence[str]) -> None:
    """Whether a token of this agent may still decide, and give these scopes: it holds each of them itself.

    Raises Invalid for what is no scope, else NotForThisToken.
    """
    row = db.session.scalar(select(AgentToken).where(AgentToken.id == bearer.id, AgentToken.agent_id == agent.id))
    if row is None or not row.is_live or Scope.DECIDE not in bearer.scopes:
        raise NotForThisToken("The token that you came with was revoked meanwhile, or may not decide.")
    missing = [scope for scope in clean_scopes(scopes) if scope not in bearer.scopes] if scopes else []
    if missing:
        held = ", ".join(bearer.scopes)
        raise NotForThisToken(
            f"A token gives only scopes that it holds itself: this one has {held}, and lacks {', '.join(missing)}. "
            "Decide with a token that has them; or let your model be asked; or have one made on the server."
        )


def _with_descendants(agent: Agent, public_id: str, spared: Collection[str]) -> list[str]:
    """The token, then all that were made by it and by those, but for what is spared with its own."""
    query = select(AgentToken.public_id, AgentToken.by_token).where(AgentToken.agent_id == agent.id)
    made = db.session.execute(query.order_by(AgentToken.id)).tuples().all()
    found = [public_id]
    for each in found:
        found += [child for child, parent in made if parent == each and child not in {*found, *spared}]
    return found
