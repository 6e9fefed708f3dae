"""Second reading: another model compared what a refinement changed, before and after, group by group.

A group are memories that its changes link: the sources of a consolidation and its result, a deleted memory and its
carrier, an updated one. What is open names ids and counts. The reader's own words quote memories, so they are sealed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING, Any

from sqlalchemy import ForeignKey, Index, select, update
from sqlalchemy.orm import Mapped, mapped_column

from app.extensions import db
from app.models.audit import OPERATIONS, Action, AuditLog
from app.models.base import Model
from app.models.memory_text import ContentKey, content_keys_of
from app.silo import AgentKeys, Sealed
from app.values.connected import connected_groups

if TYPE_CHECKING:
    from app.models.refinement import Refinement

PURPOSE = "second reading"

LONGEST_WORDS = 2_000
"""Characters of what a reader says of one group that are kept."""


class ReadingOutcome(StrEnum):
    """How the reading went. Only what was read can be called kept."""

    READ = "read"
    UNUSABLE = "unusable"
    """The answer was not of the form that was asked for."""
    UNREACHABLE = "unreachable"
    """The reader gave no answer."""
    NOT_READ = "not_read"
    """Nobody was asked: the worker was lost, or something else ended the refinement."""


@dataclass(frozen=True)
class GroupVerdict:
    """What the reader said of one group. `words` are its own, and content."""

    is_kept: bool
    words: str = field(default="", repr=False)


@dataclass(frozen=True)
class GroupReading:
    """What was said of the group of these memories. `words` are None where there were none, or they were erased."""

    memory_ids: list[int]
    kept: bool
    words: str | None = field(repr=False)


class SecondReadingWords(Model):
    """One memory of a group that was read. The first one's row holds what the reader said of the group.

    `number` counts the groups from 1. `words` are sealed under the key of the memory's own. They may quote any memory
    of the refinement's groups, so erasing one of these removes them all.
    """

    __tablename__ = "second_reading_words"
    __table_args__ = (Index("ix_second_reading_words_memory", "memory_id"),)

    refinement_id: Mapped[str] = mapped_column(ForeignKey("refinements.id"), primary_key=True)
    memory_id: Mapped[int] = mapped_column(ForeignKey("memories.id"), primary_key=True, autoincrement=False)
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"), index=True)
    number: Mapped[int]
    words: Mapped[Sealed | None]

    def reveal(self, keys: AgentKeys, content_key: bytes) -> str | None:
        """The words of this row; None where it has none. Raises SealBroken."""
        if self.words is None:
            return None
        subject = _subject(self.refinement_id, self.number)
        return keys.reveal_about(self.memory_id, self.words, content_key, purpose=PURPOSE, subject=subject)


def change_groups(refinement_id: str) -> list[tuple[int, ...]]:
    """The ids of the memories of each group, in the order of the first changes."""
    changes = select(AuditLog.data).where(AuditLog.refinement_id == refinement_id, AuditLog.action.in_(_CHANGES))
    return connected_groups(_linked_ids(data) for data in db.session.scalars(changes.order_by(AuditLog.id)))


_CHANGES = tuple(action for action in OPERATIONS if action != Action.REFINEMENT_PROTECT)


def _linked_ids(data: dict[str, Any]) -> list[int]:
    carrier = data.get("carrier")
    return [data["id"], *data.get("sources", ()), *([] if carrier is None else [carrier])]


def keep_reader_words(
    refinement_id: str,
    agent_id: int,
    keys: AgentKeys,
    groups: Sequence[Sequence[int]],
    verdicts: Sequence[GroupVerdict],
) -> None:
    """Seal and add what the reader said of each group, in the caller's transaction. Raises SealBroken."""
    content_keys = content_keys_of([group[0] for group in groups])
    for number, (group, verdict) in enumerate(zip(groups, verdicts, strict=True), start=1):
        for memory_id in group:
            words, key = None, content_keys.get(memory_id)
            if key is not None and verdict.words:
                text, subject = verdict.words[:LONGEST_WORDS], _subject(refinement_id, number)
                words = keys.seal_about(memory_id, text, key, purpose=PURPOSE, subject=subject)
            row = {"refinement_id": refinement_id, "memory_id": memory_id, "agent_id": agent_id, "number": number}
            db.session.add(SecondReadingWords(**row, words=words))


def reveal_reader_words(refinement: Refinement, keys: AgentKeys) -> list[GroupReading]:
    """What the reader said of each group, in their order; none where it was not asked. Raises SealBroken."""
    if refinement.second_reading is None:
        return []
    query = (
        select(SecondReadingWords, ContentKey.sealed)
        .outerjoin(ContentKey, ContentKey.memory_id == SecondReadingWords.memory_id)
        .where(SecondReadingWords.refinement_id == refinement.id)
        .order_by(SecondReadingWords.number, SecondReadingWords.memory_id)
    )
    found = []
    for _, rows in groupby(db.session.execute(query).tuples(), key=lambda each: each[0].number):
        group = list(rows)
        ids = [row.memory_id for row, _ in group]
        words = (row.reveal(keys, key) for row, key in group if key)
        found.append(GroupReading(ids, ids not in refinement.flagged_groups, next(filter(None, words), None)))
    return found


def drop_reader_words(memory_id: int) -> None:
    """Of every refinement that changed this memory, because it is erased."""
    about = select(SecondReadingWords.refinement_id).where(SecondReadingWords.memory_id == memory_id)
    words = update(SecondReadingWords).where(SecondReadingWords.refinement_id.in_(about)).values(words=None)
    db.session.execute(words.execution_options(synchronize_session=False))


def _subject(refinement_id: str, number: int) -> str:
    return f"{refinement_id}|{number}"
