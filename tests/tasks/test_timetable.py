"""Beat's timetable: the operator's crontab to the minute, UTC, and every entry a task that exists."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta

import pytest

from tasks.celery import app
from tasks.timetable import Crontab
from tests.support.clock import MONDAY


def at(moment: datetime, expression: str = "0 4 * * 1") -> Crontab:
    return Crontab(expression, nowfun=lambda: moment)


def test_it_is_due_at_its_minute_and_then_waits_for_the_next() -> None:
    before = MONDAY - timedelta(seconds=1)
    assert at(before).is_due(MONDAY - timedelta(days=7)) == (False, 1)

    assert at(MONDAY).is_due(MONDAY - timedelta(days=7)) == (True, timedelta(days=7).total_seconds())
    late = MONDAY + timedelta(hours=3)
    assert at(late).is_due(MONDAY - timedelta(days=7)).is_due
    assert not at(late).is_due(MONDAY).is_due


@pytest.mark.parametrize(
    ("expression", "after", "due"),
    [
        ("0 4 * * MON-FRI", MONDAY, MONDAY + timedelta(days=1)),
        ("*/20 * * * *", MONDAY, MONDAY + timedelta(minutes=20)),
        ("0 0 13 * FRI", datetime(2026, 11, 12, tzinfo=UTC), datetime(2026, 11, 13, tzinfo=UTC)),
        ("0 0 1 * FRI", datetime(2026, 11, 12, tzinfo=UTC), datetime(2026, 11, 13, tzinfo=UTC)),
    ],
)
def test_it_reads_crontabs_as_cron_does(expression: str, after: datetime, due: datetime) -> None:
    assert at(after, expression).remaining_estimate(after) == due - after


def test_it_is_kept_in_beat_s_file_and_known_again() -> None:
    kept = pickle.loads(pickle.dumps(Crontab("0 4 * * 1")))

    assert kept == Crontab("0 4 * * 1")
    assert kept != Crontab("5 4 * * 1")


def test_every_entry_of_the_timetable_names_a_task() -> None:
    app.loader.import_default_modules()

    assert {entry["task"] for entry in app.conf.beat_schedule.values()} <= set(app.tasks)


def test_what_grows_without_end_is_dropped_every_hour() -> None:
    hourly = {entry["task"] for entry in app.conf.beat_schedule.values() if entry["schedule"] == timedelta(hours=1)}

    assert {f"tasks.upkeep.drop_old_{what}" for what in ("events", "answers", "calls")} <= hourly
