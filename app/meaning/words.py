"""What one token says by itself, worked out once for each distinct token of a text."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from app.meaning.language import Language, Mark
from app.meaning.numbers import SYMBOLS, Found, number_atom, read_number
from app.meaning.specifics import SpecificKind
from app.meaning.tokens import DENSE

_DENSE = re.compile(f"[{DENSE}]")
_CLAUSE_ENDS = frozenset(",،、，(){}[]:—–→|-") | {"--", "->"}
_OPENING = frozenset(":([{—–→|-") | {"--", "->"}
"""A capital after one of these says nothing."""
_SENTENCE_ENDS = frozenset(".!?;。！？।؟\n")
_UNKNOWN_KEY = 6
"""Of a word of an unknown language so many letters are compared, so that most endings don't count."""

_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_DOTTED_LETTERS = re.compile(r"[^\W\d_](?:\.[^\W\d_])+")
_SPLIT = re.compile(r"[./:\\&=?+~@-]")
_IN_CAMEL_CASE = re.compile(r"[a-z][A-Z][a-z]")


class Word:
    """`low`: in lower case. `key`: what its forms have in common. `keys`: its content, empty for words without any.
    `telling`: it may be a specific, or the beginning of one. `owner`: a genitive."""

    # Most words leave most of this as it is, and a text has many of them.
    marks: Sequence[Mark] = ()
    phrases: Sequence[tuple[tuple[str, ...], Mark]] = ()
    number = ""
    tense = ""
    is_word = False
    telling = False
    negation = False
    capital = False
    upper = False
    clause_end = False
    sentence_end = False
    opening = False
    owner = False

    def __init__(self, low: str, key: str = "", keys: tuple[str, ...] = (), found: tuple[Found, ...] = ()) -> None:
        self.low = low
        self.key = key or low
        self.keys = keys
        self.found = found


def read_token(raw: str, language: Language | None) -> list[Word]:
    """Several for a contraction or a compound."""
    first = raw[0]
    if raw.isascii() and raw.isalpha() and (raw.islower() or raw[1:].islower()):
        meant = language.expanded(raw.lower()) if language else (raw.lower(),)
        return [_plain_word(raw if at == 0 else each, each, language) for at, each in enumerate(meant)]
    if raw.isascii() and raw.isdigit():
        return [_digits(raw)]
    if raw in _SENTENCE_ENDS or raw in _CLAUSE_ENDS:
        return [_punctuation(raw)]
    if _DENSE.match(first):
        return [_dense(raw)]
    if "://" in raw or _EMAIL.fullmatch(raw):
        return [_literal(raw.rstrip(".,:;!?)'}]*_"), SpecificKind.ADDRESS)]
    if first.isdigit() or first in "$€£¥₹-−+":
        if numbers := read_number(raw):
            return [_number(raw, found) for found in numbers]
        if first in "-−+" and raw[1:2].isalpha() and not raw.startswith("--"):
            return read_token(raw[1:], language)
        return [_literal(raw, SpecificKind.IDENTIFIER)]
    if raw == "&":
        return [Word("and")]
    if not (first.isalpha() or first in "_@#$~/.{"):
        return [_literal(raw.rstrip("\ufe0f"), SpecificKind.EMOJI)] if first not in "%°" else [_symbol(first)]
    if kind := _literal_kind(raw):
        return [_literal(raw.rstrip(".:"), kind)]
    return _plain_words(raw, language)


