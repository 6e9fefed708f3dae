"""Receipts: one statement of the log, with what proves to who has the installation's public key that it is there.

Content stands in none: statements hold hashes of questions and answers, and what admins see anyway.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Select, select

from app.errors import NotFound, Unavailable
from app.extensions import db, now
from app.models.keyset import Keyset
from app.models.statement import LogLeaf, SignedRequest, Statement, StatementKind, read_statement
from app.models.statement_log import statement_log
from app.silo.checkpoints import InclusionProof, check_proof, format_proof, open_checkpoint, parse_proof
from app.silo.merkle import ProofBroken, hash_leaf
from app.silo.notes import NoteBroken, NoteVerifier
from app.statements.checkpointing import latest_checkpoint

NEWEST_LEAVES = Keyset((LogLeaf.position,), newest_first=True)

EVERY = timedelta(hours=1)
"""How far apart checkpoints are at most."""

SUBJECTS = ("exception", "token-request", "change", "refinement", "token")
"""What a UUID, or a token's public id, may name."""

Agents = Select[tuple[int]]
"""Whose statements somebody may see: a query of the agents' ids."""

_SEPARATOR = b"\n\nc2sp.org/tlog-proof@v1\n"
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)
_NAME = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{16}", re.ASCII)
_NO_RECEIPT = "There is no such statement, or it is about somebody else."


class ReceiptPending(Unavailable):
    """The statement is made, and nothing proves yet that it is in the log."""

    code = "receipt_pending"

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(frozen=True)
class ReceiptLine:
    """A statement in a list: its place in the log, and the answer where it is one."""

    index: int
    kind: StatementKind
    subject: str
    at: datetime
    granted: bool | None

    @property
    def answer(self) -> str | None:
        """YES or NO; None for what is no answer."""
        return None if self.granted is None else "YES" if self.granted else "NO"


@dataclass(frozen=True)
class Receipt:
    """One statement, as it was signed, and the proof that it is in the log. All of it is text."""

    said: Statement
    index: int
    statement: bytes
    proof: bytes
    checkpoint: bytes

    @property
    def file(self) -> bytes:
        """Statement and proof, which ends with the checkpoint, as one text."""
        return self.statement + b"\n" + self.proof


@dataclass(frozen=True)
class CheckedReceipt:
    """What a receipt proves. `size`: how many leaves the log had at the checkpoint."""

    said: Statement
    index: int
    size: int


def list_receipts(agent_id: int, limit: int, before: int | None = None) -> tuple[list[ReceiptLine], int | None]:
    """Statements about an agent, the newest first, and the place before which others follow.

    Those about sealed keys are left out: nobody decided on them. Raises AgentStopped or LogBroken.
    """
    log = statement_log()
    log.catch_up()
    query = select(LogLeaf).where(LogLeaf.agent_id == agent_id, LogLeaf.kind != StatementKind.WRAPPED_KEYS)
    leaves, last = NEWEST_LEAVES.load(query, limit, None if before is None else (before,))
    read = [(leaf.position, log.read_leaf(leaf, leaf.agent_id)) for leaf in leaves]
    lines = [ReceiptLine(place, said.kind, said.subject, said.at, said.body.get("granted")) for place, said in read]
    return lines, last.position if last else None


def find_receipts(subjects: Sequence[str], agents: Agents) -> dict[str, int]:
    """Of each subject its first statement's place in the log: the decision, where it was ended later."""
    query = select(LogLeaf.subject, LogLeaf.position).where(LogLeaf.subject.in_(subjects), LogLeaf.agent_id.in_(agents))
    return dict(db.session.execute(query.order_by(LogLeaf.position.desc())).tuples().all())


def find_index(name: str, agents: Agents) -> int:
    """The place in the log of the statement that `name` means: its number there, or the id of what it is about.

    Only statements about these agents. Raises NotFound, or ReceiptPending while no worker has made the statement of
    what was signed.
    """
    if _NUMBER.fullmatch(name):
        query = select(LogLeaf.position).where(LogLeaf.position == int(name), LogLeaf.agent_id.in_(agents))
        found = db.session.scalar(query)
    else:
        found = _find_by_subject(name, agents) if _NAME.fullmatch(name) else None
    if found is None:
        raise NotFound(_NO_RECEIPT)
    return found


def is_covered(index: int) -> bool:
    """Whether the newest checkpoint that this process can trust has that leaf."""
    return _find_checkpoint(index) is not None


def make_receipt(index: int) -> Receipt:
    """The receipt of the leaf at that place.

    Raises NotFound for a leaf that is no statement, ReceiptPending where no checkpoint covers it yet, and AgentStopped
    or LogBroken where the leaf is not as it was.
    """
    leaf = db.session.get(LogLeaf, index)
    if leaf is None or leaf.kind not in list(StatementKind):
        raise NotFound(_NO_RECEIPT)
    log = statement_log()
    log.catch_up()
    said, covered = log.read_leaf(leaf, leaf.agent_id), _find_checkpoint(index)
    if covered is None:
        raise _pending_error()
    note, size = covered
    hashes = tuple(log.copy.tree.inclusion_proof(index, size))
    return Receipt(said, index, leaf.leaf, format_proof(InclusionProof(index, hashes, note)), note)


def check_receipt(body: bytes, *verifiers: NoteVerifier) -> CheckedReceipt:
    """What a receipt proves to who has the installation's public keys, and needs nothing else.

    Raises NoteBroken or ProofBroken.
    """
    head, separator, rest = body.partition(_SEPARATOR)
    if not separator:
        raise ProofBroken("This is no receipt: a statement and its proof, as one text.")
    statement, proof, name = head + b"\n", separator[2:] + rest, verifiers[0].name
    said = _read_by_any(statement, name.removeprefix("whetstone/"), verifiers)
    checkpoint = check_proof(proof, hash_leaf(statement), name, *verifiers)
    return CheckedReceipt(said, parse_proof(proof).index, checkpoint.size)


def _find_by_subject(name: str, agents: Agents) -> int | None:
    subjects = [f"{word}:{name}" for word in SUBJECTS]
    found = find_receipts(subjects, agents)
    waits = (SignedRequest.subject.in_(subjects), SignedRequest.settled_at.is_(None))
    waiting = select(SignedRequest.id).where(*waits, SignedRequest.agent_id.in_(agents)).limit(1)
    if not found and db.session.scalar(waiting) is not None:
        raise ReceiptPending("It is signed; a worker makes the statement of it in a moment.", 1)
    return min(found.values(), default=None)


def _find_checkpoint(index: int) -> tuple[bytes, int] | None:
    """The newest one's note and size, where it is signed, is of the log as this process knows it, and has the leaf."""
    log, note = statement_log(), latest_checkpoint()
    log.catch_up()
    if note is None:
        return None
    try:
        checkpoint = open_checkpoint(note, log.keys.verifier.name, log.keys.verifier)
    except NoteBroken:
        return None
    if not index < checkpoint.size <= log.copy.size or log.copy.root(checkpoint.size) != checkpoint.root:
        return None
    return note, checkpoint.size


def _pending_error() -> ReceiptPending:
    until = now() + EVERY
    sentence = f"It is in the log; the hourly checkpoint will cover it at the latest at {until:%H:%M} UTC."
    return ReceiptPending(sentence, 60)


def _read_by_any(note: bytes, installation: str, verifiers: Sequence[NoteVerifier]) -> Statement:
    broken: NoteBroken | None = None
    for verifier in verifiers:
        try:
            return read_statement(note, installation, verifier)
        except NoteBroken as error:
            broken = error
    raise broken or NoteBroken("No key was given to check it with.")
