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
    now = _tenses(after, language)
    then = _tenses(before, language)
    for key, tenses in then.items():
        if key in now and tenses.keys().isdisjoint(now[key]):
            at = next(iter(tenses.values()))
            yield Specific(SpecificKind.TENSE, before.words_of(at, at + 1))
    yield from _changed_auxiliaries(before, after, language)


def _tenses(reading: Reading, language: Language) -> dict[str, dict[str, int]]:
    """Of each verb-like word the tenses in which it stands, and where."""
    tenses: dict[str, dict[str, int]] = {}
    words = reading.words
    for at, word in enumerate(words):
        if word.tense:
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
    for lost, gained in ((language.present, language.past), (language.past, language.present)):
        places, left = (_auxiliaries(each, lost, language, of_all) for each in (before, after))
        had, has = (len(_auxiliaries(each, gained, language, of_all)) for each in (before, after))
        if len(places) > len(left) and had < has:
            yield Specific(SpecificKind.TENSE, before.words_of(places[0], places[0] + 1))


def _auxiliaries(reading: Reading, of_one_time: Set[str], language: Language, of_all: bool) -> list[int]:
    """Where they stand. What has happened was so: both ways to say it may take each other's place, unless `of_all`."""
    places = [at for at, low in enumerate(reading.lows) if low in of_one_time]
    return [at for at in places if of_all or not _is_perfect(reading, at, language)]
