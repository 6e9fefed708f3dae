"""A name that is said more than once may go from one of its places: that is a loss where the place is still there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set
from itertools import islice

from app.meaning.reading import Reading
from app.meaning.specifics import Specific, SpecificKind

LONGEST_FILLING = 3
"""Words that may stand in the place of a name, at most."""
ANTECEDENT_REACH = 40
"""So many words back, the same name says whom a pronoun means."""
MOST_WORDS = 2_000
MOST_COMPARED = 100
MOST_PLACES = 8
MOST_NAMED = 20
"""Bounds of what is looked at in a long text: words, places of names, where else a word stands, and what is named."""
_STOP, _COMMA = ".", ","


def emptied_places(before: Reading, after: Reading) -> Iterator[Specific]:
    """Names that stood between two words, which still stand together, with the name no more between them."""
    rare = Counter(before.lows)
    rare.subtract(after.lows)
    fallen = {low for low, less in rare.items() if less > 0}
    names = [
        (found.first, found.last)
        for found in before.found
        if found.kind is SpecificKind.NAME and not fallen.isdisjoint(before.lows[found.first : found.last])
    ]
    if not names:
        return
    then, now = Row(before), Row(after)
    places: dict[tuple[str, str, str], tuple[int, int]] = {}
    for first, last in names:
        for place in _places_of(first, last, then, fallen):
            places.setdefault(place, (first, last))
    lost = [name for place, name in islice(places.items(), MOST_COMPARED) if now.lacks(then, *place)]
    for first, last in islice(dict.fromkeys(lost), MOST_NAMED):
        yield Specific(SpecificKind.NAME, before.words_of(first, last))


def _places_of(first: int, last: int, then: Row, fallen: Set[str]) -> Iterator[tuple[str, str, str]]:
    """The words before, of and after the name; and of each of its words, where it has several."""
    if first in then.place_of:
        at = then.place_of[first]
        end = at + last - first
        yield then.low(at - 1), then.low(at), then.low(end)
        if last > first + 1:
            yield from (
                (then.low(each - 1), then.low(each), then.low(each + 1))
                for each in range(at, end)
                if then.low(each) in fallen
            )


class Row:
    """The words of a text in order: sentence and clause ends as one mark each, articles left out."""

    def __init__(self, reading: Reading) -> None:
        language = reading.language
        self._articles = language.bare_articles if language else frozenset()
        self._pronouns = language.pronouns if language else frozenset()
        self._joints = language.joints if language else frozenset()
        self.place_of: dict[int, int] = {}
        self.lows: list[str] = []
        self.at: dict[str, list[int]] = {}
        for number, word in enumerate(reading.words[:MOST_WORDS]):
            low = _STOP if word.sentence_end else _COMMA if word.clause_end else word.low
            if low in self._articles:
                continue
            self.place_of[number] = len(self.lows)
            self.at.setdefault(low, []).append(len(self.lows))
            self.lows.append(low)

    def low(self, at: int) -> str:
        return self.lows[at] if 0 <= at < len(self.lows) else _STOP

    def lacks(self, then: Row, left: str, name: str, right: str) -> bool:
        """Is there one more such place without the name than there was?"""
        return self._without(left, name, right) > then._without(left, name, right)

    def _without(self, left: str, name: str, right: str) -> int:
        starts = [-1, *self.at.get(_STOP, ())] if left == _STOP else self.at.get(left, [])
        return sum(self._is_without(start, name, right) for start in starts[:MOST_PLACES])

    def _is_without(self, start: int, name: str, right: str) -> bool:
        for end in range(start + 1, start + LONGEST_FILLING + 2):
            low = self.low(end)
            if low == name:
                return False
            if low == right:
                return not self._is_understood(start, end, name)
            if low == _STOP:
                return False
        return False

    def _is_understood(self, start: int, end: int, name: str) -> bool:
        """By a pronoun, or as the subject that goes on: Ada sails and cooks."""
        filling = self.lows[start + 1 : end]
        is_open = not filling and (self.low(start) in (_STOP, _COMMA) or self.low(start) in self._joints)
        if not (is_open or (filling and self._pronouns.issuperset(filling))):
            return False
        return any(max(0, start - ANTECEDENT_REACH) <= at <= start for at in self.at.get(name, ()))
