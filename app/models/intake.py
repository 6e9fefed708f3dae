"""Intake: content that came in through the web, sealed to the master public key until the worker takes it in."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from sqlalchemy import ForeignKey, LargeBinary, String, Text, select
from sqlalchemy.orm import Mapped, mapped_column

from app.errors import Invalid, NotFound, Refused
from app.extensions import db, now, release, writing
from app.models.actor import Actor, ActorKind
from app.models.agent import Agent
from app.models.base import Model, UtcDateTime, lock_row
from app.models.event import announce
from app.silo import SealBroken, open_intake, seal_intake

if TYPE_CHECKING:
    from app.models.importing import Draft

LOST_AFTER = timedelta(seconds=60)


class IntakeStatus(StrEnum):
    WAITING = "waiting"
    TAKEN = "taken"
    FAILED = "failed"


class Intake(Model):
    """`sealed` is emptied once taken in or refused; `imported` counts memories; `error` never holds content."""

    __tablename__ = "intakes"

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"), index=True)
    kind: Mapped[str] = mapped_column(String(16))
    actor_kind: Mapped[str] = mapped_column(String(8))
    actor_name: Mapped[str] = mapped_column(String(300))
    actor_user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    status: Mapped[IntakeStatus] = mapped_column(String(16))
    sealed: Mapped[bytes | None] = mapped_column(LargeBinary)
    imported: Mapped[int | None]
    error: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    taken_at: Mapped[datetime | None] = mapped_column(UtcDateTime)

    @classmethod
    def receive(cls, agent: Agent, text: str, *, by: Actor) -> Intake:
        """Keep JSON Lines, checked by the caller, sealed so that only the worker can read them."""
        from app.models.key import master_public_key

        number = str(uuid.uuid4())
        intake = cls(
            id=number,
            account_id=agent.account_id,
            agent_id=agent.id,
            kind="import",
            actor_kind=by.kind,
            actor_name=by.name,
            actor_user_id=by.user_id,
            status=IntakeStatus.WAITING,
            sealed=seal_intake(text, intake_id=number, agent_uuid=agent.uuid, master=master_public_key()),
            created_at=now(),
        )
        db.session.add(intake)
        announce("intake.received", account_id=agent.account_id, agent_id=agent.id, data={"intake": number})
        return intake

    @classmethod
    def lock(cls, intake_id: str) -> Intake:
        """Load it for change. Raises NotFound."""
        intake = db.session.scalar(lock_row(select(cls).where(cls.id == intake_id)))
        if intake is None:
            raise NotFound("There is no such intake.")
        return intake

    @classmethod
    def find_waiting(cls) -> list[str]:
        """Ids of those that wait for a worker since more than a minute, the oldest first."""
        late = cls.created_at < now() - LOST_AFTER
        query = select(cls.id).where(cls.status == IntakeStatus.WAITING, late).order_by(cls.created_at).limit(100)
        found = list(db.session.scalars(query))
        release()
        return found

    @property
    def actor(self) -> Actor:
        """Who handed it in."""
        return Actor(ActorKind(self.actor_kind), self.actor_name, self.actor_user_id)

    def settle(self, status: IntakeStatus, *, imported: int | None = None, error: str | None = None) -> None:
        """Reach an end: the content is gone from here, and the page is told."""
        self.status, self.imported, self.error = status, imported, error
        self.sealed, self.taken_at = None, now()
        data = {"intake": self.id, "imported": imported}
        announce(f"intake.{status}", account_id=self.account_id, agent_id=self.agent_id, data=data)


def take_in(intake_id: str) -> None:
    """Open a waiting intake with the master key and import its memories, all or none; settle it either way, once."""
    intake = db.session.get(Intake, intake_id, populate_existing=True)
    if intake is None:
        raise NotFound("There is no such intake.")
    if intake.status != IntakeStatus.WAITING:
        return
    try:
        drafts = _read(intake)
        release()
        _write(intake_id, drafts)
    except (Invalid, Refused, SealBroken) as error:
        _refuse(intake_id, error.sentence)


def _read(intake: Intake) -> list[Draft]:
    """Raises Invalid, or SealBroken. Split at line feeds only: JSON may hold the other line ends of Unicode."""
    from app.models.importing import parse_lines
    from app.models.key import master_key

    agent = db.session.get_one(Agent, intake.agent_id)
    text = open_intake(intake.sealed or b"", intake_id=intake.id, agent_uuid=agent.uuid, master=master_key())
    return parse_lines(text.split("\n"))


def _write(intake_id: str, drafts: list[Draft]) -> None:
    from app.models.importing import write_memories
    from app.models.provision import ensure_keys

    with writing():
        intake = Intake.lock(intake_id)
        if intake.status == IntakeStatus.WAITING:
            agent = Agent.lock(intake.agent_id)
            done = write_memories(agent, drafts, keys=ensure_keys(agent), by=intake.actor)
            intake.settle(IntakeStatus.TAKEN, imported=done.imported)


def _refuse(intake_id: str, sentence: str) -> None:
    with writing():
        intake = Intake.lock(intake_id)
        if intake.status == IntakeStatus.WAITING:
            intake.settle(IntakeStatus.FAILED, error=sentence)
