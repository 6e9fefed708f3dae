"""Reading JSON strictly: a key that stands twice is refused, where Python's own reader would take the last."""

from __future__ import annotations

from typing import Any


def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For `object_pairs_hook`. Raises ValueError."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found
