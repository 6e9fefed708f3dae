"""A file that is one JSON document: opened within limits, so that no file can fill the memory."""

from __future__ import annotations

from typing import Any

from app.errors import Invalid
from app.exchange.draft import parse_json
from app.exchange.importing import decode_text

MOST_BYTES = 32_000_000
MOST_PARTS = 2_000_000
"""Braces, brackets and commas. Each may become an object: some hundred megabytes in the worst case, for a second."""


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
