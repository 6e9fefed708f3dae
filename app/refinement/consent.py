"""Consent: reading an agent's answer. The first word decides, and whatever is not a clear YES is a NO."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from app.llm.client import Reply

MAX_NOTE = 280
"""Characters of a note to admins."""

_THOUGHT = re.compile(r"\s*<(think|thinking|thought|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_DECORATION = "*_~`#>\"'“”‘’«»()[]{}.,;:!?¡¿…-–— \t\r\n"
_FIRST_WORD = re.compile(r"[^\s,.;:!?…—–]+")
_NOTE = re.compile(r"^[ \t>*_]*to admins[*_]*:[*_]*[ \t]*(.+)$", re.IGNORECASE | re.MULTILINE)
CUT_OFF = frozenset({"length", "max_tokens", "content_filter", "refusal"})
"""Reasons to end a reply that make it no whole one."""


@dataclass(frozen=True)
class Answer:
    """`words` are the agent's own and content; `note_to_admins` was written for admins to see."""

    granted: bool
    words: str = field(repr=False)
    note_to_admins: str | None = None


def read_answer(reply: Reply) -> Answer:
    """YES only if the first word is YES and the reply was not cut off; one closed leading think block is ignored."""
    said = without_thought(reply.text)
    cut_off = reply.finish_reason in CUT_OFF
    return Answer(first_word(said) == "YES" and not cut_off, _storable(reply.text), read_note(said))


def read_note(text: str) -> str | None:
    """The first line that starts with `To admins:`, shortened to 280 characters."""
    found = _NOTE.search(text)
    return clean_note(found[1]) if found else None


def clean_note(text: str) -> str | None:
    """One printable line of at most 280 characters, or None when nothing is left."""
    line = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    return (line if len(line) <= MAX_NOTE else line[: MAX_NOTE - 1] + "…") or None


def _storable(text: str) -> str:
    """Half a surrogate pair, which a model can send in JSON, is no Unicode text: it becomes a question mark."""
    return text.encode("utf-8", "replace").decode()


def without_thought(text: str) -> str:
    """The text less one closed think block at its beginning."""
    found = _THOUGHT.match(text)
    return text[found.end() :] if found else text


def first_word(text: str) -> str:
    """In capitals, less Markdown and punctuation; empty for a word of other letters, which no rule of ours knows."""
    found = _FIRST_WORD.match(text.lstrip(_DECORATION))
    word = found[0].strip(_DECORATION) if found else ""
    return word.upper() if word.isascii() else ""
