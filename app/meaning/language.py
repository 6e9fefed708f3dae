"""One language's rules, from a file of its own in `languages/`: another language is a file."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from app.meaning.specifics import Atom, SpecificKind

FOLDER = Path(__file__).with_name("languages")
_OTHERS = "others.toml"
_LEAST_SHARE_OF_LATIN = 0.4
_LEAST_EVIDENCE = 2
"""Words of another language: one may be a name."""

Mark = tuple[SpecificKind, Atom]


@dataclass(frozen=True, eq=False)
class Language:
    """A file of `languages/`, ready to look words up in."""

    code: str
    stop_words: frozenset[str]
    articles: frozenset[str]
    bare_articles: frozenset[str]
    pronouns: frozenset[str]
    joints: frozenset[str]
    rates: frozenset[str]
    endings: tuple[tuple[tuple[str, str], ...], ...]
    double_consonants: bool
    contractions: Mapping[str, tuple[str, ...]]
    contraction_endings: Mapping[str, str]
    number_words: Mapping[str, str]
    loose_numbers: Mapping[str, str]
    months: Mapping[str, int]
    short_months: Mapping[str, int]
    days: Mapping[str, str]
    units: Mapping[str, str]
    negations: frozenset[str]
    idioms: Mapping[str, Sequence[tuple[int, tuple[str, ...]]]]
    """By each of their words: which one of the idiom it is, and the idiom."""
    negative_prefixes: tuple[str, ...]
    scope_ends: frozenset[str]
    scope_skips: frozenset[str]
    clause_openers: frozenset[str]
    phrase_openers: frozenset[str]
    frame_ends: frozenset[str]
    determiners: frozenset[str]
    ordinals: frozenset[str]
    telling_openers: frozenset[str]
    not_after: Mapping[str, frozenset[str]]
    """By phrase: the words behind which it means something else."""
    not_before: Mapping[str, frozenset[str]]
    only_before: Mapping[str, str]
    negating_determiners: frozenset[str]
    imperatives: frozenset[str]
    """Modals that a bare verb says, too."""
    no_imperatives: frozenset[str]
    bare_endings: tuple[str, ...]
    before_imperatives: frozenset[str]
    perfect: frozenset[str]
    participles: frozenset[str]
    pluperfect: frozenset[str]
    frame_words: frozenset[str]
    hollow_clauses: Mapping[str, Sequence[tuple[str, ...]]]
    """By the first word of each."""
    progressive: str
    whenever: frozenset[str]
    before_numbers: frozenset[str]
    passive: frozenset[str]
    ages: frozenset[str]
    irregular: Mapping[str, str]
    forms: Mapping[str, str]
    past: frozenset[str]
    present: frozenset[str]
    be: frozenset[str]
    not_names: frozenset[str]
    followers: frozenset[str]
    follower_endings: tuple[str, ...]
    common_endings: tuple[str, ...]
    name_links: frozenset[str]
    given_names: frozenset[str]
    group_endings: tuple[tuple[str, ...], ...]
    derivations: frozenset[str]
    dated: frozenset[str]
    """Of days, months, rates and ordinals."""
    marks: dict[str, list[Mark]] = field(default_factory=dict)
    """Of single words, as they are written."""
    marks_by_stem: dict[str, list[Mark]] = field(default_factory=dict)
    phrases: dict[str, list[tuple[tuple[str, ...], Mark]]] = field(default_factory=dict)
    """Of several words, by the first of them."""
    soft: set[Atom] = field(default_factory=set)
    """Asked about only where another of their group takes the place."""
    synonyms: dict[str, set[int]] = field(default_factory=dict)
    """Of a stem the numbers of the classes that it belongs to."""
    answers: dict[Atom, frozenset[str]] = field(default_factory=dict)
    """Of a pole the stems that answer for it where they are new in the text."""
    modal_answers: dict[Atom, frozenset[str]] = field(default_factory=dict)
    """Of a modal the stems that answer for it."""
    light: set[str] = field(default_factory=set)
    """Stems of words that carry little by themselves."""

    @cached_property
    def marked(self) -> frozenset[str]:
        """All words that a list of the file names as they are written: most words of a text are none of them."""
        return self.negations | self.dated | {*self.marks, *self.phrases, *self.number_words}

    @cached_property
    def belonging_to_numbers(self) -> frozenset[str]:
        return frozenset((*self.units, *self.number_words))

    def stem(self, word: str) -> str:
        """What the forms of a word have in common. `word` in lower case."""
        word = self.irregular.get(word) or self.forms.get(word, word)
        if len(word) <= 3 or not word.isascii():
            return word
        for group, any_of_them in zip(self.endings, self.group_endings, strict=True):
            if not word.endswith(any_of_them):
                continue
            for ending, left in group:
                if word.endswith(ending):
                    if len(word) - len(ending) >= 3 or left == ending:
                        word = word[: len(word) - len(ending)] + left
                        if self.double_consonants and not left and ending not in ("s", "e"):
                            word = _undoubled(word)
                    break
        return word

    def share_a_class(self, one: str, other: str) -> bool:
        """Of synonyms, of states, or of opposites. By stem."""
        if not self.synonyms.get(one, frozenset()).isdisjoint(self.synonyms.get(other, ())):
            return True
        classes = {atom[:2] for _, atom in self.marks_by_stem.get(one, ())}
        return any(atom[:2] in classes for _, atom in self.marks_by_stem.get(other, ()))

    def opposites_of(self, stem: str) -> list[Atom]:
        return [
            (kind, atom[1], 1 - int(str(atom[2])))
            for kind, atom in self.marks_by_stem.get(stem, ())
            if kind is SpecificKind.OPPOSITE
        ]

    def expanded(self, word: str) -> tuple[str, ...]:
        """The words behind a contraction: doesn't → does, not."""
        if word in self.contractions:
            return self.contractions[word]
        if "'" in word:
            for ending, meant in self.contraction_endings.items():
                if word.endswith(ending) and len(word) > len(ending):
                    return (word[: -len(ending)], meant) if meant else (word[: -len(ending)],)
        return (word,)


