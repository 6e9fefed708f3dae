"""What someone is told to do, by a bare verb at the start of a clause: Run it. It says what "must" says."""

from __future__ import annotations

from app.meaning.reading import Reading


def has_imperative(reading: Reading, key: str) -> bool:
    """`key`: of the verb."""
    if not key or key not in reading.keys or reading.language is None:
        return False
    bare = {key + ending for ending in reading.language.bare_endings}
    return any(low in bare and _starts_clause(reading, at) for at, low in enumerate(reading.lows))


def _starts_clause(reading: Reading, at: int) -> bool:
    if at == 0 or reading.words[at - 1].clause_end:
        return True
    return reading.language is not None and reading.lows[at - 1] in reading.language.before_imperatives
