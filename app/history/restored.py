"""After a restore from a backup: what the backup must not undo is done again, then its log is the one that counts.

The copy outside the database is longer than a restored log; nothing is opened until somebody on the worker's host says
that this is right. Revocations and erasures that the backup lacks are kept whole outside the database: they come first.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from flask import current_app
from sqlalchemy import select

from app.errors import NotFound, Refused
from app.extensions import db, now, reading, writing
from app.history.erasing import MemoryErased, erase_memory
from app.history.reversing import end_unread
from app.keys.provision import settle_keys
from app.keys.tokens import revoke_token
from app.models import COMMAND_LINE, AccessGrant, Agent, GrantStatus, Memory, Refinement, Status
from app.models.appending import append_leaf
from app.models.base import iso
from app.models.log_leaves import log_size
from app.models.master_key import key_ring
from app.models.statement import LeafKind, LogLeaf, Statement, StatementKind, read_statement
from app.models.statement_errors import LogBroken
from app.models.statement_log import statement_log
from app.silo import MasterKey
from app.silo.keptnotes import KeptNotes
from app.silo.logcopy import LogCopy
from app.silo.merkle import hash_leaf
from app.silo.notes import NoteBroken, NoteVerifier

WHY = "it had ended before, and a backup brought it back"


class NothingToAccept(Refused):
    """The log of statements goes on from its copy outside of the database: no backup from before it was put back."""

    code = "nothing_to_accept"
    outcome = "Nothing was changed."


@dataclass(frozen=True)
class RestoredLog:
    """A log that a backup put back: its leaves and those that the copy has, and what is done again.

    `kept` are the notes of that, with their places. `is_accepted`: an earlier command accepted it, and did not finish.
    """

    leaves: int
    seen: int
    is_accepted: bool
    kept: Sequence[tuple[int, bytes]]
    again: Sequence[Statement]

    def count(self, kind: StatementKind) -> int:
        """How many of a kind are done again."""
        return sum(said.kind is kind for said in self.again)


def examine_restored_log() -> RestoredLog:
    """What `accept_restored_log` would do; writes nothing. Raises NothingToAccept or LogBroken."""
    log = statement_log()
    with reading():
        size = log_size(db.session)
        log.copy.load()
        is_accepted = _is_extended(size)
    unfinished = _unfinished().read()
    if is_accepted and not unfinished:
        raise NothingToAccept
    kept, verifiers = sorted({*unfinished, *_find_lost()}), _known_verifiers()
    again = [_read_kept(note, place, verifiers) for place, note in kept]
    return RestoredLog(size, log.copy.size, is_accepted, kept, again)


def accept_restored_log() -> RestoredLog:
    """Take the database's log for the one that counts, and do again what the backup must not undo.

    The copy of before is kept beside the new one. Whoever is interrupted runs it again: it goes on from there. Raises
    NothingToAccept, or LogBroken where the restored log is none of this installation's.
    """
    found = examine_restored_log()
    before = statement_log()
    accepted = {"size": found.leaves, "root": before.copy.root(min(found.leaves, found.seen)).hex()}
    unfinished = _unfinished()
    unfinished.add(found.kept)
    if not found.is_accepted:
        _put_aside(before.copy)
    statement_log().catch_up()
    for said in found.again:
        _do_again(said)
    unfinished.path.unlink(missing_ok=True)
    with writing():
        append_leaf(LeafKind.TIME, "accepted", json.dumps({"accepted": accepted, "time": iso(now())}).encode())
    return found


def _unfinished() -> KeptNotes:
    """What is still to be done again: it survives whatever interrupts that, beside a copy that is a new one already."""
    return KeptNotes(statement_log().copy.path.with_name("again"))


def _find_lost() -> list[tuple[int, bytes]]:
    """What was kept and stood in the log of before, and does not stand in the restored one."""
    log = statement_log()
    return [
        (place, note)
        for place, note in log.checked.kept.read()
        if place < log.copy.size and log.copy.hash_at(place) == hash_leaf(note) and not _holds(place, note)
    ]


def _put_aside(copy: LogCopy) -> None:
    """The copy and the checkpoints of before; this process begins a new one."""
    stamp = f"{now():%Y%m%dT%H%M%S}"
    copy.archive(stamp)
    with suppress(FileNotFoundError):
        checkpoints = copy.path.with_name("checkpoints")
        checkpoints.rename(checkpoints.with_name(f"checkpoints.{stamp}"))
    current_app.extensions.pop("statement_log")


def _is_extended(size: int) -> bool:
    """Whether the database's log goes on from what the copy has, leaf by leaf."""
    copy = statement_log().copy
    if size < copy.size:
        return False
    hashes = db.session.scalars(select(LogLeaf.hash).where(LogLeaf.position < copy.size).order_by(LogLeaf.position))
    return all(found == copy.hash_at(place) for place, found in enumerate(hashes))


def _holds(place: int, note: bytes) -> bool:
    with reading() as session:
        return session.scalar(select(LogLeaf.leaf).where(LogLeaf.position == place)) == note


def _known_verifiers() -> list[NoteVerifier]:
    """The installation's keys by the restored log, and those of every master key that lies here: it may be older."""
    log, ring = statement_log(), key_ring()
    found = [verifier for _, verifier in log.keys.verifiers]
    for path in (ring.path, *ring.kept()):
        verifier = MasterKey.load(path).installation_key(log.installation).verifier
        if verifier not in found:
            found.append(verifier)
    return found


def _read_kept(note: bytes, place: int, verifiers: Sequence[NoteVerifier]) -> Statement:
    """Raises LogBroken for one that this installation did not sign."""
    for verifier in verifiers:
        with suppress(NoteBroken):
            return read_statement(note, statement_log().installation, verifier, place)
    raise LogBroken(f"the kept statement of leaf {place} is signed by no key that is here")


def _do_again(said: Statement) -> None:
    """Each in transactions of its own; what the backup does not know needs no end."""
    with reading() as session:
        agent_id = session.scalar(select(Agent.id).where(Agent.uuid == said.agent, Agent.forgotten_at.is_(None)))
    if agent_id is None:
        return
    match said.kind:
        case StatementKind.TOKEN_ENDED:
            with suppress(NotFound), writing():
                revoke_token(Agent.lock(agent_id), said.subject_id, by=COMMAND_LINE, why=WHY)
            with writing():
                settle_keys(Agent.lock(agent_id), by=COMMAND_LINE)
        case StatementKind.EXCEPTION_ENDED:
            with suppress(NotFound), writing():
                agent = Agent.lock(agent_id)
                AccessGrant.lock(said.subject_id).end(agent, GrantStatus.REVOKED, by=COMMAND_LINE, why=WHY)
        case StatementKind.ERASURE:
            _stop_open_refinement(agent_id)
            _release(agent_id, int(said.subject_id))
            with suppress(NotFound, MemoryErased):
                erase_memory(agent_id, int(said.subject_id), by=COMMAND_LINE, reason=WHY, is_again=True)


def _release(agent_id: int, memory_id: int) -> None:
    """It was not constitutional any more when it was erased; the database lets nobody discard one that is."""
    with suppress(NotFound), writing():
        agent = Agent.lock(agent_id)
        memory = Memory.lock_core(agent, memory_id)
        if memory.constitutional:
            memory.release(agent, by=COMMAND_LINE)


def _stop_open_refinement(agent_id: int) -> None:
    with writing():
        running = Refinement.open_of(agent_id)
        if running is not None:
            running = Refinement.lock(running.id)
            end_unread(running, Agent.lock(agent_id), Status.STOPPED, "A backup was restored.", by=COMMAND_LINE)
