"""How long something took, in words."""

from __future__ import annotations


def duration_words(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 min 05 s`, `2 h 07 min`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def running_words(seconds: float) -> str:
    """Of what still goes on, in whole seconds: `23 s`, `3 min 05 s`. static/app.js counts on in the same words."""
    whole = max(int(seconds), 0)
    return f"{whole} s" if whole < 60 else duration_words(whole)