def _undoubled(word: str) -> str:
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiouls" else word


def language_of(words: Sequence[str]) -> Language | None:
    """Of the words of a text, as they stand. Words that no language knows say nothing against the first known one, as
    long as most letters are Latin: notes are full of names and code."""
    lows = [word.lower() for word in words]
    latin = len([low for low in lows if "a" <= low[0] <= "z"])
    if not latin or latin < _LEAST_SHARE_OF_LATIN * len(lows):
        return None
    score, best = -1, None
    for language in languages():
        known = len([low for low in lows if low in language.stop_words or "'" in low])
        if known > score:
            score, best = known, language
    foreign = len([word for word in words if not word.isascii() and word[0].islower()])
    return best if score >= foreign and _speaks_for(lows, score) else None


def _speaks_for(lows: Sequence[str], score: int) -> bool:
    """Whether no language that has no rules here has more of these words than `score`."""
    counts = Counter([low for low in lows if low in _words_of_others()])
    if counts.total() <= score:
        return True
    others = max(sum(counts[low] for low in other & counts.keys()) for other in _others())
    return others < _LEAST_EVIDENCE or score >= others


@cache
def languages() -> tuple[Language, ...]:
    return tuple(read_language(path) for path in sorted(FOLDER.glob("*.toml")) if path.name != _OTHERS)


@cache
def _others() -> tuple[frozenset[str], ...]:
    lists = tomllib.loads((FOLDER / _OTHERS).read_text(encoding="utf-8"))
    return tuple(frozenset(words.split()) for words in lists.values())


@cache
def _words_of_others() -> frozenset[str]:
    return frozenset[str]().union(*_others())


