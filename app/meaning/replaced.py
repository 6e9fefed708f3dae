"""A word with content that another word took the place of: its neighbours still stand, with something else between."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Set
from itertools import islice, pairwise, takewhile

from app.meaning.language import Language
from app.meaning.reading import Reading
from app.meaning.specifics import Specific, SpecificKind
from app.meaning.words import Word

MOST_REPLACED = 3
"""Words with content between two neighbours. Where more of them are new, it is another way to say it."""
MOST_NAMED = 20
MOST_PLACES = 20
MOST_GAPS = 200
"""Bounds of what is looked at in a long text."""
LEAST_SHARE = 10
"""It is asked about from one in so many of its sentence's words with content: in a long one, a synonym is likelier."""
LEAST_STEM = 3
LEAST_RELATED = 4
LEAST_ALIKE = 0.5
"""Letters that two words begin with, and their share of the longer one: decision and decide."""
_END = ""
_COUNTED = (SpecificKind.NUMBER, SpecificKind.DATE)


class ContentRow:
    """The keys of a text's content words and numbers, with an empty one where a sentence ends."""

    def __init__(self, reading: Reading) -> None:
        self.keys = [_END]
        self.at = [0]
        for at, word in enumerate(reading.words):
            if word.sentence_end:
                if self.keys[-1] != _END:
                    self._add(_END, at)
            elif word.keys or word.number:
                self._add(word.key, at)
        if self.keys[-1] != _END:
            self._add(_END, len(reading.words))
        self.places: dict[str, list[int]] = {}
        for place, key in enumerate(self.keys):
            self.places.setdefault(key, []).append(place)

    def sentence_length(self, place: int) -> int:
        """In words with content, of the sentence that a word stands in."""
        ends = self.places[_END]
        following = bisect_right(ends, place)
        return ends[following] - ends[following - 1] - 1

    def _add(self, key: str, at: int) -> None:
        self.keys.append(key)
        self.at.append(at)


def replaced_words(before: Reading, after: Reading) -> Iterator[Specific]:
    language = before.language
    if language is None or before.keys <= after.keys:
        return
    then, now = ContentRow(before), ContentRow(after)
    kept = {*then.keys} & {*now.keys}
    counted = {at for found in before.found if found.kind in _COUNTED for at in range(found.first, found.last)}
    found = (
        at
        for first, last in islice(_gaps(then, kept), MOST_GAPS)
        for at in _replaced_between(then, first, last, now, kept, language)
        if before.words[at].keys and at not in counted
    )
    negated = set(_negated_by_prefix(before, after, language))
    for at in islice((at for at in found if before.words[at].key not in negated), MOST_NAMED):
        yield Specific(SpecificKind.CONTENT, before.words_of(at, at + 1))


def _negated_by_prefix(before: Reading, after: Reading, language: Language) -> Iterator[str]:
    """What was not comfortable is uncomfortable."""
    for negation in before.negations:
        new = {prefix + negation.nearest for prefix in language.negative_prefixes}
        if negation.nearest and not new.isdisjoint(after.keys - before.keys):
            yield negation.nearest


def lost_predicates(before: Reading, after: Reading) -> Iterator[Specific]:
    """What someone or something was said to be, right behind a form of "to be", and nothing like it in the new text."""
    language = before.language
    if language is None or before.keys <= after.keys:
        return
    new = [*islice(after.keys - before.keys, MOST_GAPS)]
    finite = language.be & (language.past | language.present)
    found = (
        at + 1
        for at, (verb, word) in enumerate(pairwise(before.words))
        if verb.low in finite and _may_be_predicate(word, language) and word.key not in after.keys
    )
    lost = (at for at in found if not any(related(before.words[at].key, key, language) for key in new))
    for at in islice(lost, MOST_NAMED):
        yield Specific(SpecificKind.CONTENT, before.words_of(at, at + 1))


def _may_be_predicate(word: Word, language: Language) -> bool:
    """Not of the passive, nor compared by itself."""
    is_plain = (
        bool(word.keys) and word.tense == "now" and not (word.marks or word.phrases or word.negation or word.number)
    )
    return is_plain and not word.low.endswith(language.common_endings) and word.key not in language.light


def _gaps(row: ContentRow, kept: Set[str]) -> Iterator[tuple[int, int]]:
    """The kept words on both sides of those that are gone."""
    last_kept = 0
    for place, key in enumerate(row.keys):
        if key in kept or key == _END:
            if place > last_kept + 1:
                yield last_kept, place
            last_kept = place


def _replaced_between(
    then: ContentRow, first: int, last: int, now: ContentRow, kept: Set[str], language: Language
) -> Iterator[int]:
    gone = range(first + 1, last)
    if (
        len(gone) > MOST_REPLACED
        or len(gone) * LEAST_SHARE < then.sentence_length(first + 1)
        or then.keys[first] == then.keys[last] == _END
    ):
        return
    for start in now.places.get(then.keys[first], ())[:MOST_PLACES]:
        new: list[str] = []
        for key in now.keys[start + 1 : start + MOST_REPLACED + 2]:
            if key == then.keys[last]:
                if new:
                    yield from _unrelated([*gone], then, new, language)
                    return
                break
            if key in kept or key == _END:
                break
            new.append(key)


def _unrelated(gone: list[int], then: ContentRow, new: list[str], language: Language) -> Iterator[int]:
    """The words that none of the new ones is a form or a synonym of, as long as one of those says something else."""
    strangers = [each for each in new if not any(related(then.keys[place], each, language) for place in gone)]
    strangers = [each for each in strangers if each not in language.light]
    if not strangers:
        return
    for place in gone:
        key = then.keys[place]
        if key not in language.light and not any(related(key, each, language) for each in new):
            yield then.at[place]


def related(one: str, other: str, language: Language) -> bool:
    """Forms or synonyms of one word, or its opposite, which is asked about by itself."""
    if one == other or language.share_a_class(one, other):
        return True
    short, long = sorted((one, other), key=len)
    if len(short) >= LEAST_STEM and long.startswith(short) and long[len(short) :] in language.derivations:
        return True
    alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    return alike >= LEAST_RELATED and alike >= LEAST_ALIKE * max(len(one), len(other))
