"""The nouns of meaning: one specific, all of a text, and the changes that are compared."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class ChangeKind(StrEnum):
    """What is done to the old text: a deletion is compared with its carrier."""

    UPDATE = "update"
    CONSOLIDATE = "consolidate"
    DELETE = "delete"


class SpecificKind(StrEnum):
    NUMBER = "number"
    DATE = "date"
    NAME = "name"
    QUOTE = "quote"
    IDENTIFIER = "identifier"
    ADDRESS = "address"
    CODE = "code"
    EMOJI = "emoji"
    NEGATION = "negation"
    MODAL = "modal"
    HEDGE = "hedge"
    OPPOSITE = "opposite"
    STATE = "state"
    """What someone feels or is: proud, afraid, allergic, pregnant."""
    TENSE = "tense"
    ORDER = "order"
    """Names, numbers or words that changed places."""
    SENTENCE = "sentence"
    """Hardly a word of it is left."""
    CONTENT = "content"
    """Too few of the old text's content words are left, or another took the place; one entry a word."""


Atom = tuple[Hashable, ...]


@dataclass(frozen=True)
class Specific:
    """`words` as they stand in the text that it was found in."""

    kind: SpecificKind
    words: str = field(repr=False)
    atoms: frozenset[Atom] = field(default=frozenset(), compare=False, repr=False)
    """What a text must hold to say it, in whatever form."""


@dataclass(frozen=True)
class Specifics:
    """`language`: the code of the file whose rules were applied; None where the text's language has none, so that
    only what every language has in common was looked for."""

    language: str | None
    found: tuple[Specific, ...]
    content_words: tuple[str, ...] = field(repr=False)

    def of(self, kind: SpecificKind) -> tuple[str, ...]:
        return tuple(each.words for each in self.found if each.kind is kind)


class Comparison(NamedTuple):
    """`checked`: how many specifics of the old text were looked for, what is `missing` of it included."""

    checked: int
    missing: list[Specific]
