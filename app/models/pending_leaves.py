"""Leaves that the open transaction is going to append to the log of statements: they wait on its session."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import event
from sqlalchemy.orm import Session

from app.extensions import db
from app.models.statement import LogLeaf, Statement
from app.silo.merkle import hash_leaf
from app.silo.notes import NoteVerifier

_PENDING = "statements of this transaction"


@dataclass(frozen=True)
class PendingLeaf:
    """A leaf that is appended when its transaction commits. `said` is None for one that is no statement, `signed_by`
    where somebody else has signed it.
    """

    kind: str
    subject: str
    agent_id: int | None
    agent: str | None
    leaf: bytes
    signature: bytes | None
    said: Statement | None
    signed_by: NoteVerifier | None = None

    def row_at(self, position: int) -> LogLeaf:
        """Its row, where that is its place in the log."""
        return LogLeaf(
            position=position,
            kind=str(self.kind),
            agent_id=self.agent_id,
            subject=self.subject,
            leaf=self.leaf,
            hash=hash_leaf(self.leaf),
            signature=self.signature,
        )


def pending_leaves() -> list[PendingLeaf]:
    """The open transaction's own, in their order."""
    found: list[PendingLeaf] = db.session().info.setdefault(_PENDING, [])
    return found


@event.listens_for(Session, "after_commit")
@event.listens_for(Session, "after_rollback")
def _forget_pending(session: Session) -> None:
    session.info.pop(_PENDING, None)
