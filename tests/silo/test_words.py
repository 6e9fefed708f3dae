"""Recovery words: the standard's own, for the same bytes, in both directions; and no word in a refusal."""

from __future__ import annotations

import re

import pytest

from app.errors import Invalid
from app.silo import MasterKey
from app.silo.words import from_words, to_words

VECTORS = {
    "00" * 32: "abandon " * 23 + "art",
    "7f" * 32: (
        "legal winner thank year wave sausage worth useful legal winner thank year wave sausage worth useful "
        "legal winner thank year wave sausage worth title"
    ),
    "80" * 32: (
        "letter advice cage absurd amount doctor acoustic avoid letter advice cage absurd amount doctor acoustic avoid "
        "letter advice cage absurd amount doctor acoustic bless"
    ),
    "ff" * 32: "zoo " * 23 + "vote",
    "68a79eaca2324873eacc50cb9c6eca8cc68ea5d936f98787c60c7ebc74e6ce7c": (
        "hamster diagram private dutch cause delay private meat slide toddler razor book happy fancy gospel tennis "
        "maple dilemma loan word shrug inflict delay length"
    ),
}
"""From the reference tests of BIP-39."""


@pytest.mark.parametrize("secret", VECTORS)
def test_they_are_the_standards(secret: str) -> None:
    words = VECTORS[secret].split()
    assert list(to_words(bytes.fromhex(secret))) == words
    assert from_words(" ".join(words)).hex() == secret


def test_every_key_comes_back_from_its_words() -> None:
    for _ in range(50):
        key = MasterKey.generate()
        assert len(key.words) == 24
        again = MasterKey.from_words("\n".join(key.words))
        assert again.fingerprint == key.fingerprint
        sealed = key.public.seal(b"tea", "info")
        assert again.open(sealed, "info") == b"tea"


def test_a_wrong_word_does_not_pass_unseen_and_none_is_quoted() -> None:
    words = list(MasterKey.generate().words)
    for wrong in ([*words[:23], "abandonn"], [*words[:5], "тест", *words[6:]], words[:-1], [*words, words[0]], []):
        with pytest.raises(Invalid) as refusal:
            from_words(" ".join(wrong))
        said = set(re.findall(r"[a-zтес]+", refusal.value.sentence.lower()))
        assert not said & {"abandonn", "тест"}
    caught = 0
    for place in range(24):
        other = "zoo" if words[place] != "zoo" else "zone"
        try:
            from_words(" ".join([*words[:place], other, *words[place + 1 :]]))
        except Invalid as refusal:
            caught += "do not fit together" in refusal.sentence
    assert caught >= 20, "of 256 wrong words the checksum lets one pass"
