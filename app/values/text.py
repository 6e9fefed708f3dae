"""What text may enter: rules that both databases, every prompt and every screen can live with."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from app.errors import Invalid
from app.values.unseen import MARKED, NOTHING_TO_SEE

MAX_CONTENT = 10_000
"""Characters of one memory, after trimming."""

MAX_PROMPT = 10_000
MAX_NAME = 80
MAX_TAGS = 20
MAX_TAG = 40

MAX_ADDRESS = 254

_UNSEEN = frozenset({"Cc", "Cf", "Zs", "Zl", "Zp"})
_UNSEEN_IN_NAMES = frozenset({"Cc", "Cf", "Zl", "Zp"})


def clean_content(text: object) -> str:
    """A memory's text, trimmed. Raises Invalid with what was wrong and what is allowed."""
    cleaned = clean_text(text, what="content").strip()
    if is_blank(cleaned):
        raise Invalid("The content is blank; it must have 1 to 10,000 characters.")
    if len(cleaned) > MAX_CONTENT:
        raise Invalid(f"The content has {len(cleaned):,} characters; at most {MAX_CONTENT:,} are allowed.")
    return cleaned


def is_row_id(typed: str) -> bool:
    """Whether a row can have it: it is a plain number, and not longer than one that a database has."""
    return typed.isascii() and typed.isdigit() and len(typed) <= 18


def is_blank(text: str) -> bool:
    """Whether nothing of it can be seen, whatever Unicode calls its characters."""
    return all(unicodedata.category(each) in _UNSEEN or NOTHING_TO_SEE.match(each) for each in text)


def clean_text(text: object, *, what: str) -> str:
    """Refuse what is no text, and what databases store differently: NUL and lone surrogates."""
    if not isinstance(text, str):
        raise Invalid(f"The {what} must be text.")
    if "\x00" in text:
        raise Invalid(f"The {what} holds a NUL character, which can't be stored.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Invalid(f"The {what} holds half of a surrogate pair, which is no valid Unicode text.") from None
    return text


def clean_address(text: str) -> str:
    """An e-mail address as users are found by it. Raises Invalid."""
    address = text.strip().lower()
    is_one = "@" in address[1:-1] and len(address) <= MAX_ADDRESS and address.isprintable() and " " not in address
    if not is_one:
        raise Invalid(f"{text.strip()[:80]!r} is no e-mail address." if address else "The e-mail address is missing.")
    return address


def clean_prompt(text: object, *, what: str) -> str | None:
    """A prompt of at most 10,000 characters; blank means none."""
    if text is None:
        return None
    cleaned = clean_text(text, what=what).strip()
    if len(cleaned) > MAX_PROMPT:
        raise Invalid(f"The {what} has {len(cleaned):,} characters; at most {MAX_PROMPT:,} are allowed.")
    return None if is_blank(cleaned) else cleaned


def clean_name(name: object, *, what: str = "name") -> str:
    """A name of 1 to 80 characters on one line, all of which can be seen: no two names look alike by what is not."""
    cleaned = " ".join(clean_text(name, what=what).split())
    if not cleaned or len(cleaned) > MAX_NAME:
        raise Invalid(f"The {what} must have 1 to {MAX_NAME} characters.")
    if MARKED.search(cleaned) or any(unicodedata.category(character) in _UNSEEN_IN_NAMES for character in cleaned):
        raise Invalid(f"The {what} holds invisible characters.")
    return cleaned


def clean_tags(tags: object, *, most: int = MAX_TAGS) -> list[str]:
    """Tags: lower-case words, sorted, each once."""
    if tags is None:
        return []
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise Invalid("The tags must be a list of words.")
    cleaned = sorted({clean_name(tag, what="tag").lower() for tag in tags})
    if len(cleaned) > most or any(len(tag) > MAX_TAG for tag in cleaned):
        raise Invalid(f"At most {most} tags of at most {MAX_TAG} characters each are allowed.")
    return cleaned
