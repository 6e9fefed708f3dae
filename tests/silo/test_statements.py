"""The texts that are signed: each can be written in one form only, and the hashes in them tell nobody what was said."""

from __future__ import annotations

import pytest

from app.silo.notes import NoteBroken
from app.silo.statements import REQUEST, STATEMENT, compose_text, read_text, salted_hash

SAID = {"kind": "consent", "about": {"b": [1, None], "a": "ü"}, "granted": True}
TEXT = compose_text(STATEMENT, SAID)


def test_a_text_comes_back_as_it_was_composed() -> None:
    assert TEXT == 'whetstone-statement/1\n{"about":{"a":"\\u00fc","b":[1,null]},"granted":true,"kind":"consent"}\n'
    assert read_text(STATEMENT, TEXT) == SAID


@pytest.mark.parametrize(
    "text",
    [
        compose_text(REQUEST, SAID),
        TEXT.replace("/1\n", "/2\n"),
        TEXT.replace("/1\n", "/1 \n"),
        TEXT.replace(",", ", "),
        TEXT.replace("\\u00fc", "ü"),
        TEXT.replace('{"about"', '{"kind":"model","about"'),
        TEXT.replace("true", "1e0"),
        TEXT.replace("[1,", "[NaN,"),
        TEXT + "\n",
        TEXT[:-1],
        f"{STATEMENT}\n[]\n",
        f"{STATEMENT}\n" + "[" * 100_000,
        STATEMENT,
        "",
    ],
    ids=range(14),
)
def test_a_text_is_read_in_its_one_form_only(text: str) -> None:
    with pytest.raises(NoteBroken, match="is not of the form whetstone-statement/1"):
        read_text(STATEMENT, text)


def test_who_lacks_the_salt_can_not_guess_what_was_said() -> None:
    hashes = {salted_hash(salt, "NO") for salt in (b"one", b"two", b"")}
    assert len(hashes) == 3
    assert salted_hash(b"one", "NO") in hashes
    assert len(salted_hash(b"one", "\ud800")) == 64
