"""IdempotencyKey: a request of an agent that is being done or was done, so that none is done twice.

It is claimed in a transaction of its own before anything is done, and settled with the sealed answer after.
"""

from __future__ import annotations

import re
from datetime import timedelta

from sqlalchemy import ColumnElement, ForeignKey, LargeBinary, String, UniqueConstraint, delete, select
from sqlalchemy.orm import Mapped, mapped_column

from app.errors import Invalid, Refused
from app.extensions import db, now, writing
from app.models.agent import Agent
from app.models.base import Identity, Model, Moment
from app.models.memory import Memory
from app.silo import AgentKeys, Sealed

KEPT = timedelta(hours=24)
MAX_KEY = 200
KEY_PATTERN = "^[!-~]( *[!-~])*$"


class KeyReused(Refused):
    """This Idempotency-Key was used for another request."""

    code = "idempotency_key_reused"
    outcome = "Nothing was written."
    http_status = 422


class StillBeingDone(Refused):
    """An earlier request with this Idempotency-Key has no answer yet."""

    code = "idempotency_key_in_use"
    outcome = "This request did nothing. Look at what was done."


class IdempotencyKey(Model):
    """`status` is the answer's HTTP status, 0 while it is being done; `answer` is its body, sealed.

    `fingerprint` is keyed (HMAC), so that it tells nothing of what was sent. `memory_id` is the memory that the answer
    quotes, if it quotes one: once that is erased, the answer is gone too.
    """

    __tablename__ = "idempotency_keys"
    __table_args__ = (UniqueConstraint("agent_id", "key"),)

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"))
    key: Mapped[str] = mapped_column(String(MAX_KEY))
    fingerprint: Mapped[bytes] = mapped_column(LargeBinary(32))
    status: Mapped[int]
    answer: Mapped[Sealed | None]
    memory_id: Mapped[int | None] = mapped_column(Identity, index=True)
    created_at: Mapped[Moment] = mapped_column(index=True)

    @classmethod
    def claim(cls, agent_id: int, key: str, fingerprint: bytes) -> IdempotencyKey | None:
        """What the same request was answered; None when it is the first, which is now claimed.

        Raises Invalid, KeyReused or StillBeingDone.
        """
        if len(key) > MAX_KEY or not re.fullmatch(KEY_PATTERN, key):
            raise Invalid(
                f"The Idempotency-Key must have 1 to {MAX_KEY} printable ASCII characters, and no space at an end."
            )
        with writing() as session:
            Agent.lock(agent_id)
            session.execute(delete(cls).where(cls.agent_id == agent_id, cls.key == key, cls._is_old()))
            row = db.session.scalar(select(cls).where(cls.agent_id == agent_id, cls.key == key))
            if row is None:
                db.session.add(
                    cls(agent_id=agent_id, key=key, fingerprint=fingerprint, status=0, answer=None, created_at=now())
                )
                return None
        if row.fingerprint != fingerprint:
            raise KeyReused
        if row.status == 0:
            raise StillBeingDone
        return row

    @classmethod
    def settle(
        cls, agent_id: int, key: str, *, status: int, answer: str, keys: AgentKeys, memory_id: int | None = None
    ) -> None:
        """Keep the answer for who sends the request again, unless it quotes a memory that was erased meanwhile."""
        with writing():
            Agent.lock(agent_id)
            row = db.session.scalars(select(cls).where(cls.agent_id == agent_id, cls.key == key)).one()
            row.status, row.memory_id = status, memory_id
            was_erased = (Memory.id == memory_id, Memory.erased_at.is_not(None))
            if memory_id is None or db.session.scalar(select(Memory.id).where(*was_erased)) is None:
                row.answer = keys.seal(answer, purpose="answer", subject=row.id)

    @classmethod
    def give_back(cls, agent_id: int, key: str) -> None:
        """Nothing was done: the key is free again."""
        with writing() as session:
            session.execute(delete(cls).where(cls.agent_id == agent_id, cls.key == key, cls.status == 0))

    @classmethod
    def _is_old(cls) -> ColumnElement[bool]:
        """It is a new request then, whether or not the row is still there."""
        return cls.created_at < now() - KEPT

    def reveal(self, keys: AgentKeys) -> str:
        """The body of the answer. Raises SealBroken."""
        return keys.reveal(self.answer, purpose="answer", subject=self.id) if self.answer is not None else ""


def drop_old_keys() -> None:
    """Forget the requests that nobody sends again."""
    with writing() as session:
        session.execute(delete(IdempotencyKey).where(IdempotencyKey._is_old()))
