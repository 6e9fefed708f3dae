"""Reading what the model answered: one JSON object of exactly the shape that was asked for, or nothing of it counts."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from app.errors import Invalid, WhetstoneError
from app.llm.client import Reply
from app.refinement.consent import CUT_OFF, without_thought
from app.strictjson import no_duplicates
from app.values.text import clean_content

MAX_JOURNAL, MAX_CORE = 10, 3
"""Memories of one conversation."""

MAX_PROMOTED = 10
"""Journal entries that one reflection lets become core."""

_FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*)\n[ \t]*```", re.DOTALL | re.IGNORECASE)


class MalformedReply(WhetstoneError):
    """The model's reply is not of the form that it was asked for. The sentence holds nothing of the reply."""

    code = "malformed"

    def __init__(self, why: str) -> None:
        super().__init__(f"The model's reply could not be used: {why}.")


@dataclass(frozen=True)
class ExtractedMemories:
    """The memories that an agent made of a conversation, as clean texts."""

    core: tuple[str, ...] = field(repr=False)
    journal: tuple[str, ...] = field(repr=False)


def read_findings(reply: Reply) -> ExtractedMemories:
    """Raises MalformedReply."""
    found = _read_object(reply, "journal", "core")
    return ExtractedMemories(_texts(found, "core", MAX_CORE), _texts(found, "journal", MAX_JOURNAL))


def read_promotions(reply: Reply, shown: Collection[int]) -> list[int]:
    """Which of the shown journal entries are to become core. Raises MalformedReply."""
    ids = _list(_read_object(reply, "promote"), "promote", MAX_PROMOTED)
    if any(type(number) is not int for number in ids) or len(set(ids)) != len(ids):
        raise MalformedReply("promote must be a list of different whole numbers")
    if not set(ids) <= set(shown):
        raise MalformedReply("promote names what is none of the journal entries that were shown")
    return ids


def _read_object(reply: Reply, *keys: str) -> dict[str, Any]:
    """One closed leading think block and one code fence around all of it are taken off; nothing else is."""
    if reply.finish_reason in CUT_OFF:
        raise MalformedReply("it was cut off")
    text = without_thought(reply.text).strip()
    fenced = _FENCE.fullmatch(text)
    try:
        found = json.loads(fenced[1] if fenced else text, object_pairs_hook=no_duplicates)
    except (ValueError, RecursionError):
        raise MalformedReply("it is not one JSON object and nothing else") from None
    if not isinstance(found, dict) or set(found) != set(keys):
        raise MalformedReply(f"it must be a JSON object with {' and '.join(keys)}, and nothing else")
    return found


def _texts(found: dict[str, Any], name: str, most: int) -> tuple[str, ...]:
    try:
        return tuple(clean_content(text) for text in _list(found, name, most))
    except Invalid as error:
        raise MalformedReply(f"in {name}: {error.sentence.rstrip('.')}") from None


def _list(found: dict[str, Any], name: str, most: int) -> list[Any]:
    given = found[name]
    if not isinstance(given, list):
        raise MalformedReply(f"{name} must be a list")
    if len(given) > most:
        raise MalformedReply(f"{name} has {len(given):,} entries, and at most {most} are allowed")
    return given
