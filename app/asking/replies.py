"""Reading what a model answered: by its first word, or as one JSON object; or nothing of it counts.

Of a consent, to a refinement and to an exception alike, the first word decides, and whatever is not a clear YES is a
NO: also a YES whose first sentence, or first two lines, say NO as well.
"""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass, field
from typing import Any

from app.errors import WhetstoneError
from app.llm.client import Reply
from app.models.attention import MAX_NOTE
from app.strictjson import no_duplicates
from app.values.text import is_blank

_THOUGHT = re.compile(r"\s*<(think|thinking|thought|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_DECORATION = "*_~`#>\"'“”‘’«»()[]{}.,;:!?¡¿…-–— \t\r\n"
_FIRST_WORD = re.compile(r"[^\s,.;:!?…—–]+")
_SENTENCE = re.compile(r".*?(?:[.!?…。！？](?=[^\w\s]{0,8}(?:\s|\Z))|\n\s*\n|\Z)", re.DOTALL)
_NO = re.compile(r"(?<![^\W_])(?:NO|(?i:or[\W_]++no))(?![^\W_])")
_ALIKE = str.maketrans("ΝОΟоο", "NOOoo")
"""Greek and Cyrillic letters that look like those of NO."""

_NOTE = re.compile(r"^[ \t>*_]*to admins[*_]*:[*_]*[ \t]*(.+)$", re.IGNORECASE | re.MULTILINE)
CUT_OFF = frozenset({"length", "max_tokens", "content_filter", "refusal"})
"""Reasons to end a reply that make it no whole one."""

_FENCE = re.compile(r"```(?:json|text|plaintext)?[ \t]*\n(.*)\n[ \t]*```", re.DOTALL | re.IGNORECASE)


class MalformedReply(WhetstoneError):
    """The model's reply is not of the form that it was asked for. The sentence holds nothing of the reply."""

    code = "malformed"

    def __init__(self, why: str) -> None:
        super().__init__(f"The model's reply could not be used: {why}.")


@dataclass(frozen=True)
class ConsentAnswer:
    """`words` are the agent's own and content; `note_to_admins` was written for admins to see."""

    granted: bool
    words: str = field(default="", repr=False)
    note_to_admins: str | None = None


def read_answer(reply: Reply) -> ConsentAnswer:
    """YES only if the first word is YES, the beginning says no NO, and the reply was not cut off.

    One closed leading think block is ignored.
    """
    said = without_thought(reply.text)
    granted = first_word(said) == "YES" and not says_no_too(said) and reply.finish_reason not in CUT_OFF
    words = reply.text.encode("utf-8", "replace").decode()  # half a surrogate pair becomes a question mark
    return ConsentAnswer(granted, words, read_note(said))


def read_note(text: str) -> str | None:
    """The first line that starts with `To admins:`, shortened to 280 characters."""
    found = _NOTE.search(text)
    return clean_note(found[1]) if found else None


def clean_note(text: str) -> str | None:
    """One printable line of at most 280 characters, or None when nothing is left."""
    line = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    if is_blank(line):
        return None
    return line if len(line) <= MAX_NOTE else line[: MAX_NOTE - 1] + "…"


def without_thought(text: str) -> str:
    """The text less one closed think block at its beginning."""
    found = _THOUGHT.match(text)
    return text[found.end() :] if found else text


def without_code_fence(text: str) -> str:
    """The text less one code fence around all of it."""
    found = _FENCE.fullmatch(text)
    return found[1] if found else text


def says_no_too(text: str) -> bool:
    """Whether its first sentence or first two lines hold NO in capitals, or "or no": then it echoes the question.

    A blank line ends a sentence too. Lines without a letter or digit do not count; a note to admins does.
    """
    text = text.lstrip(_DECORATION).replace("\r\n", "\n").replace("\r", "\n")
    sentence = _SENTENCE.match(text)
    beginning = text[: max(sentence.end() if sentence else 0, _end_of_second_line(text))]
    plain = "".join(c for c in unicodedata.normalize("NFKC", beginning) if unicodedata.category(c) != "Cf")
    return _NO.search(plain.translate(_ALIKE)) is not None


def _end_of_second_line(text: str) -> int:
    end = lines = 0
    for line in text.split("\n"):
        end += len(line) + 1
        lines += any(map(str.isalnum, line))
        if lines == 2:
            break
    return end


def first_word(text: str) -> str:
    """In capitals, less Markdown and punctuation; empty for a word of other letters, which no rule of ours knows."""
    found = _FIRST_WORD.match(text.lstrip(_DECORATION))
    word = found[0].strip(_DECORATION) if found else ""
    return word.upper() if word.isascii() else ""


def read_object(reply: Reply, *keys: str) -> dict[str, Any]:
    """One JSON object of exactly these keys, and nothing else. Raises MalformedReply.

    One closed leading think block and one code fence around all of it are taken off; nothing else is.
    """
    if reply.finish_reason in CUT_OFF:
        raise MalformedReply("it was cut off")
    text = without_code_fence(without_thought(reply.text).strip())
    try:
        found = json.loads(text, object_pairs_hook=no_duplicates)
    except (ValueError, RecursionError):
        raise MalformedReply("it is not one JSON object and nothing else") from None
    if not isinstance(found, dict) or set(found) != set(keys):
        raise MalformedReply(f"it must be a JSON object with {' and '.join(keys)}, and nothing else")
    return found


def read_list(found: dict[str, Any], name: str, most: int) -> list[Any]:
    """A list of at most so many entries. Raises MalformedReply."""
    given = found[name]
    if not isinstance(given, list):
        raise MalformedReply(f"{name} must be a list")
    if len(given) > most:
        raise MalformedReply(f"{name} has {len(given):,} entries, and at most {most} are allowed")
    return given
