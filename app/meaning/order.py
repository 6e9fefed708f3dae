"""Who did what to whom: two names, numbers or words that took each other's place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from itertools import islice

from app.meaning.reading import Reading
from app.meaning.specifics import Specific, SpecificKind

MOST_COMPARED = 400
"""Words of a text whose places are compared: the first so many. A usual memory has fifty."""
MOST_OWNERS = 8
MOST_NAMED_SWAPS = 20
LEAST_MORE = 2
LEAST_MORE_OF_PLAIN_WORDS = 4
"""So many more of their neighbours must speak for an exchange than against it: in a paraphrase, plain words move more
than names and numbers do."""

Neighbour = tuple[str, str]


class Places:
    """The neighbours of each word of a text: the next one on each side, and the next one with content."""

    def __init__(self, reading: Reading, only: set[str]) -> None:
        self.neighbours: dict[str, set[Neighbour]] = {}
        self.owners: dict[Neighbour, dict[str, None]] = {}
        self.first: dict[str, int] = {}
        articles = reading.language.articles if reading.language else frozenset()
        row = list(islice(_compared(reading, articles, only), MOST_COMPARED))
        seen: set[tuple[str, ...]] = set()
        rights = _next_with_content(row)
        left = content_left = ""
        for number, (at, key, has_content) in enumerate(row):
            if has_content and key in only:
                right = row[number + 1][1] if number + 1 < len(row) else ""
                place = (key, left, right, content_left, rights[number])
                if place not in seen:
                    seen.add(place)
                    self._add(at, *place)
            left = key
            if has_content:
                content_left = key

    def _add(self, at: int, key: str, left: str, right: str, content_left: str, content_right: str) -> None:
        if key not in self.neighbours:
            self.neighbours[key] = set()
            self.first[key] = at
        mine = {("<", left), (">", right), ("<<", content_left), (">>", content_right)}
        mine = {neighbour for neighbour in mine if neighbour[1]}
        self.neighbours[key] |= mine
        for neighbour in mine:
            owners = self.owners.setdefault(neighbour, {})
            if len(owners) < MOST_OWNERS:
                owners[key] = None


def _compared(reading: Reading, articles: Set[str], only: Set[str]) -> Iterator[tuple[int, str, bool]]:
    """Where each word stands, its key, and whether it has content. A name that both texts hold is one word."""
    done = 0
    for at, word in enumerate(reading.words):
        if at < done or (word.clause_end and not word.sentence_end) or word.low in articles:
            continue
        last, name = reading.long_names.get(at, (at, ""))
        if name in only:
            done = last
            yield at, name, True
        else:
            yield at, word.key, bool(word.keys or word.number)


def _next_with_content(row: list[tuple[int, str, bool]]) -> list[str]:
    """Of each word the next one to the right that has content."""
    nearest, rights = "", []
    for _, key, has_content in reversed(row):
        rights.append(nearest)
        if has_content:
            nearest = key
    return rights[::-1]


def swapped(before: Reading, after: Reading) -> Iterator[Specific]:
    """Two words that each stand rather where the other stood than where they stood themselves. Where such pairs
    overlap, one is named: names and numbers first."""
    named: list[tuple[int, int]] = []
    for first, last in sorted(_exchanges(before, after), key=lambda pair: (_plain_words(before, pair), pair)):
        if all(last < other or end < first for other, end in named):
            named.append((first, last))
            end, _ = before.long_names.get(last, (last + 1, ""))
            yield Specific(SpecificKind.ORDER, before.words_of(first, end))
        if len(named) >= MOST_NAMED_SWAPS:
            return


def _plain_words(reading: Reading, places: tuple[int, int]) -> int:
    return sum(not (reading.words[at].capital or reading.words[at].number) for at in places)


def _exchanges(before: Reading, after: Reading) -> Iterator[tuple[int, int]]:
    """Where the two stand in the old text."""
    common = {word.key for word in before.distinct} & {word.key for word in after.distinct}
    if _in_order(before, common) == _in_order(after, common):
        return
    common |= {name for _, name in before.long_names.values()} & {name for _, name in after.long_names.values()}
    then, now = Places(before, common), Places(after, common)
    done: set[str] = set()
    for key, neighbours in now.neighbours.items():
        if key in done or key not in then.neighbours or neighbours <= then.neighbours[key]:
            continue
        other, there_more = _exchanged_with(key, then, now)
        if other and not _turned_passive(before, after, (key, other), then, now):
            done |= {key, other}
            first, last = sorted((then.first[key], then.first[other]))
            if _stays_near(before, (first, last), (key, other), then, now) or _is_in_a_list(before, first, last):
                continue
            if there_more >= LEAST_MORE_OF_PLAIN_WORDS or _plain_words(before, (first, last)) < 2:
                yield first, last


def _stays_near(before: Reading, places: tuple[int, int], pair: tuple[str, str], then: Places, now: Places) -> bool:
    """Side by side in both texts, as in "17 August" and "August 17"; or in one of them, as in "city of York" and "York
    city"; or a number and a name, which can't be mistaken. Two names that changed sides do say something else."""
    if len({bool(before.words[at].number) for at in places}) == 2:
        return True
    plain = _plain_words(before, places)
    dated = before.language is not None and any(before.lows[at] in before.language.months for at in places)
    besides = [_is_beside(*pair, each, "<>") for each in (then, now)]
    if all(besides):
        return plain > 0 or dated
    return plain > 0 and any(besides) and all(_is_beside(*pair, each, ("<<", ">>")) for each in (then, now))