def _literal_kind(raw: str) -> SpecificKind | None:
    """Of what must be kept to the letter: a path, an identifier. None of plain words."""
    if raw[0] in "/~" or raw.startswith("./") or raw.startswith("../"):
        return SpecificKind.ADDRESS if len(raw) > 1 else None
    if raw[0] in "@#$" and len(raw) > 1 and (len(raw) > 2 or raw[0] == "#"):
        return SpecificKind.IDENTIFIER
    body = raw.strip("_")
    if raw.endswith("()") or "_" in body or "\\" in raw or any(map(str.isdigit, raw)):
        return SpecificKind.ADDRESS if "/" in raw else SpecificKind.IDENTIFIER
    pieces = raw.split(".")
    if len(pieces) > 1 and not _DOTTED_LETTERS.fullmatch(raw) and all(pieces) and "'" not in raw:
        if "/" in raw:
            return SpecificKind.ADDRESS
        joined_sentences = pieces[1][0].isupper() and pieces[0][-1].islower() and len(pieces) == 2
        return None if joined_sentences else SpecificKind.IDENTIFIER
    if raw.count("/") > 1 or "::" in raw or "=" in raw:
        return SpecificKind.ADDRESS if "/" in raw else SpecificKind.IDENTIFIER
    return SpecificKind.IDENTIFIER if raw[0].islower() and _IN_CAMEL_CASE.search(raw) and raw.isalpha() else None


def _punctuation(raw: str) -> Word:
    word = Word(raw)
    word.sentence_end, word.clause_end = raw in _SENTENCE_ENDS, True
    word.opening = word.sentence_end or raw in _OPENING
    return word


def _dense(raw: str) -> Word:
    return Word(raw, keys=tuple(map("".join, itertools.pairwise(raw))) or (raw,))


def _literal(raw: str, kind: SpecificKind) -> Word:
    word = Word(raw.lower(), keys=(raw.lower(),), found=((kind, frozenset({("id", raw.lower().lstrip("@#$"))})),))
    word.telling = True
    return word


def _digits(raw: str) -> Word:
    atom = number_atom(raw)
    word = Word(raw, found=((SpecificKind.NUMBER, frozenset((atom,))),))
    word.telling, word.number = True, str(atom[1])
    return word


def _number(raw: str, found: Found) -> Word:
    kind, atoms = found
    word = Word(raw.lower(), found=(found,))
    word.telling = True
    if kind is SpecificKind.NUMBER:
        (atom,) = atoms
        if len(atom) == 2:
            word.number = str(atom[1])
    return word


def _symbol(raw: str) -> Word:
    return Word(SYMBOLS[raw])


def _plain_words(raw: str, language: Language | None) -> list[Word]:
    if _DOTTED_LETTERS.fullmatch(raw):
        return [_plain_word(raw, raw.lower(), language)]
    pieces = [piece for piece in _SPLIT.split(raw.strip("_@#$~{}/.:")) if piece]
    words: list[Word] = []
    for piece in pieces:
        low = piece.lower()
        meant = language.expanded(low) if language else (low,)
        words.extend(_plain_word(piece if at == 0 else each, each, language) for at, each in enumerate(meant))
    if words and raw.endswith(("'s", "s'")) and len(words) == 1:
        words[0].owner = True
    return words


def _plain_word(raw: str, low: str, language: Language | None) -> Word:
    if language is None:
        word = Word(low, low[:_UNKNOWN_KEY])
        word.keys = (word.key,) if len(low) > 1 else ()
        word.is_word = True
        return word
    key = language.stem(low)
    word = Word(low, key, () if low in language.stop_words else (key,))
    word.is_word = True
    if low in language.marked or key in language.marks_by_stem:
        _mark(word, language)
    if raw[0].isupper():
        word.capital = word.telling = True
        word.upper = len(raw) > 1 and raw.isupper()
    if word.keys:
        word.tense = _tense(low, language)
    return word


def _mark(word: Word, language: Language) -> None:
    """With all that the language's lists say of it."""
    low = word.low
    marks, marks_by_stem = language.marks.get(low), language.marks_by_stem.get(word.key)
    if marks or marks_by_stem:
        word.marks, word.telling = [*(marks or ()), *(marks_by_stem or ())], True
    if low in language.phrases:
        word.phrases, word.telling = language.phrases[low], True
    if low in language.negations:
        word.negation = word.telling = True
    if low in language.number_words:
        word.number, word.keys, word.telling = language.number_words[low], (), True
    if low in language.dated:
        word.telling = True


def _tense(low: str, language: Language) -> str:
    if low in language.past or low in language.present:
        return ""
    if low in language.irregular or (low.endswith("ed") and len(low) > 4):
        return "past"
    return "now"
