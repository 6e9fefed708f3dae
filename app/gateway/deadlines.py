"""How long a peer may take for each part of a request and of its answer."""

from __future__ import annotations

from dataclasses import dataclass

BYTES_PER_SECOND = 16_000
"""What a body must bring on average, beyond the seconds that each has."""

TAKEN_BYTES = 16_000
"""What a peer must take of its answer within `Deadlines.reading`, where something waits for it."""


@dataclass(frozen=True)
class Deadlines:
    """In seconds. `lingering`: the rest of a request that was answered already is thrown away for so long."""

    head: float = 10.0
    body: float = 10.0
    lingering: float = 5.0
    reading: float = 30.0

    def of_body(self, size: int) -> float:
        return self.body + size / BYTES_PER_SECOND
