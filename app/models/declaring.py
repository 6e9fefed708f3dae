"""Declaring: the one door to make a statement about an agent, from any process.

Who holds the master key states it at once. The web process leaves what it, or the agent's own token, has signed: a
worker makes the statement of it (`app/statements/settling`), which it is told to as soon as that is committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flask import current_app

from app.extensions import after_commit, db, now
from app.models.appending import Whose, append_statement, compose_statement
from app.models.master_key import holds_master_key
from app.models.statement import SignedRequest, StatementKind
from app.models.statement_log import statement_log
from app.silo import AgentKeys, TokenKey
from app.silo.notes import SigningKey, sign_note
from app.silo.statements import REQUEST, STATEMENT, compose_text, salted_hash
from app.silo.webkey import WebKey

if TYPE_CHECKING:
    from app.models.agent import Agent


def declare(
    kind: StatementKind, agent: Agent, subject: str, body: Mapping[str, Any], *, signer: TokenKey | None = None
) -> None:
    """State something of an agent that the caller has locked, in the open `writing()` transaction.

    `body` is plain JSON, as `docs/statements.md` lists it by kind. `signer` is the token that decided it. Raises
    LogBroken, or Unavailable where this process can't sign.
    """
    of = Whose(agent.account_id, agent.id, agent.uuid)
    token = None if signer is None else signer.signing_key(statement_log().installation)
    if holds_master_key():
        append_statement(kind, subject, body, of, cosigners=() if token is None else (token,))
        return
    said = compose_statement(kind, subject, body, of)
    text = compose_text(REQUEST if token is None else STATEMENT, said)
    note = sign_note(text, token or web_key())
    db.session.add(SignedRequest(agent_id=agent.id, kind=kind, subject=subject, note=note, created_at=now()))
    settle_soon = current_app.extensions["settle_soon"]
    after_commit(lambda: settle_soon(agent.id))


def sign_request(heading: str, said: Mapping[str, Any], signer: TokenKey | None = None) -> bytes:
    """A note about something that the worker is asked for: by the agent's token, else by this web process.

    The command line on the same host has the same key.
    """
    key = web_key() if signer is None else signer.signing_key(statement_log().installation)
    return sign_note(compose_text(heading, said), key)


def sign_for_agent(heading: str, said: Mapping[str, Any], signer: TokenKey | None) -> bytes:
    """A note about what the agent itself wants: by its token, or where the master key is at hand by the installation.

    A web process without a token signs as itself, which the worker does not take for the agent.
    """
    if signer is None and holds_master_key():
        return sign_note(compose_text(heading, said), statement_log().keys.signing_key())
    return sign_request(heading, said, signer)


def hash_words(keys: AgentKeys | None, subject: str, question: str | None, reply: str) -> dict[str, str | None]:
    """What a statement says of a question and its answer: salted hashes, of which the agent alone knows the salt."""
    if keys is None:
        return {"question": None, "reply": None}
    salt = keys.salt(subject)
    asked = None if question is None else salted_hash(salt, question)
    return {"question": asked, "reply": salted_hash(salt, reply) if reply else None}


def web_key() -> SigningKey:
    """What the web process signs with, from its own disk; made at its first start. Raises WebKeyError."""
    held = current_app.extensions.get("web_key")
    if held is None:
        held = current_app.extensions["web_key"] = WebKey.load_or_make(current_app.extensions["settings"].web_key_path)
    if not isinstance(held, SigningKey):
        raise TypeError("the web key is no key")
    return held
