"""Recall probes: questions that an agent wrote about its memories before a refinement, with the answers they expect.

Both quote a memory, so they are sealed under its own key. Whether the agent could still answer is open; what it
answered is not kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import ForeignKey, Index, delete, select
from sqlalchemy.orm import Mapped, mapped_column

from app.extensions import db
from app.models.base import Model
from app.models.memory_text import ContentKey, content_keys_of
from app.silo import AgentKeys, Sealed

PURPOSE = "recall probe"


@dataclass(frozen=True)
class Probe:
    """One question about the memory `memory_id`, and the answer that the memory gives. `kept`: see `RecallProbe`."""

    memory_id: int
    question: str = field(repr=False)
    answer: str = field(repr=False)
    kept: bool | None = None


class RecallProbe(Model):
    """`number` counts the probes of a refinement from 1. `kept`: whether it was answered; null where nobody asked."""

    __tablename__ = "recall_probes"
    __table_args__ = (Index("ix_recall_probes_memory", "memory_id"),)

    refinement_id: Mapped[str] = mapped_column(ForeignKey("refinements.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    memory_id: Mapped[int] = mapped_column(ForeignKey("memories.id"))
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"), index=True)
    question: Mapped[Sealed]
    answer: Mapped[Sealed]
    kept: Mapped[bool | None]


def keep_probes(refinement_id: str, agent_id: int, keys: AgentKeys, probes: Sequence[Probe]) -> int:
    """Seal and add them, in the caller's transaction; returns how many. Raises SealBroken.

    One about a memory whose key is gone, because it was erased meanwhile, is left out.
    """
    content_keys = content_keys_of({probe.memory_id for probe in probes})
    kept = [probe for probe in probes if probe.memory_id in content_keys]
    for number, probe in enumerate(kept, start=1):
        key, subject = content_keys[probe.memory_id], f"{refinement_id}|{number}"
        question, answer = (
            keys.seal_about(probe.memory_id, text, key, purpose=f"{PURPOSE} {part}", subject=subject)
            for part, text in (("question", probe.question), ("answer", probe.answer))
        )
        about = {"memory_id": probe.memory_id, "agent_id": agent_id, "question": question, "answer": answer}
        db.session.add(RecallProbe(refinement_id=refinement_id, number=number, **about))
    return len(kept)


def reveal_probes(refinement_id: str, keys: AgentKeys) -> dict[int, Probe]:
    """By number; without those of erased memories. Raises SealBroken."""
    query = (
        select(RecallProbe, ContentKey.sealed)
        .join(ContentKey, ContentKey.memory_id == RecallProbe.memory_id)
        .where(RecallProbe.refinement_id == refinement_id)
        .order_by(RecallProbe.number)
    )
    found: dict[int, Probe] = {}
    for row, key in db.session.execute(query).tuples():
        subject = f"{refinement_id}|{row.number}"
        question, answer = (
            keys.reveal_about(row.memory_id, text, key, purpose=f"{PURPOSE} {part}", subject=subject)
            for part, text in (("question", row.question), ("answer", row.answer))
        )
        found[row.number] = Probe(row.memory_id, question, answer, row.kept)
    return found


def note_answers(refinement_id: str, known: Mapping[int, bool]) -> int:
    """Take down, by number, whether each was answered; returns how many were."""
    for row in db.session.scalars(select(RecallProbe).where(RecallProbe.refinement_id == refinement_id)):
        row.kept = known.get(row.number)
    return sum(known.values())


def drop_probes(memory_id: int) -> None:
    """Those about this memory, because it is erased."""
    rows = delete(RecallProbe).where(RecallProbe.memory_id == memory_id)
    db.session.execute(rows.execution_options(synchronize_session=False))
