"""What is in a file: one JSON document, JSON Lines or plain text, read within limits: none fills the memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from app.errors import Invalid
from app.exchange.draft import MOST_DRAFTS, Checking, Draft, TooManyProblems, parse_draft, parse_json
from app.values.text import clean_content

MOST_BYTES = 32_000_000
MOST_PARTS = 2_000_000
"""Braces, brackets and commas. Each may become an object: some hundred megabytes in the worst case, for a second."""

MAX_LINE = 200_000
"""Bytes of one line: 10,000 characters in their longest JSON form, and room for the rest."""

Line = str | bytes


def load_document(data: bytes) -> Any:
    """What it holds. A document within a JSON string, as some tools export it, is opened too. Raises Invalid."""
    if len(data) > MOST_BYTES:
        raise Invalid(f"A JSON document of more than {MOST_BYTES // 1_000_000} MB is not taken; JSON Lines are.")
    if sum(data.count(mark) for mark in (b"{", b"[", b",")) > MOST_PARTS:
        raise Invalid("The JSON document has too many parts; JSON Lines are taken in pieces.")
    found = parse_json(decode_text(data))
    return parse_json(found) if isinstance(found, str) else found


def read_objects(value: object, what: str) -> list[dict[str, Any]]:
    """A list of objects; null stands for none. Raises Invalid."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise Invalid(f"The {what} must be a list of JSON objects.")
    return value


def count_items(value: object) -> int:
    """How many there are, where only that matters."""
    return len(value) if isinstance(value, list | dict) else 0


def read_lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file, none longer than what `parse_lines` refuses, so that no file can fill the memory."""
    return iter(lambda: file.readline(MAX_LINE + 1), b"")


def parse_lines(lines: Iterable[Line]) -> list[Draft]:
    """Check every line; blank ones are skipped. Raises ImportRefused with the first problems and their number."""
    checking = Checking()
    for number, line in enumerate(lines, start=1):
        with checking.of("line", number) as drafts:
            _check_number(number)
            if len(line) > MAX_LINE:
                raise TooManyProblems(
                    f"It is longer than {MAX_LINE:,} bytes, so it is no line of JSON Lines. The rest was not read."
                )
            text = decode_text(line)
            drafts += [parse_draft(parse_json(text))] if text else []
        if checking.is_over:
            break
    return checking.result()


def parse_text(data: bytes) -> list[Draft]:
    """Each line that is not blank is a core memory. UTF-8 only. Raises ImportRefused, or Invalid for a blank file."""
    checking = Checking()
    for number, line in enumerate(data.split(b"\n", MOST_DRAFTS), start=1):
        with checking.of("line", number) as drafts:
            _check_number(number)
            text = decode_text(line)
            drafts += [Draft(clean_content(text))] if text else []
    return checking.result()


def decode_text(line: Line) -> str:
    """UTF-8 without a byte order mark at either end. Raises Invalid."""
    try:
        return (line if isinstance(line, str) else line.decode()).strip("\ufeff \t\r\n")
    except UnicodeDecodeError as error:
        raise Invalid(f"It is not UTF-8 text (byte {error.start + 1:,}).") from None


def _check_number(line: int) -> None:
    if line > MOST_DRAFTS:
        raise TooManyProblems(f"One import takes at most {MOST_DRAFTS:,} lines; split the file. The rest was not read.")
