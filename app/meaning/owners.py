"""Whose something is: Ann's sister is not Ann."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from app.meaning.reading import Reading
from app.meaning.replaced import related
from app.meaning.specifics import Specific, SpecificKind

MOST_NAMED = 20
REACH = 3
"""Words behind a genitive among which is what it owns."""


def lost_owners(before: Reading, after: Reading) -> Iterator[Specific]:
    """Genitives of which one of the two is gone: the owner, or what is owned."""
    if before.language is not None:
        found = (
            Specific(SpecificKind.CONTENT, before.words_of(owner, owned + 1))
            for owner, owned in _genitives(before)
            if _is_lost(before, after, owner, owned)
        )
        yield from islice(found, MOST_NAMED)


def _genitives(reading: Reading) -> Iterator[tuple[int, int]]:
    for at, word in enumerate(reading.words):
        if word.owner and word.keys:
            for owned in range(at + 1, min(at + 1 + REACH, len(reading.words))):
                if reading.words[owned].clause_end:
                    break
                if reading.words[owned].keys:
                    yield at, owned
                    break


def _is_lost(before: Reading, after: Reading, owner: int, owned: int) -> bool:
    one, other = before.words[owner].key, before.words[owned].key
    language = before.language
    if (one in after.keys) is (other in after.keys) or language is None:
        return False
    gone = other if one in after.keys else one
    return gone not in language.light and not any(related(gone, key, language) for key in after.keys)
