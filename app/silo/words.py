"""Recovery words: 32 bytes as 24 words of a known list, the last of which holds a checksum (BIP-39, English)."""

from __future__ import annotations

import re

from mnemonic import Mnemonic

from app.errors import Invalid

WORDS = 24


def to_words(secret: bytes) -> tuple[str, ...]:
    """The words of 32 bytes."""
    return tuple(Mnemonic("english").to_mnemonic(secret).split())


def from_words(text: str) -> bytes:
    """The 32 bytes again, in whatever case and with whatever spaces; numbered, in whatever order and among other text.

    Raises Invalid, and quotes no word.
    """
    words = _numbered_words(text) or text.lower().split()
    if len(words) != WORDS:
        raise Invalid(f"There must be {WORDS} recovery words; here are {len(words)}.", "Nothing was written.")
    book = Mnemonic("english")
    strange = [place for place, word in enumerate(words, start=1) if word not in book.wordlist]
    if strange:
        named = ", ".join(map(str, strange))
        raise Invalid(
            f"Not in the list of recovery words: word {named}. Look at how it is spelt.", "Nothing was written."
        )
    try:
        return bytes(book.to_entropy(words))
    except ValueError:
        raise Invalid(
            "The recovery words do not fit together: one is another word of the list, or their order is wrong.",
            "Nothing was written.",
        ) from None


def _numbered_words(text: str) -> list[str]:
    """The words in the order of their numbers, as `1. word` has them; none unless all numbers are there."""
    found = {int(number): word for number, word in re.findall(r"\b(\d{1,2})[.)]?\s+([a-z]+)", text.lower())}
    return [found[place] for place in sorted(found)] if sorted(found) == list(range(1, WORDS + 1)) else []
