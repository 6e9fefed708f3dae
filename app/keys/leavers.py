"""What somebody who leaves may take along: tokens whose secret they saw, and settings of agents that they wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select

from app.errors import NotFound
from app.extensions import db, writing
from app.keys.provision import settle_keys
from app.keys.tokens import EndedToken, revoke_token
from app.models.agent import Agent
from app.models.audit import Action, AuditLog
from app.models.key import AgentToken
from app.models.user import Account, User
from app.values.actor import Actor

CHANGES = 200
"""The newest that are listed; the audit log has them all."""


@dataclass(frozen=True)
class WrittenSettings:
    """One change of an agent's settings: the fields that it changed, never their values."""

    agent: str
    fields: list[str]
    at: datetime


def deactivate_user(email: str, *, by: Actor, account_id: int | None = None) -> tuple[User, bool]:
    """Deactivate the user of that address; returns whether they were active. Raises NotFound."""
    with changing_user(email, account_id) as (account, user):
        was_active = user.deactivate(account, by=by)
    return user, was_active


@contextmanager
def changing_user(email: str, account_id: int | None = None) -> Iterator[tuple[Account, User]]:
    """A write transaction that holds the account of the user of that address: in this account, or in any.

    Raises NotFound.
    """
    known = db.session.scalar(select(User).where(User.email == email.strip().lower()))
    if known is None or account_id not in (None, known.account_id):
        raise NotFound(f"There is no user {email!r}.")
    account_id, user_id = known.account_id, known.id
    with writing():
        account = Account.lock(account_id)
        yield account, User.of_account(account, user_id)


def tokens_shown_to(user: User) -> list[tuple[Agent, AgentToken]]:
    """Those that work, of the account's agents, whose secret this user saw; by agent."""
    query = select(Agent, AgentToken).join(AgentToken, AgentToken.agent_id == Agent.id)
    shown = (AgentToken.shown_to == user.email, AgentToken.revoked_at.is_(None))
    found = query.where(Agent.account_id == user.account_id, *shown).order_by(Agent.name, AgentToken.id)
    return [row._tuple() for row in db.session.execute(found)]


def end_tokens_shown_to(user: User, *, by: Actor) -> Iterator[EndedToken]:
    """Revoke each of them, with what it let happen, and make the agents' new data keys: the master key is at hand."""
    return _revoke_tokens(user, by, lambda agent: settle_keys(agent, by=by))


def revoke_tokens_shown_to(user: User, *, by: Actor) -> Iterator[EndedToken]:
    """The same where no master key is at hand: a worker is asked for the new data keys after (`tasks.keys`)."""
    return _revoke_tokens(user, by, lambda _: None)


def _revoke_tokens(user: User, by: Actor, settle: Callable[[Agent], object]) -> Iterator[EndedToken]:
    why = f"{user.email} was shown it, and was deactivated"
    for agent_id, public_id in [(agent.id, token.public_id) for agent, token in tokens_shown_to(user)]:
        with writing():
            agent = Agent.lock(agent_id)
            ended = revoke_token(agent, public_id, by=by, why=why)
            settle(agent)
        if ended.was_live:
            yield ended


def changes_made_by(user: User) -> list[WrittenSettings]:
    """What this user changed of agents' settings, newest first: prompts, models and addresses, among others."""
    query = select(AuditLog, Agent.name).join(Agent, Agent.id == AuditLog.agent_id)
    mine = (AuditLog.user_id == user.id, AuditLog.action == Action.AGENT_SETTINGS_UPDATE)
    found = db.session.execute(query.where(*mine).order_by(AuditLog.at.desc(), AuditLog.id.desc()).limit(CHANGES))
    return [WrittenSettings(name, sorted(entry.data.get("after", {})), entry.at) for entry, name in found.tuples()]
