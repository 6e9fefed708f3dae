"""Statements: what decides who may read, signed; and what was signed elsewhere and is not in their log yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, Integer, LargeBinary, String
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Identity, Model, Moment, partial_index
from app.silo.notes import NoteBroken, NoteVerifier, open_note
from app.silo.statements import STATEMENT, read_text


class StatementKind(StrEnum):
    """What is stated. The values stand in signed texts, so they never change."""

    MASTER_KEY = "master-key"
    WRAPPED_KEYS = "wrapped-keys"
    TOKEN_MADE = "token-made"  # noqa: S105 - a kind's name
    TOKEN_ENDED = "token-ended"  # noqa: S105 - a kind's name
    EXCEPTION_DECIDED = "exception-decided"
    EXCEPTION_ENDED = "exception-ended"
    CONSENT = "consent"
    OWN_REQUEST = "own-request"
    MODEL = "model"
    ERASURE = "erasure"


class LeafKind(StrEnum):
    """The leaves that are no statements: the head of an audit chain, and the time of a checkpoint."""

    CHAIN = "chain"
    TIME = "time"


class LogLeaf(Model):
    """One leaf of the one log, only ever appended. `leaf` is a signed note, or JSON of one line.

    `hash` is the leaf's own of RFC 6962. `signature` is the installation key's of a leaf that is no note. The other
    columns are there to find a leaf by; what it says stands in `leaf` alone.
    """

    __tablename__ = "log_leaves"
    __table_args__ = (
        Index("ix_log_leaves_agent", "agent_id", "position"),
        Index("ix_log_leaves_subject", "subject", "position"),
        partial_index("ix_log_leaves_master", "position", where="kind = 'master-key'"),
    )

    position: Mapped[int] = mapped_column(
        BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False
    )
    kind: Mapped[str] = mapped_column(String(20))
    agent_id: Mapped[int | None] = mapped_column(ForeignKey("agents.id"))
    subject: Mapped[str] = mapped_column(String(120))
    leaf: Mapped[bytes] = mapped_column(LargeBinary)
    hash: Mapped[bytes] = mapped_column(LargeBinary(32))
    signature: Mapped[bytes | None] = mapped_column(LargeBinary)


class SignedRequest(Model):
    """What a web process or an agent's token has signed, until a worker has made a statement of it or refused it.

    `position` is the statement's in the log; `refused` says why there is none.
    """

    __tablename__ = "signed_requests"
    __table_args__ = (partial_index("ix_signed_requests_waiting", "agent_id", "id", where="settled_at IS NULL"),)

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"))
    kind: Mapped[StatementKind] = mapped_column(String(20))
    subject: Mapped[str] = mapped_column(String(120))
    note: Mapped[bytes] = mapped_column(LargeBinary)
    created_at: Mapped[Moment]
    settled_at: Mapped[Moment | None]
    refused: Mapped[str | None] = mapped_column(String(300))


@dataclass(frozen=True)
class Statement:
    """What one statement says, read after its signature was checked. `position` is None until it is in the log."""

    position: int | None
    kind: StatementKind
    subject: str
    account: int | None
    agent: str | None
    at: datetime
    body: Mapping[str, Any]

    @property
    def subject_id(self) -> str:
        """The subject without the word that says what it is."""
        return self.subject.partition(":")[2]


def read_statement(note: bytes, installation: str, signer: NoteVerifier, position: int | None = None) -> Statement:
    """What a note says that `signer` has signed, for this installation. Raises NoteBroken."""
    said = read_text(STATEMENT, open_note(note, signer).text)
    return statement_of(said, installation, position)


def statement_of(said: dict[str, Any], installation: str, position: int | None = None) -> Statement:
    """The object of a signed text. Raises NoteBroken where a field is missing or of another installation."""
    body = dict(said)
    try:
        if body.pop("installation") != installation:
            raise NoteBroken("A statement is of another installation.")
        kind, subject = StatementKind(body.pop("kind")), body.pop("subject")
        account, agent, at = body.pop("account"), body.pop("agent"), datetime.fromisoformat(body.pop("time"))
    except (KeyError, ValueError, TypeError):
        raise NoteBroken("A statement lacks what each has to say.") from None
    return Statement(position, kind, subject, account, agent, at.astimezone(UTC), body)


def signed_text_of(leaf: bytes) -> str:
    """What is signed of a leaf that is no statement."""
    return f"whetstone-leaf/1\n{leaf.decode('utf-8', 'surrogateescape')}\n"
