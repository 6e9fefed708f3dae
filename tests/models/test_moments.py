"""Moments are written in one step, in the words in which SQLAlchemy writes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlalchemy import DateTime
from sqlalchemy.dialects import sqlite

from app.models.base import UtcDateTime

DIALECT = sqlite.dialect()  # type: ignore[no-untyped-call]
MOMENTS = [
    datetime(2026, 11, 25, 9, 30, tzinfo=UTC),
    datetime(2026, 11, 25, 9, 30, 7, 5, tzinfo=UTC),
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(2026, 3, 1, 0, 30, tzinfo=timezone(timedelta(hours=5, minutes=45))),
    datetime(2026, 3, 1, 0, 30, 0, 120_000, tzinfo=timezone(timedelta(hours=-9), "there")),
]


@pytest.mark.parametrize("moment", MOMENTS, ids=str)
def test_it_is_written_as_sqlalchemy_writes_it_and_read_again(moment: datetime) -> None:
    write, read = (UtcDateTime().bind_processor(DIALECT), UtcDateTime().result_processor(DIALECT, None))
    theirs = DateTime().dialect_impl(DIALECT).bind_processor(DIALECT)
    assert write and read and theirs

    assert write(moment) == theirs(moment.astimezone(UTC).replace(tzinfo=None))
    assert read(write(moment)) == moment


def test_nothing_is_written_as_nothing_and_a_naive_moment_is_refused() -> None:
    write = UtcDateTime().bind_processor(DIALECT)
    assert write

    assert write(None) is None
    with pytest.raises(ValueError, match="without a time zone"):
        write(datetime(2026, 11, 25, 9, 30))  # noqa: DTZ001
