"""Appending: what gets a place in the log of statements when the open transaction commits, and is signed for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sqlalchemy import text

from app.extensions import after_commit, before_commit, db, is_sqlite, now
from app.models.base import insert_rows, iso
from app.models.log_leaves import log_size
from app.models.master_key import holds_master_key
from app.models.pending_leaves import PendingLeaf, pending_leaves
from app.models.statement import LeafKind, Statement, StatementKind, signed_text_of, statement_of
from app.models.statement_log import StatementLog, statement_log
from app.silo.notes import NoteVerifier, SigningKey, sign_note
from app.silo.statements import STATEMENT, compose_text

_APPENDING = 0x57E9
_WHILE_APPENDING = text("SELECT pg_advisory_xact_lock(:number)").bindparams(number=_APPENDING)


class Whose(NamedTuple):
    """The account and the agent that a statement is about, if any."""

    account: int | None
    agent_id: int | None
    agent: str | None


NOBODY = Whose(None, None, None)


def compose_statement(kind: StatementKind, subject: str, body: Mapping[str, Any], of: Whose) -> dict[str, Any]:
    """What a signed text says: the fields that each has, and those of its kind."""
    base = {"installation": statement_log().installation, "kind": str(kind), "account": of.account, "agent": of.agent}
    return dict(body) | base | {"subject": subject, "time": iso(now())}


def append_statement(
    kind: StatementKind,
    subject: str,
    body: Mapping[str, Any],
    of: Whose = NOBODY,
    *,
    cosigners: Sequence[SigningKey] = (),
) -> None:
    """Append a statement when the open transaction commits. Raises Unavailable without the master key."""
    log = statement_log()
    said = compose_statement(kind, subject, body, of)
    signer = log.keys.signing_key()
    note = sign_note(compose_text(STATEMENT, said), signer, *cosigners)
    append_note(note, statement_of(said, log.installation), of.agent_id, signer.verifier)


def append_note(note: bytes, said: Statement, agent_id: int | None, signed_by: NoteVerifier | None = None) -> None:
    """The same for a note that is signed already; `signed_by` where that was by the installation's key, just now."""
    _append(PendingLeaf(said.kind, said.subject, agent_id, said.agent, note, None, said, signed_by))


def append_leaf(kind: LeafKind, subject: str, leaf: bytes) -> None:
    """Append a leaf that is no statement, signed beside it."""
    signer = statement_log().keys.signing_key()
    _append(PendingLeaf(kind, subject, None, None, leaf, signer.sign(signed_text_of(leaf)), None, signer.verifier))


def _append(leaf: PendingLeaf) -> None:
    pending = pending_leaves()
    if not pending:
        before_commit(_insert_pending, first=True)
    pending.append(leaf)


def _insert_pending() -> None:
    """One of the last things of a transaction, so that the log is locked for a moment only."""
    session, log = db.session(), statement_log()
    pending = list(pending_leaves())
    session.flush()
    if not is_sqlite(session):
        session.execute(_WHILE_APPENDING)
    first = log_size(db.session)
    log.keep_up(first)
    pending = [_signed_now(leaf, log) for leaf in pending]
    insert_rows([leaf.row_at(position) for position, leaf in enumerate(pending, first)])
    after_commit(lambda: log.extend(first, pending))


def _signed_now(leaf: PendingLeaf, log: StatementLog) -> PendingLeaf:
    """The leaf as the key in force signs it: a rotation may have come between its signature and its place."""
    if leaf.kind == StatementKind.MASTER_KEY or not holds_master_key():
        return leaf
    if leaf.signed_by == log.keys.verifier:
        return leaf
    if leaf.said is None:
        return replace(leaf, signature=log.keys.signing_key().sign(signed_text_of(leaf.leaf)))
    text_, _, lines = leaf.leaf.decode().rpartition("\n\n")
    mine, others = sign_note(f"{text_}\n", log.keys.signing_key()), lines.split("\n")[1:]
    return replace(leaf, leaf=mine + "\n".join(others).encode())
