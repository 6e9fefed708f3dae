"""Reading what the model answered: one JSON object of exactly the shape that was asked for, or nothing of it counts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from app.asking.replies import MalformedReply, read_list, read_object
from app.errors import Invalid
from app.llm.client import Reply
from app.values.text import clean_content

MAX_JOURNAL, MAX_CORE = 10, 3
"""Memories of one conversation."""

MAX_PROMOTED = 10
"""Journal entries that one reflection lets become core."""


@dataclass(frozen=True)
class ExtractedMemories:
    """The memories that an agent made of a conversation, as clean texts."""

    core: tuple[str, ...] = field(repr=False)
    journal: tuple[str, ...] = field(repr=False)


def read_findings(reply: Reply) -> ExtractedMemories:
    """Raises MalformedReply."""
    found = read_object(reply, "journal", "core")
    return ExtractedMemories(_read_texts(found, "core", MAX_CORE), _read_texts(found, "journal", MAX_JOURNAL))


def read_promotions(reply: Reply, shown: Collection[int]) -> list[int]:
    """Which of the shown journal entries are to become core. Raises MalformedReply."""
    ids = read_list(read_object(reply, "promote"), "promote", MAX_PROMOTED)
    if any(type(number) is not int for number in ids) or len(set(ids)) != len(ids):
        raise MalformedReply("promote must be a list of different whole numbers")
    if not set(ids) <= set(shown):
        raise MalformedReply("promote names what is none of the journal entries that were shown")
    return ids


def _read_texts(found: dict[str, Any], name: str, most: int) -> tuple[str, ...]:
    try:
        return tuple(clean_content(text) for text in read_list(found, name, most))
    except Invalid as error:
        raise MalformedReply(f"in {name}: {error.sentence.rstrip('.')}") from None
