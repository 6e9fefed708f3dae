"""Cuts a text into tokens, in time that grows with its length alone: each pattern is possessive or bounded.

What a possessive group repeats begins with single characters, and only what may also be absent stands behind them:
before Python 3.11.5 a group that fails after a repeat, or in a lookahead, keeps what it took (CPython's issue 106052).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

DENSE = (
    "\u0900-\u0963\u0966-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Scripts that are compared by pairs of characters: they write no spaces, or vowels that are no word characters."""

_W = rf"[^\W{DENSE}]"
_ONE_EMOJI = (
    "[\U0001f000-\U0001f1e5\U0001f200-\U0001f3fa\U0001f400-\U0001faff"
    "\u2600-\u27bf\u2b50\u2b55\u231a\u231b\u23e9-\u23fa]"
)
_EMOJI = (
    rf"[\U0001f1e6-\U0001f1ff]{{1,2}}|{_ONE_EMOJI}[\ufe0f\U0001f3fb-\U0001f3ff]*+"
    rf"(?:\u200d{_ONE_EMOJI}[\ufe0f\U0001f3fb-\U0001f3ff]*+)*+"
)
_TOKEN = re.compile(
    "|".join(
        (
            r"[A-Za-z]++(?=[ ,\n]|$)",
            rf"[{DENSE}]++",
            r"[A-Za-z][A-Za-z0-9+]{0,15}+://[^\s<>\"|]++",
            r"[A-Za-z0-9_.+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-][A-Za-z0-9-]{0,62}){1,8}+",
            r"(?<![\w)/])(?:~|\.{1,2})?/[A-Za-z_{][\w.{}:%@+/=&?*~-]*+",
            r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d\d)?+(?:\.\d\d{0,8})?+(?:Z|[+-]\d{2}:?\d{2})?",
            r"(?:(?<![^\s(])[-−+])?[$€£¥₹]?\d++(?:[.,:/–-]\d\d*+){0,8}+[A-Za-z%°µ²³]{0,12}+(?![A-Za-z0-9_])",
            rf"(?<![\w-])--?[A-Za-z][\w-]*+|[@#$]?{_W}++(?:['.:/\\&=?+~@-]{_W}{_W}*+){{0,30}}+(?:\(\))?+",
            r"[%°&]",
            _EMOJI,
            r"[.!?](?=[\s\"')*]|$)|[;。！？।؟]|\n",
            r"[,،、，(){}\[\]:]|[—–→|]|(?<=\s)--?(?=\s)|->",
        )
    )
)
_PLAIN = {"’": "'", "‘": "'", "ʼ": "'", "“": '"', "”": '"', "„": '"', "‑": "-", "\u00a0": " ", "\u202f": " "}

_LIST_NUMBER = re.compile(r"^[ \t]{0,8}+\d{1,2}+[.)](?=[ \t])", re.MULTILINE)

_CODE = re.compile(r"```(?!```)(.+?)```|``((?:(?!'')[^`\n]){1,1000})``(?!`)|(?<!`)`([^`\n]{1,1000}+)`", re.DOTALL)
_QUOTE = re.compile(
    r"(?=[`'\"«「『])(?:``([^`'\n]{1,300}+)''|\"([^\"\n]{1,300}+)\"|«([^«»\n]{1,300}+)»|「([^「」\n]{1,300}+)」|『([^『』\n]{1,300}+)』"
    r"|(?<![\w'])'(?=\S)([^'\n]{1,300}+(?:(?<=\w)'(?=\w)[^'\n]{1,300}+){0,5})'(?!\w))"
)
_QUOTATION_MARKS = "\"'«「『`"


def composed(text: str) -> str:
    """NFC."""
    if text.isascii() or unicodedata.is_normalized("NFC", text):
        return text
    return unicodedata.normalize("NFC", text)


def unaccented(word: str) -> str:
    return "".join(each for each in unicodedata.normalize("NFD", word) if not unicodedata.combining(each))


def plain(text: str) -> str:
    """With one kind of quotation mark, hyphen and space, character by character."""
    if text.isascii():
        return text
    for found, meant in _PLAIN.items():
        text = text.replace(found, meant)
    return text


def unmarked(text: str) -> str:
    """With spaces for code marks, emphasis and the numbers of a list's lines."""
    text = text.replace("`", " ").replace("*", " ")
    return _LIST_NUMBER.sub(lambda match: " " * len(match[0]), text) if "\n" in text else text


def tokens(text: str) -> list[str]:
    """Of a plain text without marks."""
    return _TOKEN.findall(text)


def spans(text: str) -> list[tuple[int, int]]:
    """Where each of `tokens(text)` stands."""
    return [match.span() for match in _TOKEN.finditer(text)]


def codes(text: str) -> Iterator[str]:
    """What stands between code marks."""
    return (next(filter(None, match.groups()), "") for match in _CODE.finditer(text))


def quotes(text: str) -> Iterator[str]:
    """What stands between quotation marks, outside of code."""
    if not any(mark in text for mark in _QUOTATION_MARKS):
        return iter(())
    return (next(filter(None, match.groups()), "") for match in _QUOTE.finditer(_CODE.sub(" ", text)))


def squeezed(text: str) -> str:
    """Without code marks and emphasis, each white space one space."""
    return " ".join(unmarked(text).split())
