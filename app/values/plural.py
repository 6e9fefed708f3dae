"""Numbers with their nouns, the one way for pages, the command line and what agents are told."""

from __future__ import annotations

import re

_CONSONANT_Y = re.compile(r"(?<![aeiou])y$")


def count_nouns(count: int, noun: str, plural: str = "") -> str:
    """`1 memory`, `2,000 memories`. `plural` for nouns that are no single word at the end."""
    return f"{count:,} {noun_for(count, noun, plural)}"


def noun_for(count: int, noun: str, plural: str = "") -> str:
    """`memory` or `memories`."""
    return noun if count == 1 else plural or _CONSONANT_Y.sub("ie", noun) + "s"


def count_times(count: int) -> str:
    """`once`, `3 times`."""
    return "once" if count == 1 else f"{count:,} times"
