"""How many specifics were kept, in words: of one change, and of a whole refinement."""

from __future__ import annotations

from app.values.plural import count_nouns


def kept_specifics(checked: int, confirmed: int) -> str:
    """`12 of 12 specifics kept`, and what the agent gave up; empty where none was looked for."""
    if not checked:
        return ""
    line = f"{checked - confirmed:,} of {checked:,} specifics kept"
    return f"{line}, {count_nouns(confirmed, 'loss', 'losses')} confirmed by the agent" if confirmed else line
