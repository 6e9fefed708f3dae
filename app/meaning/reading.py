"""A text read once: its words, and every specific among them."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from app.meaning.language import Language, language_of
from app.meaning.lazy import lazy
from app.meaning.numbers import SYMBOLS, number_atom, time_atom, total_of
from app.meaning.specifics import Atom, Specific, SpecificKind, Specifics
from app.meaning.tokens import codes, composed, plain, quotes, spans, squeezed, tokens, unaccented, unmarked
from app.meaning.words import Word, read_token

_LONGEST_FRAME = 8
_DENIED = 3
"""Words before "may" that tell that it is about what is allowed: no guest may."""
_SCOPE = 4
"""Content words that a negation reaches."""
AGE = "year of age"
"""Without its unit, too, a number says how old someone is."""
_HALVES_OF_DAYS = {"am": "am", "a.m": "am", "pm": "pm", "p.m": "pm"}


_HOLDING_OPPOSITES = (SpecificKind.MODAL, SpecificKind.OPPOSITE)
"""Kinds of phrases in which an opposite counts by itself, too."""


class FoundSpecific(NamedTuple):
    """It stands from word `first` up to `last`, which is not part of it."""

    kind: SpecificKind
    first: int
    last: int
    atoms: frozenset[Atom]


class Negation(NamedTuple):
    """`scope`: keys of what is negated; what follows, or else what stands before. `nearest`: the first of
    them that carries something by itself."""

    first: int
    scope: tuple[str, ...]
    nearest: str


def extract(text: str) -> Specifics:
    """All specifics of a text, in the order in which they stand."""
    reading = Reading(text)
    return Specifics(reading.code, tuple(reading.named_specifics()), tuple(map(reading.content_word, reading.content)))


class Reading:
    """`like`: the text that this one is compared with, whose language's rules then count here, too."""

    def __init__(self, text: str, like: Reading | None = None) -> None:
        self._as_written = composed(text)
        self.text = plain(self._as_written)
        self._raws = tokens(unmarked(self.text))
        self.language: Language | None = like.language if like else self._detected()
        self.code = self.language.code if self.language else None
        known = self._read(like._known if like else {})
        self.words: list[Word] = [word for raw in self._raws for word in known[raw]]
        self._known: dict[str, list[Word]] = known
        self.lows = [word.low for word in self.words]
        self.distinct = [word for each in known.values() for word in each]
        self.vocabulary = {*self.lows}
        self.negations: list[Negation] = []
        self.found = list(self._found())
        self.counts = Counter([atom for each in self.found for atom in each.atoms])
        self.atoms = self.counts.keys() | self._loose_atoms()

    def _detected(self) -> Language | None:
        return language_of(
            [
                raw
                for raw in self._raws
                if raw.isalpha() or (raw[0].isalpha() and raw.replace("'", "").replace("-", "").isalpha())
            ]
        )

    def _read(self, read: dict[str, list[Word]]) -> dict[str, list[Word]]:
        """By token, without those again that were read before."""
        stop_words: dict[str, list[Word]] = _stop_words(self.language) if self.language else {}
        return {raw: stop_words.get(raw) or read.get(raw) or read_token(raw, self.language) for raw in {*self._raws}}

    def count_specifics(self) -> int:
        """How many there are to be named."""
        return len(self.found) + len(self.codes) + len(self.quotes) + len(self.negations)

    def named_specifics(self) -> Iterator[Specific]:
        yield from (Specific(each.kind, self.words_of(each.first, each.last), each.atoms) for each in self.found)
        for kind, atoms in ((SpecificKind.CODE, self.codes), (SpecificKind.QUOTE, self.quotes)):
            yield from (Specific(kind, words, frozenset({(kind, key)})) for key, words in atoms.items())
        yield from (Specific(SpecificKind.NEGATION, self.words_of_negation(each)) for each in self.negations)

    @lazy
    def content(self) -> dict[str, int]:
        """The keys of the content words, each with the place where it stands first."""
        content: dict[str, int] = {}
        for at, word in enumerate(self.words):
            for key in word.keys:
                content.setdefault(key, at)
        return content

    def content_word(self, key: str) -> str:
        """As it stands in the text; of a script without spaces, the pair of characters itself."""
        at = self.content[key]
        return key if len(self.words[at].keys) > 1 else self.words_of(at, at + 1)

    @lazy
    def keys(self) -> set[str]:
        return {key for word in self.distinct for key in word.keys}

    @lazy
    def pairs(self) -> set[tuple[str, str]]:
        lows = [word.low for word in self.words if not word.clause_end]
        links = self.language.name_links if self.language else frozenset()
        return {*itertools.pairwise(lows), *itertools.pairwise([low for low in lows if low not in links])}

    @lazy
    def _unaccented(self) -> set[str]:
        """Only of the words with accents."""
        return {unaccented(low) for low in self.vocabulary if not low.isascii()}

    def _holds_word(self, low: str) -> bool:
        if low in self.vocabulary or low in self._unaccented:
            return True
        return not low.isascii() and (unaccented(low) in self.vocabulary or unaccented(low) in self._unaccented)

    @lazy
    def codes(self) -> dict[str, str]:
        found = codes(self.text) if "`" in self.text else ()
        return {key: code.strip() for code in found if (key := squeezed(code))}

    @lazy
    def quotes(self) -> dict[str, str]:
        return {key: quote.strip() for quote in quotes(self.text) if (key := quote_key(quote))}

    @lazy
    def long_names(self) -> dict[int, tuple[int, str]]:
        """Names of several words: by the place where each starts, its end, and all of it."""
        return {
            found.first: (found.last, " ".join(self.lows[found.first : found.last]))
            for found in self.found
            if found.kind is SpecificKind.NAME and found.last > found.first + 1
        }

    @lazy
    def haystack(self) -> str:
        return squeezed(self.text)

    @lazy
    def folded_haystack(self) -> str:
        return self.haystack.casefold()

    def holds(self, atom: Atom) -> bool:
        if atom[0] == "word":
            return self._holds_word(str(atom[1]))
        if atom[0] == "id" and atom[1] in self.vocabulary:
            return True
        if atom[0] == "ordinal":
            return atom[2] in self.vocabulary or ("number", atom[1]) in self.counts
        if len(atom) == 3 and atom[2] == AGE:
            return atom[:2] in self.counts or (*atom[:2], "year") in self.counts
        if atom[0] == "pair":
            one, other = str(atom[1]), str(atom[2])
            if (one, other) in self.pairs:
                return True
            accented = one not in self.vocabulary or other not in self.vocabulary
            return accented and self._holds_word(one) and self._holds_word(other)
        return atom in self.atoms

    def sentences(self) -> Iterator[tuple[int, int]]:
        first = 0
        for at, word in enumerate(self.words):
            if word.sentence_end:
                if at > first:
                    yield first, at
                first = at + 1
        if first < len(self.words):
            yield first, len(self.words)

    def words_of(self, first: int, last: int) -> str:
        """As they stand in the text."""
        starts, raw_spans = self._places
        from_raw, to_raw = bisect_right(starts, first) - 1, bisect_right(starts, last - 1) - 1
        return self._as_written[raw_spans[from_raw][0] : raw_spans[to_raw][1]]

    @lazy
    def _places(self) -> tuple[list[int], list[tuple[int, int]]]:
        """The first word of each token that has words, and where that token stands."""
        places = spans(unmarked(self.text))
        counts = [len(self._known[raw]) for raw in self._raws]
        starts = [0, *itertools.accumulate(counts)][:-1]
        if 0 in counts:
            places = [place for place, count in zip(places, counts, strict=True) if count]
            starts = [start for start, count in zip(starts, counts, strict=True) if count]
        return starts, places

    def words_of_negation(self, negation: Negation) -> str:
        last = next(
            (
                at + 1
                for at in range(negation.first + 1, min(negation.first + 8, len(self.words)))
                if negation.scope and negation.scope[0] in self.words[at].keys
            ),
            negation.first + 1,
        )
        return self.words_of(negation.first, last)

    # What is found among the words

    def _found(self) -> Iterator[FoundSpecific]:
        words, done = self.words, 0
        frames = self._frames()
        followings = [*self.lows[1:], ""]
        for at in [at for at, word in enumerate(words) if word.telling]:
            if at < done or at in frames:
                continue
            word = words[at]
            if word.number and not (word.capital and self._is_in_name(at)):
                following = followings[at]
                if word.found and not self._belongs_to_number(following):
                    yield FoundSpecific(SpecificKind.NUMBER, at, at + 1, word.found[0][1])
                    continue
                found = self._number(at, word, following)
                done = found.last
                yield found
                continue
            if word.found:
                if timed := self._time(at, word, followings[at]):
                    done = timed.last
                    yield timed
                    continue
                for kind, atoms in word.found:
                    yield FoundSpecific(kind, at, at + 1, atoms)
                continue
            for found in self._at(at, word):
                done = found.last
                yield found

    def _frames(self) -> set[int]:
        """The words of beginnings of sentences like "it should be noted that", of which none is a specific."""
        language = self.language
        if language is None:
            return set()
        hollow = set(self._hollow(language))
        if language.frame_ends.isdisjoint(self.vocabulary):
            return hollow
        starts = [0, *(at + 1 for at, word in enumerate(self.words) if word.sentence_end)]
        return hollow.union(at for start in starts for at in range(start, self._end_of_frame(start, language)))

    def _hollow(self, language: Language) -> Iterator[int]:
        clauses = language.hollow_clauses
        for at in [at for at, low in enumerate(self.lows) if low in clauses]:
            for words in clauses[self.lows[at]]:
                if tuple(self.lows[at : at + len(words)]) == words:
                    yield from range(at, at + len(words))

    def _end_of_frame(self, start: int, language: Language) -> int:
        for at, word in enumerate(self.words[start : start + _LONGEST_FRAME], start):
            if word.low in language.frame_ends:
                return at
            hollow = word.low in language.frame_words or language.light.issuperset(word.keys)
            hedged = any(kind is SpecificKind.HEDGE for kind, _ in word.marks)
            if word.clause_end or word.negation or word.number or hedged or not hollow:
                return start
        return start

    def _is_in_name(self, at: int) -> bool:
        """As in "Four Rivers"."""
        return at + 1 < len(self.words) and self.words[at + 1].capital and not self._starts_sentence(at)

    def _belongs_to_number(self, following: str) -> bool:
        """Whether it changes the meaning of the number before it."""
        if following in SYMBOLS or following in _HALVES_OF_DAYS:
            return True
        return self.language is not None and following in self.language.belonging_to_numbers

    def _is_number_word(self, low: str) -> bool:
        return self.language is not None and low in self.language.number_words

    def _at(self, at: int, word: Word) -> Iterator[FoundSpecific]:
        if self.language is None:
            return
        if word.low in self.language.rates:
            if (unit := self.language.units.get(self._low(at + 1))) is not None:
                yield FoundSpecific(SpecificKind.NUMBER, at, at + 2, frozenset({("unit", unit)}))
            return
        if word.low in self.language.dated:
            if word.low in self.language.ordinals and at and self.lows[at - 1] in self.language.determiners:
                ordinal: Atom = ("ordinal", self.language.loose_numbers[word.low], word.low)
                yield FoundSpecific(SpecificKind.NUMBER, at, at + 1, frozenset({ordinal}))
            if dated := self._date(at, word, self.language):
                yield dated
                return
        if word.negation and not self._is_idiom(at, self.language):
            self.negations.append(self._negation(at, self.language))
        if word.low in self.language.not_before and self._low(at + 1) in self.language.not_before[word.low]:
            return
        if word.capital and (name := self._name(at, word, self.language)):
            yield name
        elif word.phrases and (phrase := self._phrase(at, word)):
            yield phrase
            for each in range(at, phrase.last) if phrase.kind in _HOLDING_OPPOSITES else ():
                yield from (
                    FoundSpecific(kind, each, phrase.last, frozenset({atom}))
                    for kind, atom in self.words[each].marks
                    if kind is SpecificKind.OPPOSITE and atom[:2] not in {each[:2] for each in phrase.atoms}
                )
        elif word.marks and (word.low not in self.language.before_numbers or self._is_before_number(at)):
            is_allowed = not self.language.negating_determiners.isdisjoint(self.lows[max(0, at - _DENIED) : at])
            yield from (
                FoundSpecific(kind, at, at + 1, frozenset({atom}))
                for kind, atom in word.marks
                if not (is_allowed and kind is SpecificKind.HEDGE and len(word.marks) > 1)
            )

    def _is_before_number(self, at: int) -> bool:
        """As "about five" or "about a week" is, and "about Ann" isn't."""
        following = self.words[at + 1] if at + 1 < len(self.words) else None
        if following is None or self.language is None:
            return False
        dated = following.low in self.language.days or following.low in self.language.months
        return bool(following.number or following.found or dated or following.low in self.language.loose_numbers)

    def _low(self, at: int) -> str:
        return self.lows[at] if at < len(self.lows) else ""

    def _number(self, at: int, word: Word, following: str) -> FoundSpecific:
        """With the number words and the unit behind it. "6 pm" is a time."""
        last, value, unit = at + 1, word.number, ""
        if self.language and (not word.found or self._is_number_word(following)):
            while last < len(self.words) and self._is_number_word(self.lows[last]):
                last += 1
            if value.replace(".", "").isdigit():
                values = {**self.language.number_words, word.low: value}
                value = total_of(self.lows[at:last], values)
            following = self._low(last)
        if following in _HALVES_OF_DAYS and value.isdigit() and len(value) < 3:
            atom = time_atom(value, "0", _HALVES_OF_DAYS[following])
            return FoundSpecific(SpecificKind.DATE, at, last + 1, frozenset({atom}))
        if self.language and following in self.language.units:
            unit = self.language.units[following]
            if unit == "year" and self._low(last + 1) in self.language.ages:
                unit, last = AGE, last + 1
        elif following == "percent" or (len(following) > 1 and following in SYMBOLS):
            unit = SYMBOLS.get(following, following)
        return FoundSpecific(SpecificKind.NUMBER, at, last + bool(unit), frozenset({number_atom(value, unit)}))

    def _time(self, at: int, word: Word, following: str) -> FoundSpecific | None:
        """7:15 with its half of the day behind it."""
        if following in _HALVES_OF_DAYS and word.found[0][0] is SpecificKind.DATE:
            for atom in word.found[0][1]:
                if atom[0] == "time":
                    time = time_atom(str(atom[1]), str(atom[2]), _HALVES_OF_DAYS[following])
                    return FoundSpecific(SpecificKind.DATE, at, at + 2, frozenset({time}))
        return None

    def _date(self, at: int, word: Word, language: Language) -> FoundSpecific | None:
        """A day or a month. The numbers beside a month are found as numbers."""
        if word.low in language.days:
            return FoundSpecific(SpecificKind.DATE, at, at + 1, frozenset({("day", language.days[word.low])}))
        month = language.months.get(word.low) or language.short_months.get(word.low)
        if month is None:
            return None
        near = [self.words[each] for each in (at - 1, at + 1) if 0 <= each < len(self.words)]
        numbered = any(each.number for each in near)
        certain = word.low in language.months and word.capital and not word.marks
        if not (
            numbered or certain or (word.capital and at and self.lows[at - 1] in ("in", "of", "since", "last", "until"))
        ):
            return None
        return FoundSpecific(SpecificKind.DATE, at, at + 1, frozenset({("month", month)}))

    def _phrase(self, at: int, word: Word) -> FoundSpecific | None:
        for phrase, (kind, atom) in word.phrases:
            if tuple(self.lows[at : at + len(phrase)]) == phrase and not self._means_another(at, phrase):
                return FoundSpecific(kind, at, at + len(phrase), frozenset({atom}))
        return None

    def _means_another(self, at: int, phrase: tuple[str, ...]) -> bool:
        """As what is used to do it, and who used to do it."""
        excluded = self.language.not_after.get(" ".join(phrase)) if self.language else None
        return excluded is not None and not excluded.isdisjoint(self.lows[max(0, at - 2) : at])

    def _is_idiom(self, at: int, language: Language) -> bool:
        if self._low(at + 1) != language.only_before.get(self.lows[at], self._low(at + 1)):
            return True
        return any(
            at >= number and tuple(self.lows[at - number : at - number + len(idiom)]) == idiom
            for number, idiom in language.idioms.get(self.lows[at], ())
        )

    def _negation(self, at: int, language: Language) -> Negation:
        scope = self._scope(at, language)
        nearest = next((key for key in scope if key not in language.light), scope[0] if scope else "")
        return Negation(at, scope, nearest)

    def _scope(self, at: int, language: Language) -> tuple[str, ...]:
        scope: list[str] = []
        for word in self.words[at + 1 : at + 12]:
            if word.clause_end or (scope and word.low in language.scope_ends) or len(scope) >= _SCOPE:
                break
            if word.low not in language.scope_skips:
                scope.extend(word.keys)
        if not scope:
            for word in reversed(self.words[max(0, at - 4) : at]):
                if word.sentence_end:
                    break
                scope.extend(word.keys)
        return tuple(scope)

    # Names

    def _name(self, at: int, word: Word, language: Language) -> FoundSpecific | None:
        if not self._may_be_name(word, language):
            return None
        at_start = self._starts_sentence(at)
        if at_start and (word.marks or word.low in language.not_names) and word.low not in language.given_names:
            return None
        last = at + 1
        while last < len(self.words) and self.words[last].capital and self._may_be_name(self.words[last], language):
            last += 1
        if at_start and not self._is_name_at_start(at, last, language):
            at += 1
            if at == last:
                return None
        lows = self.lows[at:last]
        pairs: set[Atom] = {("pair", one, other) for one, other in itertools.pairwise(lows)}
        atoms: set[Atom] = {("word", low) for low in lows}
        return FoundSpecific(SpecificKind.NAME, at, last, frozenset(atoms | pairs))

    def _may_be_name(self, word: Word, language: Language) -> bool:
        if word.low in language.stop_words or word.negation:
            return False
        if word.low in language.days or word.low in language.months:
            return False
        emphasis = len(word.low) > _LONGEST_ACRONYM or word.marks or word.low in language.not_names
        return not (word.upper and emphasis)

    def _starts_sentence(self, at: int) -> bool:
        return at == 0 or self.words[at - 1].opening

    def _is_name_at_start(self, at: int, last: int, language: Language) -> bool:
        word, following = self.words[at], self.words[at + 1] if at + 1 < len(self.words) else None
        if word.low in language.given_names or (word.upper and len(word.low) > 1):
            return True
        if word.low.endswith(("s", *language.common_endings)):
            return False
        if last > at + 1:
            return True
        if following is None or not following.is_word:
            return False
        return following.low in language.followers or following.low.endswith(language.follower_endings)

    # What answers for a specific without being one

    def _loose_atoms(self) -> set[Atom]:
        atoms: set[Atom] = set()
        atoms.update(atom[:2] for atom in self.counts if len(atom) == 3 and atom[0] == "number")
        if self.language:
            units, loose = self.language.units, self.language.loose_numbers
            atoms.update(("unit", units[low]) for low in units.keys() & self.vocabulary)
            said = loose.keys() & self.vocabulary
            atoms.update(number_atom(loose[low]) for low in said)
            if said and not units.keys().isdisjoint(self.vocabulary):
                atoms.update(
                    number_atom(loose[low], units[following])
                    for low, following in itertools.pairwise(self.lows)
                    if low in said and following in units
                )
        return atoms


_LONGEST_ACRONYM = 5


@cache
def _stop_words(language: Language) -> dict[str, list[Word]]:
    """The words of the language's own file that stand in every text, read once for all texts."""
    return {low: read_token(low, language) for low in language.stop_words}


def quote_key(quote: str) -> str:
    return squeezed(quote).casefold().strip(" .,:;!?'\"")
