"""The dates that memories speak from: the same words on two days can be two events, so none of them is lost.

Moments are kept exactly. What an agent reads are days, each once.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Any

from app.errors import Invalid

MOST_DATES = 1_000
"""That one memory carries, its own among them. What would be more stays a memory of its own."""

MOST_CARRIED_TAGS = 200
"""That one memory gets from others; one that is saved or imported has fewer."""

SHOWN_DAYS = 20
"""In one entry of a ledger; `more_dates` counts the others."""

_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


class TooManyDates(Invalid):
    """One memory can't carry so many dates or tags."""

    code = "too_many_dates"


def fit_one_memory(dates: Iterable[datetime], tags: Iterable[str]) -> bool:
    """Whether one memory can carry all of these."""
    return len({*dates}) <= MOST_DATES and len({*tags}) <= MOST_CARRIED_TAGS


def other_days(origin_at: datetime, other_dates: Iterable[datetime]) -> list[date]:
    """The days of the other dates, each once, without the day that the memory speaks from; the earliest first."""
    return sorted({moment.date() for moment in other_dates} - {origin_at.date()})


def shown_days(origin_at: datetime, other_dates: Collection[datetime]) -> dict[str, Any]:
    """`date` and, where there are any, `other_dates` (the latest of them) as a ledger shows them."""
    shown: dict[str, Any] = {"date": origin_at.date().isoformat()}
    if not other_dates:  # as most memories, of which a ledger has thousands
        return shown
    days = other_days(origin_at, other_dates)
    if days:
        shown["other_dates"] = [day.isoformat() for day in days[-SHOWN_DAYS:]]
    if len(days) > SHOWN_DAYS:
        shown["more_dates"] = len(days) - SHOWN_DAYS
    return shown


def parse_day(typed: str) -> datetime:
    """The beginning of a day, as people type it. Raises Invalid."""
    try:
        return datetime.fromisoformat(typed if _DAY.fullmatch(typed) else "").replace(tzinfo=UTC)
    except ValueError:
        raise Invalid(f"{typed!r} is no day. Write it like 2026-11-30; days are those of UTC.") from None


def parse_last_day(typed: str) -> datetime | None:
    """The end of that day, which belongs to what is wanted; None for the last day that there is. Raises Invalid."""
    try:
        return parse_day(typed) + timedelta(days=1)
    except OverflowError:
        return None