def _is_beside(key: str, other: str, row: Places, sides: Iterable[str]) -> bool:
    return any((side, other) in row.neighbours[key] for side in sides)


def _is_in_a_list(reading: Reading, first: int, last: int) -> bool:
    """Two names with nothing between them but names and what joins them: their order says nothing."""
    articles = reading.language.articles if reading.language else frozenset()
    between = reading.words[first : last + 1]
    return (
        not _plain_words(reading, (first, last))
        and any(each.clause_end or each.low in articles for each in between)
        and all(each.capital or each.clause_end or each.low in articles for each in between)
    )


def _is_passive(pair: tuple[str, str], reading: Reading) -> bool:
    """One of the two is a participle behind a form of "to be"."""
    be = reading.language.be if reading.language else frozenset()
    return any(
        word.tense == "past" and word.key in pair and not be.isdisjoint(reading.lows[max(0, at - 2) : at])
        for at, word in enumerate(reading.words)
    )


def _turned_passive(before: Reading, after: Reading, pair: tuple[str, str], then: Places, now: Places) -> bool:
    """Ada wrote it; it was written by Ada. The branch must be rebased; rebase the branch."""
    if _is_passive(pair, before) is not _is_passive(pair, after):
        return True
    by = {("<", low) for low in before.language.passive} if before.language else set()
    return any(not by.isdisjoint(then.neighbours[key]) for key in pair) is not any(
        not by.isdisjoint(now.neighbours[key]) for key in pair
    )


def _in_order(reading: Reading, common: Set[str]) -> list[str]:
    return [word.key for word in reading.words if word.key in common and (word.keys or word.number)]


def _exchanged_with(key: str, then: Places, now: Places) -> tuple[str, int]:
    """With how many more neighbours speak for it. An empty word where nothing does."""
    candidates = {
        other
        for neighbour in now.neighbours[key] - then.neighbours[key]
        for other in then.owners.get(neighbour, ())
        if other != key and other in now.neighbours
    }
    for other in sorted(candidates):
        there = len(now.neighbours[key] & then.neighbours[other])
        here = len(now.neighbours[other] & then.neighbours[key])
        kept = len(now.neighbours[key] & then.neighbours[key]) + len(now.neighbours[other] & then.neighbours[other])
        if there and here and there + here >= kept + LEAST_MORE:
            return other, there + here - kept
    return "", 0
