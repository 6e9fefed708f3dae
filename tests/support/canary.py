"""Canaries: texts that can be told apart from everything else, and the search for them in whatever form they slip out.

Each place where content can be gets a canary of its own, `canary("ledger")`. All of them hold the same two words, one
plain and one beyond ASCII, at their beginning and at their end: a search for these finds any of them, cut off or whole.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterator
from functools import cache
from urllib.parse import quote

from flask import Flask
from sqlalchemy import inspect, text

from app.extensions import db
from tests.support.workers import everything_in

PLAIN = "quokkazanzibar"
STRANGE = "üntérΩжарぬ🦉"
"""Two, three and four bytes in UTF-8, and half of a surrogate pair in UTF-16."""

_PLACE = re.compile(rf"{PLAIN}0([a-z]+)0")


def canary(place: str) -> str:
    """The text that stands in this place and in no other. The place is a word: a comparison of words keeps it whole."""
    return f'{PLAIN}0{place}0 sang "{STRANGE}" <at dawn> & {STRANGE} {PLAIN}'


def places_in(text: str) -> set[str]:
    """The places whose canaries stand in a page without its tags, read as a person would read it."""
    return set(_PLACE.findall(html.unescape(text)))


def assert_nowhere(haystack: bytes, where: object) -> None:
    """Fails with the form that it found, and what stands around it."""
    found = find(haystack)
    assert not found, f"{found} stands in {where}"


def assert_nowhere_at_rest(app: Flask) -> None:
    """Searches every column of every table, and every file of the installation: database, WAL, broker's files, logs."""
    for where, content in everything_at_rest(app):
        assert_nowhere(content, where)


def everything_at_rest(app: Flask) -> Iterator[tuple[str, bytes]]:
    """Each table with all of its columns, and each file, by its name."""
    db.session.rollback()
    with db.engine.connect() as connection:
        for table in inspect(connection).get_table_names():
            rows = connection.execute(text(f'SELECT * FROM "{table}"'))
            yield f"table {table}", b"\n".join(_raw(value) for row in rows for value in row)
    for path, content in everything_in(app.extensions["settings"].data):
        yield path.name, content


def _raw(value: object) -> bytes:
    return bytes(value) if isinstance(value, bytes | memoryview) else str(value).encode()


def find(haystack: bytes) -> str:
    """The first canary that stands here in any form, with its surroundings; empty for none."""
    folded = haystack.lower()
    for form in exact_forms():
        if form in haystack:
            return _around(haystack, haystack.index(form), form)
    for form in folded_forms():
        if form in folded:
            return _around(haystack, folded.index(form), form)
    return ""


@cache
def folded_forms() -> tuple[bytes, ...]:
    """The forms whose letters may have changed their case on the way."""
    words = (PLAIN, STRANGE, STRANGE.upper(), STRANGE.lower())
    return _unique([form.lower() for word in words for form in _forms_of(word)])


@cache
def exact_forms() -> tuple[bytes, ...]:
    """Base64 of each of them: three alignments, two alphabets."""
    words = [encoded for word in (PLAIN, STRANGE) for encoded in (*_encoded(word), json.dumps(word)[1:-1].encode())]
    found = [form for word in words for form in _in_base64(word)]
    return _unique([*found, *(form.translate(bytes.maketrans(b"+/", b"-_")) for form in found)])


def _forms_of(word: str) -> Iterator[bytes]:
    for encoded in _encoded(word):
        yield encoded
        yield encoded.hex().encode()
        yield encoded.hex(" ").encode()
        yield repr(encoded)[2:-1].encode()
        yield quote(encoded).encode()
    yield json.dumps(word)[1:-1].encode()
    yield repr(json.dumps(word))[2:-2].encode()
    yield ascii(word)[1:-1].encode()
    yield word.encode("ascii", "xmlcharrefreplace")
    yield word.encode("ascii", "namereplace")
    yield word.encode("unicode-escape")
    yield "".join(f"&#x{ord(letter):x};" for letter in word).encode()
    yield word[::-1].encode()


def _encoded(word: str) -> Iterator[bytes]:
    for encoding in ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-7"):
        yield word.encode(encoding)


def _in_base64(word: bytes) -> Iterator[bytes]:
    """What is the same whatever stands before and behind it."""
    for shift in range(3):
        yield base64.b64encode(b"\x00" * shift + word)[4 if shift else 0 : -4]


def _unique(forms: list[bytes]) -> tuple[bytes, ...]:
    return tuple(dict.fromkeys(form for form in forms if len(form) > 7))


def _around(haystack: bytes, at: int, form: bytes) -> str:
    return f"{form!r} in {haystack[max(0, at - 80) : at + len(form) + 80]!r}"
