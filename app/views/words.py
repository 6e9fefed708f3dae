"""Times as pages say them, in the words of static/app.js, which keeps them fresh."""

from __future__ import annotations

from datetime import datetime

from app.extensions import now

_STEPS = ((60, 1, "s"), (3600, 60, "min"), (86_400, 3600, "h"), (float("inf"), 86_400, "d"))


def ago_words(at: datetime | None) -> str:
    """`3 min ago`."""
    if at is None:
        return ""
    seconds = round((now() - at).total_seconds())
    size = abs(seconds)
    if size < 5:
        return "just now"
    unit, word = next((unit, word) for limit, unit, word in _STEPS if size < limit)
    amount = f"{size // unit} {word}"
    return f"in {amount}" if seconds < 0 else f"{amount} ago"


def left_words(seconds: int) -> str:
    """`14 min left`."""
    return f"{seconds // 60} min left" if seconds >= 120 else f"{seconds} s left"
