"""The overview's lines of what waits to be decided on: exceptions, tokens, and prompts that are held."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from flask import url_for
from sqlalchemy import BindParameter, bindparam, exists, select

from app.extensions import db, read_rows
from app.models import AccessGrant, Agent, ProposalStatus, SettingProposal, TokenRequest
from app.models.grant import GrantStatus
from app.prepared import Prepared
from app.values.plural import count_nouns
from app.views.shown.attention import SHOWN, Attention

LOOKED_AT = 100
"""Of each kind."""


def pending_decisions(account_id: int) -> list[Attention]:
    waits = _look(account_id)
    return [
        *(_waiting_exceptions(account_id) if waits.exceptions else ()),
        *(_waiting_tokens(account_id) if waits.tokens else ()),
        *(_held_prompts(account_id) if waits.prompts else ()),
    ]


class _Waiting(NamedTuple):
    """Whether any exception, token or prompt of the account's agents waits to be decided on."""

    exceptions: bool
    tokens: bool
    prompts: bool


def _look(account_id: int) -> _Waiting:
    """In one statement: mostly nothing does."""
    return _Waiting(*read_rows(_waiting_query(), {"account_id": account_id})[0])


@cache
def _waiting_query() -> Prepared:
    account_id: BindParameter[int] = bindparam("account_id")
    waiting = select(
        exists().where(AccessGrant.account_id == account_id, AccessGrant.status == GrantStatus.PENDING),
        exists().where(TokenRequest.account_id == account_id, TokenRequest.waits()),
        exists().where(SettingProposal.account_id == account_id, SettingProposal.status == ProposalStatus.HELD),
    )
    return Prepared(waiting)


def _waiting_exceptions(account_id: int) -> list[Attention]:
    """Exceptions that their agents have not decided on."""
    mine = (AccessGrant.account_id == account_id, AccessGrant.status == GrantStatus.PENDING)
    query = select(AccessGrant.id, Agent.name, AccessGrant.minutes).join(Agent, Agent.id == AccessGrant.agent_id)
    found = db.session.execute(query.where(*mine).order_by(AccessGrant.requested_at).limit(LOOKED_AT)).all()
    items = [
        (name, url_for("exceptions.show", exception_id=number), f"{minutes} min") for number, name, minutes in found
    ]
    text = "Their agents are being asked. Nobody reads a memory before a YES."
    return _asked("Exceptions", "exception", "eye", text, items, url_for("exceptions.index"))


def _waiting_tokens(account_id: int) -> list[Attention]:
    """Tokens that admins asked for, and that their agents have not decided on."""
    mine = (TokenRequest.account_id == account_id, TokenRequest.waits())
    query = select(TokenRequest.name, Agent.id, Agent.name).join(Agent, Agent.id == TokenRequest.agent_id)
    found = db.session.execute(query.where(*mine).order_by(TokenRequest.requested_at).limit(LOOKED_AT)).all()
    items = [(agent, url_for("tokens.index", agent_id=number), name) for name, number, agent in found]
    text = "Their agents are being asked. Nobody gets in with them before a YES."
    return _asked("Token requests", "token request", "key", text, items)


def _asked(
    title: str, noun: str, icon: str, text: str, items: Sequence[tuple[str, str, str]], url: str = ""
) -> list[Attention]:
    if not items:
        return []
    count = len(items)
    line = f"{items[0][0]}: {items[0][2]}{' and others' if count > 1 else ''}. {text}"
    facts: dict[str, Any] = {"kind": "waiting", "short": count_nouns(count, noun), "count": count, "line": line}
    return [Attention("ask", icon, f"{title}: {count} waiting", text, items[:SHOWN], url=url or items[0][1], **facts)]


def _held_prompts(account_id: int) -> list[Attention]:
    """Prompts that agents wrote for themselves, and that the safety reading did not let through."""
    mine = (SettingProposal.account_id == account_id, SettingProposal.status == ProposalStatus.HELD)
    query = select(SettingProposal.field, Agent.id, Agent.name).join(Agent, Agent.id == SettingProposal.agent_id)
    found = db.session.execute(query.where(*mine).order_by(SettingProposal.proposed_at).limit(LOOKED_AT)).all()
    if not found:
        return []
    items = [
        (name, url_for("settings.show", agent_id=number), field.replace("_", " ")) for field, number, name in found
    ]
    count, text = len(found), "What an agent wrote for itself does not apply until an admin has read it."
    facts: dict[str, Any] = {"kind": "waiting", "short": f"{count_nouns(count, 'prompt')} held", "count": count}
    facts |= {"line": f"{items[0][0]}: {items[0][2]}. {text}", "url": items[0][1]}
    return [Attention("ask", "lock", f"Held: {_count_or_more(count, 'prompt')}", text, items[:SHOWN], **facts)]


def _count_or_more(count: int, noun: str) -> str:
    words = count_nouns(count, noun)
    return f"{words} or more" if count >= LOOKED_AT else words
