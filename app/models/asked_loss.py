"""Questions about losses: what a call of the Knife would have lost of a memory, and what became of that."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import ForeignKey, Index, String, select, update
from sqlalchemy.orm import Mapped, mapped_column

from app.extensions import db, now
from app.models.audit import AuditLog
from app.models.base import Identity, Model, Moment
from app.models.memory_text import ContentKey
from app.silo import AgentKeys, Sealed

if TYPE_CHECKING:
    from app.models.memory import Memory
    from app.models.refinement import Refinement

PURPOSE = "asked loss"


class AskedLoss(Model):
    """One memory's part of one question. Nothing was changed when it was asked.

    `missing` counts the specifics that were named. Once a change was made with the same function and ids, `entry_id` is
    its entry; `restored` of the named ones are in the new text then, and `confirmed` were given up by the agent. Those
    stay null where the agent left the memory as it was. `words` are the named ones, sealed under the memory's own key,
    so that erasing the memory removes them, too.
    """

    __tablename__ = "asked_losses"
    __table_args__ = (Index("ix_asked_losses_memory", "memory_id"),)

    refinement_id: Mapped[str] = mapped_column(ForeignKey("refinements.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    memory_id: Mapped[int] = mapped_column(ForeignKey("memories.id"), primary_key=True, autoincrement=False)
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"), index=True)
    action: Mapped[str] = mapped_column(String(16))
    missing: Mapped[int]
    restored: Mapped[int | None]
    confirmed: Mapped[int | None]
    entry_id: Mapped[int | None] = mapped_column(Identity)
    words: Mapped[Sealed | None]
    asked_at: Mapped[Moment]

    @classmethod
    def ask(
        cls, keys: AgentKeys, refinement: Refinement, memory: Memory, number: int, action: str, words: Sequence[str]
    ) -> None:
        """A new row, in the caller's transaction; `number` is that of its question. Raises SealBroken."""
        text, subject = json.dumps(list(words), ensure_ascii=False), f"{refinement.id}|{number}"
        content_key = memory.content.check_whole()[2]
        db.session.add(
            cls(
                refinement_id=refinement.id,
                number=number,
                memory_id=memory.id,
                agent_id=refinement.agent_id,
                action=action,
                missing=len(words),
                words=keys.seal_about(memory.id, text, content_key, purpose=PURPOSE, subject=subject),
                asked_at=now(),
            )
        )

    @classmethod
    def settle(cls, refinement: Refinement, entry: AuditLog, settled: Iterable[tuple[int, int, int, int]]) -> None:
        """The change was made: of each question (number, memory) how many were restored and confirmed."""
        for number, memory_id, restored, confirmed in settled:
            row = db.session.get_one(cls, (refinement.id, number, memory_id))
            row.restored, row.confirmed, row.entry_id = restored, confirmed, entry.id

    def reveal(self, keys: AgentKeys, content_key: bytes) -> list[str]:
        """The specifics that were named, as kind and words. Empty where they were erased. Raises SealBroken."""
        if self.words is None:
            return []
        subject = f"{self.refinement_id}|{self.number}"
        said = keys.reveal_about(self.memory_id, self.words, content_key, purpose=PURPOSE, subject=subject)
        return [str(each) for each in json.loads(said)]


def asked_losses(refinement_id: str, keys: AgentKeys) -> list[tuple[AskedLoss, list[str]]]:
    """Every row of a refinement with what it named, in the order in which they were asked. Raises SealBroken."""
    query = (
        select(AskedLoss, ContentKey.sealed)
        .outerjoin(ContentKey, ContentKey.memory_id == AskedLoss.memory_id)
        .where(AskedLoss.refinement_id == refinement_id)
        .order_by(AskedLoss.number, AskedLoss.memory_id)
    )
    return [(row, row.reveal(keys, key) if key else []) for row, key in db.session.execute(query)]


def drop_asked_words(memory_id: int) -> None:
    """What questions named of this memory, because it is erased. The counts stay."""
    words = update(AskedLoss).where(AskedLoss.memory_id == memory_id).values(words=None)
    db.session.execute(words.execution_options(synchronize_session=False))


def digest_of_questions(refinement_id: str) -> str:
    """SHA-256, in hex, of what is open of the questions of a refinement: the entry of its end says it."""
    columns = (AskedLoss.number, AskedLoss.memory_id, AskedLoss.action, AskedLoss.missing)
    outcome = (AskedLoss.restored, AskedLoss.confirmed, AskedLoss.entry_id)
    query = select(*columns, *outcome).where(AskedLoss.refinement_id == refinement_id)
    rows = [list(row) for row in db.session.execute(query.order_by(AskedLoss.number, AskedLoss.memory_id))]
    return hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest()
