"""Intake: content that came in through the web, sealed to the master public key until the worker takes it in."""

from __future__ import annotations

import hashlib
import uuid
from datetime import timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import ForeignKey, LargeBinary, String, Text, select
from sqlalchemy.orm import Mapped, mapped_column

from app.extensions import db, now
from app.models.agent import Agent
from app.models.base import Lockable, Model, Moment, Question, lock_row
from app.models.declaring import sign_request
from app.models.event import announce
from app.models.master_key import master_key
from app.models.statement_log import master_public_key
from app.silo import MasterPublicKey, TokenKey, open_intake, seal_intake
from app.silo.intake import OpenedIntake
from app.values.actor import Actor, ActorKind

IMPORT, CONVERSATION = "import", "conversation"

INTAKE = "whetstone-intake/1"
"""The heading of what is signed of one."""

LOST_AFTER = timedelta(seconds=60)


class IntakeStatus(StrEnum):
    WAITING = "waiting"
    TAKEN = "taken"
    FAILED = "failed"


class Intake(Lockable, Question, Model):
    """`sealed` is emptied once taken in or refused; `reader` is the fingerprint of the master key that opens it.

    `imported` counts memories, `outcome` holds further numbers; `error` never holds content. What the agent's
    model is asked about is a conversation.
    """

    __tablename__ = "intakes"
    NOUN = "intake"

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"), index=True)
    kind: Mapped[str] = mapped_column(String(16))
    actor_kind: Mapped[str] = mapped_column(String(8))
    actor_name: Mapped[str] = mapped_column(String(300))
    actor_user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    status: Mapped[IntakeStatus] = mapped_column(String(16))
    sealed: Mapped[bytes | None] = mapped_column(LargeBinary)
    reader: Mapped[str | None] = mapped_column(String(16))
    format: Mapped[str | None] = mapped_column(String(16))
    name: Mapped[str | None] = mapped_column(String(80))
    outcome: Mapped[dict[str, Any] | None]
    imported: Mapped[int | None]
    error: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[Moment]
    taken_at: Mapped[Moment | None]

    @classmethod
    def receive(
        cls,
        agent: Agent,
        text: str,
        *,
        by: Actor,
        kind: str = IMPORT,
        format: str | None = "jsonl",
        name: str | None = None,
        signer: TokenKey | None = None,
    ) -> Intake:
        """Keep what was handed in, checked by the caller, sealed so that only the worker can read it.

        `format` is what a file of memories was recognised as (`app/exchange/parsed.py`), `name` the file's own, if it
        has one. A conversation, a transcript in JSON, has neither: a worker asks the agent's model about it.
        `signer` is the agent's token where that hands it in. Raises AgentForgotten.
        """
        agent.check_not_forgotten()
        master = master_public_key()
        intake = cls(
            id=str(uuid.uuid4()),
            account_id=agent.account_id,
            agent_id=agent.id,
            kind=kind,
            actor_kind=by.kind,
            actor_name=by.name,
            actor_user_id=by.user_id,
            status=IntakeStatus.WAITING,
            reader=master.fingerprint,
            format=format,
            name=name or format,
            created_at=now(),
        )
        note = sign_request(INTAKE, intake.signed_fields(agent, text), signer)
        intake.sealed = seal_intake(text, note, intake_id=intake.id, agent_uuid=agent.uuid, master=master)
        db.session.add(intake)
        announce("intake.received", *agent.audited_as, intake=intake.id)
        return intake

    @classmethod
    def find_lost(cls, kind: str) -> list[str]:
        """Ids of those that nobody took for more than a minute, or whose worker died over it, the oldest first."""
        late = cls.created_at < now() - LOST_AFTER
        lost = (cls.status == IntakeStatus.WAITING, cls.kind == kind, late, cls.is_free())
        return cls.find_ids(*lost, first=cls.created_at)

    @classmethod
    def lock_waiting(cls, agent_id: int) -> list[Intake]:
        """All that wait for the agent, for change; the agent is locked after them."""
        query = select(cls).where(cls.agent_id == agent_id, cls.status == IntakeStatus.WAITING).order_by(cls.id)
        return list(db.session.scalars(lock_row(query)))

    @property
    def actor(self) -> Actor:
        """Who handed it in."""
        return Actor(ActorKind(self.actor_kind), self.actor_name, self.actor_user_id)

    def open(self, agent: Agent) -> OpenedIntake:
        """What was handed in, opened with the master key. Raises SealBroken, KeyFileError or Unavailable.

        Whether it was signed, `statements.intakes` checks.
        """
        master = master_key(self.reader)
        return open_intake(self.sealed or b"", intake_id=self.id, agent_uuid=agent.uuid, master=master)

    def reseal(self, agent: Agent, master: MasterPublicKey) -> None:
        """Seal it to another master key. The caller has locked it; it waits. Raises SealBroken or KeyFileError."""
        held = self.open(agent)
        self.sealed = seal_intake(held.text, held.note, intake_id=self.id, agent_uuid=agent.uuid, master=master)
        self.reader = master.fingerprint

    def signed_fields(self, agent: Agent, text: str) -> dict[str, Any]:
        """What is signed of it by who hands it in."""
        who = {"kind": str(self.actor_kind), "name": self.actor_name, "user": self.actor_user_id}
        digest = hashlib.sha256(text.encode()).hexdigest()
        about = {"intake": self.id, "agent": agent.uuid, "kind": self.kind, "format": self.format, "name": self.name}
        return about | {"by": who, "sha256": digest}

    def settle(
        self,
        status: IntakeStatus,
        *,
        imported: int | None = None,
        error: str | None = None,
        outcome: dict[str, Any] | None = None,
    ) -> None:
        """Reach an end: the content is gone from here, and the page is told."""
        self.status, self.imported, self.error, self.outcome = status, imported, error, outcome
        self.sealed, self.taken_at = None, now()
        announce(f"intake.{status}", self.account_id, self.agent_id, intake=self.id, imported=imported)
