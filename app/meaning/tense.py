"""What was and what is: a verb, or a form of "to be", that is in another time now."""

from __future__ import annotations

from collections.abc import Iterator

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
            if word.tense == "past" and not language.be.isdisjoint(reading.lows[max(0, at - 3) : at]):
                found.setdefault("now", at)
    return tenses


def _changed_auxiliaries(before: Reading, after: Reading, language: Language) -> Iterator[Specific]:
    """One time has fewer of them than it had, and the other more."""
    for lost, gained in ((language.present, language.past), (language.past, language.present)):
        places = [at for at, low in enumerate(before.lows) if low in lost]
        if (
            places
            and len(places) > sum(map(lost.__contains__, after.lows))
            and sum(map(gained.__contains__, before.lows)) < sum(map(gained.__contains__, after.lows))
        ):
            yield Specific(SpecificKind.TENSE, before.words_of(places[0], places[0] + 1))
