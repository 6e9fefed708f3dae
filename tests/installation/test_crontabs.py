"""Crontabs: what is none is refused with a sentence, the rest is told in words that mean what runs."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from app.config import load_settings
from app.crontabs import MAX_CRONTAB, check_crontab, crontab_words, next_runs
from app.errors import Misconfigured
from tests.support.clock import MONDAY

WORDS = {
    "0 4 * * 1": "Every Monday at 04:00 UTC",
    "30 22 * * *": "Every day at 22:30 UTC",
    "0 4,16 * * MON,THU": "Every Monday and Thursday at 04:00 and 16:00 UTC",
    "0 4 * * 1-5": "Monday through Friday at 04:00 UTC",
    "0 4 1 * *": "At 04:00 on the first day of every month, UTC",
    "0 4 * * 2#2": "At 04:00 on the second Tuesday of the month, UTC",
    "*/20 * * * *": "Every 20th minute of every hour, UTC",
}

NO_CRONTABS = (
    *("", "soon", "0 4 * *", "0 0 4 * * 1", "60 4 * * 1", "0 4 31 2 *"),
    *("9" * 5000 + " 4 * * 1", "² 4 * * 1"),
)


@pytest.mark.parametrize("crontab", WORDS)
def test_it_is_told_in_words(crontab: str) -> None:
    check_crontab(crontab)
    assert crontab_words(crontab) == WORDS[crontab]


def test_the_next_runs_begin_with_the_present_minute() -> None:
    week = timedelta(days=7)
    assert next_runs("0 4 * * 1", MONDAY, 3) == [MONDAY, MONDAY + week, MONDAY + 2 * week]
    assert next_runs("0 4 * * 1", MONDAY + timedelta(seconds=1), 1) == [MONDAY + week]


@pytest.mark.parametrize(
    ("crontab", "sentence"),
    [*((wrong, "must be a crontab of five fields") for wrong in NO_CRONTABS), ("0 0 */15 2 MON#2", "never runs")],
)
def test_nonsense_and_what_never_runs_are_refused_by_field_and_setting(crontab: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        check_crontab(crontab)
    with pytest.raises(Misconfigured, match=f"WHETSTONE_SCHEDULE: {sentence}"):
        load_settings(schedule=crontab)


_PART = some.text("0123456789*/,-#LW JANMON", min_size=1, max_size=8)


@settings(max_examples=300, deadline=None)
@given(some.one_of(some.text(max_size=MAX_CRONTAB + 5), some.lists(_PART, min_size=5, max_size=5).map(" ".join)))
def test_whatever_is_typed_it_is_refused_or_has_words(typed: str) -> None:
    try:
        check_crontab(typed)
    except ValueError as error:
        assert str(error).startswith(("must be", "never runs"))
    else:
        assert crontab_words(typed).endswith("UTC")
        assert len(next_runs(typed, MONDAY, 1)) == 1