def read_language(path: Path) -> Language:
    """Raises KeyError, naming what the file lacks."""
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    names, negations, tense = data["names"], data["negations"], data["tense"]
    language = Language(
        code=data["code"],
        stop_words=frozenset(data["stop_words"].split()),
        articles=frozenset(data["articles"].split()),
        bare_articles=frozenset(data["bare_articles"].split()),
        pronouns=frozenset(data["pronouns"].split()),
        joints=frozenset(data["joints"].split()),
        rates=frozenset(data["rates"].split()),
        endings=tuple(tuple((ending, left) for ending, left in group) for group in data["endings"]),
        double_consonants=data["double_consonants"],
        contractions={short: tuple(full.split()) for short, full in data["contractions"].items()},
        contraction_endings=data["contraction_endings"],
        number_words=data["number_words"],
        loose_numbers=data["loose_number_words"],
        months=data["months"],
        short_months=data["short_months"],
        days=_by_word(data["days"]),
        units=_by_word(data["units"]),
        negations=frozenset(negations["words"].split()),
        idioms=_by_each_word(tuple(idiom.split()) for idiom in negations["idioms"]),
        negative_prefixes=tuple(negations["prefixes"]),
        scope_ends=frozenset(negations["ends"].split()),
        scope_skips=frozenset(negations["skips"].split()),
        clause_openers=frozenset(data["clause_openers"].split()),
        phrase_openers=frozenset(data["phrase_openers"].split()),
        frame_ends=frozenset(data["frame_ends"].split()),
        determiners=frozenset(data["determiners"].split()),
        ordinals=frozenset(data["ordinals"].split()),
        telling_openers=frozenset(data["telling_openers"].split()),
        not_after={phrase: frozenset(words.split()) for phrase, words in data["not_after"].items()},
        not_before={word: frozenset(words.split()) for word, words in data["not_before"].items()},
        only_before=negations["only_before"],
        negating_determiners=frozenset(negations["determiners"].split()),
        imperatives=frozenset(data["imperatives"]["modals"].split()),
        no_imperatives=frozenset(data["imperatives"]["except"].split()),
        bare_endings=tuple(data["imperatives"]["bare_endings"]),
        before_imperatives=frozenset(data["imperatives"]["openers"].split()),
        perfect=frozenset(tense["perfect"].split()),
        participles=frozenset(tense["participles"].split()),
        pluperfect=frozenset(tense["pluperfect"].split()),
        frame_words=frozenset(data["frame_words"].split()),
        hollow_clauses=_by_first_word(data["hollow_clauses"]),
        progressive=tense["progressive"],
        whenever=frozenset(tense["whenever"].split()),
        before_numbers=frozenset(data["before_numbers"].split()),
        passive=frozenset(data["passive"].split()),
        ages=frozenset(data["ages"].split()),
        irregular=_pairs(tense["irregular"]),
        forms=_pairs(tense["forms"]),
        past=frozenset(tense["past"].split()),
        present=frozenset(tense["present"].split()),
        be=frozenset(tense["be"].split()),
        not_names=frozenset(names["not_names"].split()),
        followers=frozenset(names["followers"].split()),
        follower_endings=tuple(names["follower_endings"]),
        common_endings=tuple(names["common_endings"]),
        name_links=frozenset(names["links"].split()),
        given_names=frozenset(names["given_names"].split()),
        group_endings=tuple(tuple(ending for ending, _ in group) for group in data["endings"]),
        derivations=frozenset(data["derivations"].split()),
        dated=frozenset(
            [
                *data["rates"].split(),
                *data["ordinals"].split(),
                *_by_word(data["days"]),
                *data["months"],
                *data["short_months"],
            ]
        ),
    )
    _add_classes(language, SpecificKind.MODAL, data["modals"], soft=False)
    _add_classes(language, SpecificKind.MODAL, data["soft_modals"], soft=True)
    _add_classes(language, SpecificKind.HEDGE, data["hedges"], soft=False)
    _add_classes(language, SpecificKind.TENSE, data["times"], soft=False)
    _add_states(language, data["states"])
    _add_poles(language, data["opposites"], soft=False)
    _add_poles(language, data["soft_opposites"], soft=True)
    for name, poles in data["answers"].items():
        for side, words in enumerate(poles):
            atom: Atom = (SpecificKind.OPPOSITE, name, side)
            language.answers[atom] = frozenset(map(language.stem, words.split()))
    language.modal_answers.update(
        ((SpecificKind.MODAL, name), frozenset(map(language.stem, words.split())))
        for name, words in data["answering_modals"].items()
    )
    for number, line in enumerate(data["synonyms"].strip().splitlines()):
        for word in line.split():
            language.synonyms.setdefault(language.stem(word), set()).add(number)
    language.light.update(map(language.stem, data["light_words"].split()))
    return language


def _pairs(text: str) -> dict[str, str]:
    """Of lines, or parts between bars, of two words."""
    pairs = (part.split() for part in text.replace("\n", "|").split("|") if part.strip())
    return dict(pairs)


def _by_each_word(idioms: Iterable[tuple[str, ...]]) -> dict[str, list[tuple[int, tuple[str, ...]]]]:
    found: dict[str, list[tuple[int, tuple[str, ...]]]] = {}
    for idiom in idioms:
        for number, word in enumerate(idiom):
            found.setdefault(word, []).append((number, idiom))
    return found


def _by_first_word(phrases: Iterable[str]) -> dict[str, list[tuple[str, ...]]]:
    found: dict[str, list[tuple[str, ...]]] = {}
    for phrase in phrases:
        words = tuple(phrase.split())
        found.setdefault(words[0], []).append(words)
    return found


def _by_word(classes: Mapping[str, str]) -> dict[str, str]:
    return {word: name for name, words in classes.items() for word in words.split()}


def _add_classes(language: Language, kind: SpecificKind, classes: Mapping[str, list[str]], *, soft: bool) -> None:
    for name, phrases in classes.items():
        atom: Atom = (kind, name)
        if soft:
            language.soft.add(atom)
        for phrase in phrases:
            first, *rest = phrase.split()
            if rest:
                language.phrases.setdefault(first, []).append(((first, *rest), (kind, atom)))
            else:
                language.marks.setdefault(first, []).append((kind, atom))


def _add_states(language: Language, lines: str) -> None:
    """A line is a class, by stem."""
    for line in lines.strip().splitlines():
        first, *_ = words = line.split()
        for word in words:
            marks = language.marks_by_stem.setdefault(language.stem(word), [])
            mark = (SpecificKind.STATE, (SpecificKind.STATE, first))
            if mark not in marks:
                marks.append(mark)


def _add_poles(language: Language, pairs: Mapping[str, Any], *, soft: bool) -> None:
    for name, poles in pairs.items():
        for side, words in enumerate(poles):
            atom: Atom = (SpecificKind.OPPOSITE, name, side)
            if soft:
                language.soft.add(atom)
            for word in words.split():
                first, *rest = word.split("_")
                if rest:
                    language.phrases.setdefault(first, []).append(((first, *rest), (SpecificKind.OPPOSITE, atom)))
                    continue
                marks = language.marks_by_stem.setdefault(language.stem(word), [])
                if (SpecificKind.OPPOSITE, atom) not in marks:
                    marks.append((SpecificKind.OPPOSITE, atom))
