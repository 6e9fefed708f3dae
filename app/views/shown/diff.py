"""What changed between two texts, word by word."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import groupby, takewhile

SAME, ADDED, REMOVED = "same", "added", "removed"

MOST_PAIRS, MOST_WORK = 30_000, 1_000_000
"""Equal words of both texts, and words of the one times words of the other, up to which they are compared: a second's
fraction. What differs in more than that was written anew, and is shown so."""

_CJK = r"\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_SIGNS = r".,;:!?…·\"'“”‘’«»()\[\]{}<>/|\\—–-"
_WORD = re.compile(rf"(\s*)([{_CJK}{_SIGNS}]|[^\s{_CJK}{_SIGNS}]+|\Z)")


@dataclass(frozen=True)
class DiffPiece:
    """A stretch of text that stayed, came or went."""

    kind: str
    text: str = field(repr=False)


@dataclass(frozen=True)
class _Word:
    """A word, or a sign, and the space before it. The last of a text may be empty."""

    space: str = field(repr=False)
    letters: str = field(repr=False)

    @property
    def text(self) -> str:
        return self.space + self.letters


def compare_texts(before: str, after: str) -> list[DiffPiece]:
    """In order: the same and the removed pieces are the text before, the same and the added ones the text after."""
    return _join_neighbours(_compare_words(_split_words(before), _split_words(after)))


def _split_words(text: str) -> list[_Word]:
    return [_Word(*found) for found in _WORD.findall(text) if any(found)]


def _compare_words(old: Sequence[_Word], new: Sequence[_Word]) -> Iterator[DiffPiece]:
    head = _common_prefix_length(old, new)
    tail = _common_prefix_length(old[head:][::-1], new[head:][::-1])
    yield from _equal_pieces(old[:head], new[:head])
    yield from _differing_pieces(old[head : len(old) - tail], new[head : len(new) - tail])
    yield from _equal_pieces(old[len(old) - tail :], new[len(new) - tail :])


def _common_prefix_length(old: Sequence[_Word], new: Sequence[_Word]) -> int:
    """How many words both begin with."""
    pairs = zip(old, new, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0].letters == pair[1].letters, pairs))


def _differing_pieces(old: Sequence[_Word], new: Sequence[_Word]) -> Iterator[DiffPiece]:
    steps: Sequence[tuple[str, int, int, int, int]] = [("replace", 0, len(old), 0, len(new))]
    if not _is_too_much(old, new):
        steps = SequenceMatcher(None, [word.letters for word in old], [word.letters for word in new]).get_opcodes()
    for kind, old_from, old_to, new_from, new_to in steps:
        if kind == "equal":
            yield from _equal_pieces(old[old_from:old_to], new[new_from:new_to])
        else:
            yield from (DiffPiece(REMOVED, word.text) for word in old[old_from:old_to])
            yield from (DiffPiece(ADDED, word.text) for word in new[new_from:new_to])


def _is_too_much(old: Sequence[_Word], new: Sequence[_Word]) -> bool:
    counts = Counter(word.letters for word in new)
    return len(old) * len(new) > MOST_WORK or sum(counts[word.letters] for word in old) > MOST_PAIRS


def _equal_pieces(old: Sequence[_Word], new: Sequence[_Word]) -> Iterator[DiffPiece]:
    """Equal words, between which the space may have changed."""
    for left, right in zip(old, new, strict=True):
        if left.space != right.space:
            yield DiffPiece(REMOVED, left.space)
            yield DiffPiece(ADDED, right.space)
            yield DiffPiece(SAME, right.letters)
        else:
            yield DiffPiece(SAME, right.text)


def _join_neighbours(pieces: Iterable[DiffPiece]) -> list[DiffPiece]:
    """Neighbours of a kind as one. Between two pieces that stayed, what went stands before what came."""
    found: list[DiffPiece] = []
    for is_same, run in groupby(pieces, key=lambda piece: piece.kind == SAME):
        stretch = list(run)
        for kind in (SAME,) if is_same else (REMOVED, ADDED):
            text = "".join(piece.text for piece in stretch if piece.kind == kind)
            found += [DiffPiece(kind, text)] if text else []
    return found
