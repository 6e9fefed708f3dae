"""What was and what is: a verb, or a form of "to be", that is in another time now."""

from __future__ import annotations

from collections.abc import Iterator, Set

from app.meaning.language import Language
from app.meaning.reading import Reading
from app.meaning.specifics import Specific, SpecificKind


def changed_tenses(before: Reading, after: Reading) -> Iterator[Specific]:
    language = before.language
    if language is None:
        return
    turned = _turned(before, after)
    now = _tenses(after, language, turned)
    then = _tenses(before, language, turned)
    for key, tenses in then.items():
        if key in now and tenses.keys().isdisjoint(now[key]):
            at = next(iter(tenses.values()))
            yield Specific(SpecificKind.TENSE, before.words_of(at, at + 1))
    yield from _changed_auxiliaries(before, after, language)


def _turned(before: Reading, after: Reading) -> set[str]:
    """Verb-like words that by themselves stand in none of the tenses in which they stood: few, and often none."""
    then, now = _own_tenses(before), _own_tenses(after)
    return {key for key, tenses in then.items() if key in now and tenses.isdisjoint(now[key])}


def _own_tenses(reading: Reading) -> dict[str, set[str]]:
    tenses: dict[str, set[str]] = {}
    for word in reading.distinct:
        if word.tense:
            tenses.setdefault(word.key, set()).add(word.tense)
    return tenses


def _tenses(reading: Reading, language: Language, keys: Set[str]) -> dict[str, dict[str, int]]:
    """Of each of these verb-like words the tenses in which it stands, and where."""
    tenses: dict[str, dict[str, int]] = {}
    for at, word in enumerate(reading.words) if keys else ():
        if word.tense and word.key in keys:
            found = tenses.setdefault(word.key, {})
            found.setdefault(word.tense, at)
            for other in _other_tenses(reading, at, language):
                found.setdefault(other, at)
    return tenses


_REACH = 3
_CLAUSE_REACH = 10


def _other_tenses(reading: Reading, at: int, language: Language) -> Iterator[str]:
    """A participle behind a form of "to be" has the time of that; so has what is going on. Without one, it has any
    time, as a noun has; so has what has happened once something else happens."""
    before = reading.lows[max(0, at - _REACH) : at]
    if reading.words[at].tense == "past":
        is_whenever = not language.perfect.isdisjoint(before) and not language.whenever.isdisjoint(
            reading.lows[max(0, at - _CLAUSE_REACH) : at]
        )
        is_bare = bool(at) and reading.lows[at - 1] in language.whenever
        if is_whenever or is_bare or not language.be.isdisjoint(before):
            yield "now"
    else:
        is_noun = bool(at) and (
            reading.lows[at - 1] in language.bare_articles or reading.lows[at - 1] in language.determiners
        )
        is_going_on = reading.lows[at].endswith(language.progressive) and language.present.isdisjoint(before)
        if is_noun or is_going_on:
            yield "past"


def _is_perfect(reading: Reading, at: int, language: Language) -> bool:
    """Has moved, have been."""
    following = reading.words[at + 1 : at + 1 + _REACH]
    return reading.lows[at] in language.perfect and any(
        word.tense == "past" or word.low in language.participles for word in following
    )


def _changed_auxiliaries(before: Reading, after: Reading, language: Language) -> Iterator[Specific]:
    """One time has fewer of them than it had, and the other more."""
    of_all = any(after.lows.count(low) != before.lows.count(low) for low in language.pluperfect)
    present, past = (
        [_auxiliaries(each, time, language, of_all) for each in (before, after)]
        for time in (language.present, language.past)
    )
    for (places, left), (had, has) in ((present, past), (past, present)):
        if len(places) > len(left) and len(had) < len(has):
            yield Specific(SpecificKind.TENSE, before.words_of(places[0], places[0] + 1))


def _auxiliaries(reading: Reading, of_one_time: frozenset[str], language: Language, of_all: bool) -> list[int]:
    """Where they stand. What has happened was so: both ways to say it may take each other's place, unless `of_all`."""
    if of_one_time.isdisjoint(reading.vocabulary):
        return []
    places = [at for at, low in enumerate(reading.lows) if low in of_one_time]
    return [at for at in places if of_all or not _is_perfect(reading, at, language)]
