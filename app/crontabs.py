"""Crontabs of five fields, UTC: checked, told in words, and when they run. Settings, beat and pages read them alike."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import islice

from cronsim import CronSim, CronSimError
from cronsim.explain import explain

MAX_CRONTAB = 120
"""Characters; the library reads much longer numbers than a crontab has."""

NOT_A_CRONTAB = "must be a crontab of five fields, e.g. '0 4 * * 1'"
NEVER_RUNS = "never runs: no such day comes within 50 years"

_SIMPLE = re.compile(r"At (?P<times>[\d:]+(?:(?:,| and|, and) [\d:]+)*) (?P<days>every day|on [A-Z][A-Za-z, ]*day)")


def check_crontab(expression: str) -> None:
    """Raises ValueError with what is wrong, to be read after the crontab's name: `must be …`, `never runs …`."""
    if len(expression) > MAX_CRONTAB or len(expression.split()) != 5:
        raise ValueError(NOT_A_CRONTAB)
    try:
        runs = CronSim(expression, datetime.now(UTC))
    except CronSimError as error:
        raise ValueError(NOT_A_CRONTAB) from error
    if next(runs, None) is None:
        raise ValueError(NEVER_RUNS)


def crontab_words(expression: str) -> str:
    """`Every Monday at 04:00 UTC`; of one that `check_crontab` let through."""
    said = explain(expression)
    simple = _SIMPLE.fullmatch(said)
    if simple is None:
        return f"{said}, UTC"
    days = simple["days"].removeprefix("on ")
    begins = days if "through" in days else f"Every {days.removeprefix('every ')}"
    return f"{begins} at {simple['times']} UTC"


def next_runs(expression: str, after: datetime, count: int) -> list[datetime]:
    """The first `count` runs at or after the minute of a moment; fewer where there are no more within 50 years."""
    start = after.astimezone(UTC).replace(second=0, microsecond=0)
    if after > start:
        start += timedelta(minutes=1)
    return list(islice(CronSim(expression, start - timedelta(seconds=1)), count))
