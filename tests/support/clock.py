"""A clock that only a test turns."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

MONDAY = datetime(2026, 11, 16, 4, 0, tzinfo=UTC)


class FakeClock:
    def __init__(self, at: datetime = MONDAY) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at

    def advance(self, **delta: float) -> datetime:
        self.at += timedelta(**delta)
        return self.at
