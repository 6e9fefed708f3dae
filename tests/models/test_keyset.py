"""Pages by keyset: every row once, also where moments are shared; and cursors that are none of ours."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from flask import Flask
from sqlalchemy import select

from app.errors import Invalid
from app.extensions import db
from app.models import Agent, Memory
from app.models.keyset import Keyset, Position, TimeCursor, cut_page
from app.models.memory import OLDEST_MEMORIES
from tests.support.factories import make_agent, remember

NEWEST_MEMORIES = Keyset(OLDEST_MEMORIES.columns, newest_first=True)


@pytest.fixture
def agent(app: Flask) -> Agent:
    """With seven memories, of which always two or three share their moment."""
    made = make_agent("ezra")
    moment = datetime(2026, 11, 2, tzinfo=UTC)
    for number in range(7):
        remember(made, f"Number {number}.", at=moment + timedelta(days=number // 3))
    return made


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8])
@pytest.mark.parametrize("keyset", [OLDEST_MEMORIES, NEWEST_MEMORIES], ids=["oldest", "newest"])
def test_pages_hold_every_row_once_in_order(agent: Agent, keyset: Keyset, size: int) -> None:
    found: list[int] = []
    position: Position | None = None
    while True:
        rows, last = cut_page(db.session.scalars(keyset.page(select(Memory), size, position)), size)
        assert rows
        found += [memory.id for memory in rows]
        if last is None:
            break
        assert len(rows) == size
        position = (last.origin_at, last.id)

    ids = list(db.session.scalars(select(Memory.id).order_by(Memory.id)))
    assert found == (ids[::-1] if keyset.newest_first else ids)


def test_a_row_is_found_among_those_that_may_be_named_only(agent: Agent) -> None:
    number = db.session.scalars(select(Memory.id).order_by(Memory.id)).first()
    mine, others = Memory.agent_id == agent.id, Memory.agent_id != agent.id

    assert OLDEST_MEMORIES.find(number, mine) == (datetime(2026, 11, 2, tzinfo=UTC), number)
    assert OLDEST_MEMORIES.find(number, others) is None
    assert OLDEST_MEMORIES.find(None, mine) is None
    assert OLDEST_MEMORIES.require("after", None, mine) is None
    with pytest.raises(Invalid, match="The cursor `after` is not one of yours; leave it out to begin at the oldest"):
        OLDEST_MEMORIES.require("after", number, others)


def test_what_no_row_is_named_by_is_no_cursor(agent: Agent) -> None:
    by_name = Keyset((Agent.name,), newest_first=True)

    assert by_name.find("ezra") is not None
    for text in ("", "nobody", "ez\x00ra", "\ud800"):
        assert by_name.find(text) is None
        with pytest.raises(Invalid, match="begin at the newest"):
            by_name.require("before", text)


def test_a_cursor_reads_back_as_it_was_written() -> None:
    cursor = TimeCursor(datetime(2026, 11, 2, 4, 0, 0, 120, tzinfo=UTC), 7)

    assert str(cursor) == "2026-11-02T04:00:00.000120Z~7"
    assert TimeCursor.parse(str(cursor)) == cursor
    assert TimeCursor.parse("2026-11-02~7") is None
