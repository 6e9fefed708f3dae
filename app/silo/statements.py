"""The texts that are signed: a heading that says which form it is, and one JSON object in one form only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from app.silo.notes import NoteBroken
from app.strictjson import no_duplicates

STATEMENT = "whetstone-statement/1"
"""What stands in the log: signed by the installation key and, where a token decided, by that token."""

REQUEST = "whetstone-request/1"
"""What a web process asks the worker to state: signed by the web process's own key."""


def compose_text(heading: str, said: Mapping[str, Any]) -> str:
    """The two lines that are signed: the heading, and the object as canonical JSON (sorted, no spaces, ASCII)."""
    return f"{heading}\n{_canonical_json(said)}\n"


def read_text(heading: str, text: str) -> dict[str, Any]:
    """What such a text says. Its signature is checked before. Raises NoteBroken for any other form of the same."""
    first, _, rest = text.partition("\n")
    try:
        said = json.loads(rest, object_pairs_hook=no_duplicates)
        is_canonical = rest == f"{_canonical_json(said)}\n"
    except (ValueError, RecursionError):
        said, is_canonical = None, False
    if first != heading or not isinstance(said, dict) or not is_canonical:
        raise NoteBroken(f"A signed text is not of the form {heading}.")
    return said


def salted_hash(salt: bytes, text: str) -> str:
    """SHA-256 of salt and text, in hex: says nothing of the text to whoever lacks the salt."""
    return hashlib.sha256(salt + text.encode("utf-8", "surrogatepass")).hexdigest()


def _canonical_json(said: Mapping[str, Any]) -> str:
    return json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
