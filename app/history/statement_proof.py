"""The log of statements, proved: every leaf is the one that was seen before and signed, and every row is as it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from sqlalchemy import ColumnElement, func, select

from app.errors import Unavailable
from app.extensions import db, end_reading, now
from app.history.chain import DAMAGE, Difference, numbered_entry, raise_unless_damage
from app.models import Account, Agent, AuditLog, LogLeaf, SignedRequest
from app.models.log_leaves import FoundLeaf, log_size
from app.models.statement import LeafKind, Statement
from app.models.statement_errors import AgentStopped, LogBroken
from app.models.statement_log import statement_log
from app.silo.merkle import hash_leaf
from app.silo.notes import NoteBroken
from app.statements.all_rows import compare_all_rows, compare_master_keys
from app.statements.checkpointing import check_extends, open_kept, read_checkpoints
from app.statements.settling import foresee

BATCH = 1000

REFUSED_LATELY = timedelta(days=30)


def prove_leaves() -> None:
    """Every leaf, in short reads. Raises Difference."""
    with _as_differences():
        log = statement_log()
        log.catch_up()
        for first in range(0, log.copy.size, BATCH):
            end_reading()
            _prove_batch(first, min(first + BATCH, log.copy.size))


def prove_master_keys() -> None:
    """Raises Difference unless the rows are those of the log."""
    with _as_differences():
        statement_log().catch_up()
        compare_master_keys()


def prove_agent(agent: Agent) -> None:
    """In one snapshot: the agent's own leaves, and its rows against them and what waits. Raises Difference."""
    with _as_differences():
        log = statement_log()
        log.catch_up()
        current = log.replay(agent.id, agent.uuid, log_size(db.session))
        compare_all_rows(agent, foresee(agent, current))


def prove_chain_head(owner: Agent | Account) -> None:
    """The chain still holds the entry that the log of statements names last. Raises Difference."""
    with _as_differences():
        statement_log().catch_up()
    mine = (LogLeaf.subject == owner.chain, LogLeaf.kind == LeafKind.CHAIN)
    newest = select(LogLeaf.position, LogLeaf.leaf).where(*mine).order_by(LogLeaf.position.desc()).limit(1)
    position, said = db.session.execute(newest).tuples().first() or (None, b"")
    if position is not None and hash_leaf(said) != statement_log().copy.hash_at(position):
        raise Difference(f"leaf {position} of the log of statements, which names its end, was altered.")
    head = json.loads(said) if said else {"sequence": 0}
    sequence = int(head["sequence"])
    if owner.logged_sequence != sequence:
        said_so = f"its row says that the log of statements holds entry {owner.logged_sequence}"
        raise Difference(f"{said_so}, and that is entry {sequence}.")
    if not sequence:
        return
    entry = (AuditLog.chain == owner.chain, AuditLog.sequence == sequence)
    found = db.session.execute(select(AuditLog.id, AuditLog.hash).where(*entry)).tuples().first()
    if found is None:
        raise Difference(f"entry {sequence} is missing, whose hash the log of statements holds: the end was cut off.")
    if found[1].hex() != head["hash"]:
        named = numbered_entry(sequence, found[0])
        raise Difference(f"{named} has another hash than the log of statements holds: it was rewritten.", found[0])


def prove_checkpoints(*kept: bytes) -> None:
    """This machine's checkpoints, and those that somebody kept: each is signed, and the log extends it.

    Raises Difference.
    """
    with _as_differences():
        read_checkpoints()
        for note in kept:
            try:
                check_extends(open_kept(note))
            except NoteBroken as error:
                raise Difference(f"The checkpoint that was kept is none of this installation's: {error}") from None


def list_refused(*whose: ColumnElement[bool]) -> tuple[str, ...]:
    """What was signed in the last 30 days and refused, of agents for which conditions hold, in a sentence."""
    lately = (SignedRequest.refused.is_not(None), SignedRequest.settled_at >= now() - REFUSED_LATELY)
    query = select(SignedRequest, Agent.name).join(Agent, Agent.id == SignedRequest.agent_id).where(*lately, *whose)
    newest = db.session.execute(query.order_by(SignedRequest.id.desc()).limit(1)).tuples().first()
    if newest is None:
        return ()
    count = db.session.scalar(select(func.count()).select_from(query.subquery()))
    request, name = newest
    return (f"Refused of what was signed lately: {count:,}. The newest: {request.kind} of {name}. {request.refused}",)


def _prove_batch(first: int, end: int) -> None:
    columns = (LogLeaf.position, LogLeaf.kind, LogLeaf.subject, LogLeaf.leaf, LogLeaf.signature)
    query = select(*columns, LogLeaf.hash, LogLeaf.agent_id, Agent.uuid).outerjoin(Agent, Agent.id == LogLeaf.agent_id)
    within = query.where(LogLeaf.position >= first, LogLeaf.position < end)
    rows = db.session.execute(within.order_by(LogLeaf.position)).tuples().all()
    for position, (*_, hash_, agent_id, agent) in enumerate(rows, first):
        leaf = FoundLeaf(*rows[position - first][:5])
        if leaf.position != position:
            raise Difference(f"Leaf {position} of the log of statements is missing.")
        _prove_leaf(leaf, hash_, agent_id, agent)
    if len(rows) < end - first:
        raise Difference(f"Leaf {first + len(rows)} of the log of statements is missing.")


def _prove_leaf(leaf: FoundLeaf, hash_: bytes, agent_id: int | None, agent: str | None) -> None:
    log, named = statement_log(), f"Leaf {leaf.position} of the log of statements"
    try:
        if hash_leaf(leaf.leaf) != log.copy.hash_at(leaf.position):
            raise Difference(f"{named} was altered: it is not the one that was seen before.", agent_id=agent_id)
        said: Statement | None = log.keys.check_leaf(leaf)
        if leaf.kind == LeafKind.CHAIN and json.loads(leaf.leaf)["chain"] != leaf.subject:
            raise Difference(f"{named} stands in a row that names another chain.")
    except NoteBroken as error:
        raise Difference(f"{named} does not hold: {error.sentence}", agent_id=agent_id) from None
    except DAMAGE as error:
        raise_unless_damage(error)
        raise Difference(f"{named} can't be read: it was damaged.", agent_id=agent_id) from None
    if hash_ != hash_leaf(leaf.leaf) or agent != (said.agent if said else None):
        raise Difference(f"{named} stands in a row with another hash, or of another agent.", agent_id=agent_id)


@contextmanager
def _as_differences() -> Iterator[None]:
    try:
        yield
    except AgentStopped as stopped:
        raise Difference(f"{stopped.what}.", agent_id=stopped.agent_id) from None
    except (LogBroken, Unavailable) as error:
        raise Difference(error.sentence) from None
