"""Importing: every line is checked before any is written, and what is written can be undone as one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import Any

import pytest
from flask import Flask

from app.errors import Invalid
from app.exchange.draft import MOST_DRAFTS, ImportRefused
from app.exchange.file_text import MAX_LINE, parse_lines, read_lines
from app.extensions import db
from app.history.verify import verify
from app.keys.agent_keys import open_keys
from app.models import COMMAND_LINE, Action, Agent, AuditLog, Event, Memory, MemoryState, MemoryType
from tests.support.clock import MONDAY, FakeClock
from tests.support.factories import import_lines, make_agent, remember

CANARY = "the canary sang at dawn"


@pytest.fixture
def agent(app: Flask) -> Agent:
    return make_agent()


def line(**fields: Any) -> str:
    return json.dumps({"content": "Ann likes tea."} | fields)


def bring_in(agent: Agent, lines: Iterable[str | bytes]) -> Any:
    return import_lines(agent.id, lines, keys=open_keys(agent), by=COMMAND_LINE)


def reread(agent: Agent) -> Agent:
    db.session.rollback()
    return db.session.get_one(Agent, agent.id, populate_existing=True)


def memories(agent: Agent) -> list[Memory]:
    db.session.rollback()
    return list(db.session.scalars(Memory.active(agent.id)))


def refusal(*lines: str | bytes) -> str:
    """What is said of a file that holds nothing but this."""
    with pytest.raises(ImportRefused) as refused:
        parse_lines(lines)
    return refused.value.sentence


def test_it_keeps_content_type_date_flag_and_tags(agent: Agent) -> None:
    bring_in(
        agent,
        [
            line(content="  Ann likes tea. ", created_at="2026-03-23T17:23:48+02:00", tags=["Tea", "ann", "tea"]),
            line(content="Nobody may forget this.", constitutional=True, created_at="2026-03-24"),
            line(content="It rained.", type="journal"),
        ],
    )

    tea, vow, rain = memories(agent)
    assert open_keys(agent).reveal_memory(tea.id, tea.content) == "Ann likes tea."
    assert tea.origin_at == datetime(2026, 3, 23, 15, 23, 48, tzinfo=UTC)
    assert tea.tags == ["ann", "tea"]
    assert (tea.type, tea.constitutional, vow.constitutional) == (MemoryType.CORE, False, True)
    assert vow.origin_at == datetime(2026, 3, 24, tzinfo=UTC)
    assert (rain.type, rain.origin_at) == (MemoryType.JOURNAL, MONDAY)


def test_a_tag_of_the_immutable_ones_makes_the_memory_immutable(agent: Agent) -> None:
    bring_in(agent, [line(tags=["Voice"]), line(tags=["voices"])])

    assert [memory.immutable for memory in memories(agent)] == [True, False]


def test_totals_are_right_and_the_log_explains_every_memory(agent: Agent) -> None:
    remember(agent, "It was there before.")

    done = bring_in(agent, [line(), line(content="Eight ch"), line(type="journal"), line(constitutional=True)])

    after = reread(agent)
    assert (done.imported, done.core, done.journal, done.constitutional, done.core_tokens) == (4, 3, 1, 1, 4 + 2 + 4)
    assert (after.core_count, after.journal_count, after.core_token_usage) == (4, 1, 5 + 10)
    assert verify(after).ok


def test_one_entry_records_all_of_it_with_counts_only(agent: Agent) -> None:
    bring_in(agent, [line(content=f"{CANARY} {number}") for number in range(30)])

    entries = list(db.session.scalars(db.select(AuditLog).where(AuditLog.action == Action.IMPORT)))
    assert len(entries) == 1
    assert all(type(value) is int for value in entries[0].data.values())
    assert entries[0].data["imported"] == 30
    states = db.session.scalars(db.select(MemoryState).where(MemoryState.entry_id == entries[0].id)).all()
    assert len(states) == 30
    assert {state.previous_entry_id for state in states} == {None}


def test_it_is_announced_without_content(agent: Agent) -> None:
    bring_in(agent, [line(content=CANARY)])

    event = db.session.scalars(db.select(Event).where(Event.kind == "agent.imported")).one()
    assert event.agent_id == agent.id
    assert CANARY not in json.dumps(event.data)


def test_a_broken_line_in_the_middle_is_named_and_nothing_is_written(agent: Agent) -> None:
    lines = [line(content=f"{CANARY} {number}") for number in range(1000)]
    lines[500] = '{"content": "' + CANARY

    with pytest.raises(ImportRefused) as refused:
        bring_in(agent, lines)

    assert [problem.number for problem in refused.value.problems] == [501]
    assert "line 501" in refused.value.sentence
    assert "1 line of 1,000" in refused.value.sentence
    assert CANARY not in refused.value.sentence
    assert memories(agent) == []
    assert reread(agent).core_token_usage == 0


def test_it_names_the_first_ten_problems_and_counts_the_rest() -> None:
    with pytest.raises(ImportRefused) as refused:
        parse_lines([line(content="")] * 25)

    assert [problem.number for problem in refused.value.problems] == list(range(1, 11))
    assert refused.value.total == 25
    assert "and 15 more" in refused.value.sentence


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        (line(content="   "), "blank"),
        (line(content="x" * 10_001), "10,001 characters"),
        (line(content="a\x00b"), "NUL"),
        ('{"content": "half \\ud800 of a pair"}', "surrogate"),
        (line(content=None), "must be text"),
        (line(content=7), "must be text"),
        ("{}", "content is missing"),
        ('{"text": "Ann"}', "'text'"),
        (line(created="2026-01-01"), "'created'"),
        (line(type="episodic"), '"core" or "journal"'),
        (line(type=["core"]), '"core" or "journal"'),
        (line(constitutional="yes"), "true or false"),
        (line(constitutional=1), "true or false"),
        (line(constitutional=True, type="journal"), "Only a core memory"),
        (line(tags="tea"), "list of words"),
        (line(tags={"tea": 1}), "list of words"),
        (line(tags=[7]), "tag must be text"),
        (line(tags=["x" * 41]), "40 characters"),
        (line(tags=[str(number) for number in range(21)]), "20 tags"),
        (line(created_at="yesterday"), "ISO 8601"),
        (line(created_at=1_700_000_000), "ISO 8601"),
        (line(created_at=""), "ISO 8601"),
        (line(created_at="2026-13-01"), "ISO 8601"),
        (line(created_at="0001-01-01T00:00:00+14:00"), "ISO 8601"),
        (line(created_at="9999-12-31T23:59:59-14:00"), "ISO 8601"),
        (line(created_at="0999-12-31"), "before the year 1000"),
        ('{"content": "a", "content": "b"}', "names a key twice"),
        ('{"content": NaN}', "not well-formed JSON"),
        ("[" * 100_000, "not well-formed JSON"),
        ('["Ann"]', "must be a JSON object"),
        ("Ann likes tea.", "not well-formed JSON (from column 1"),
        (b'{"content": "\xff"}', "not UTF-8"),
    ],
)
def test_a_wrong_line_is_refused_in_words(app: Flask, wrong: str | bytes, word: str) -> None:
    assert word in refusal(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        f'{{"{CANARY}": 1}}',
        line(type=CANARY),
        line(created_at=CANARY),
        line(tags=CANARY),
        line(constitutional=CANARY),
        f"{CANARY}",
        f'{{"content": "{CANARY}',
        line(content=CANARY + "\x00"),
        line(content=CANARY * 1000),
        line(content=CANARY, tags=["x" * 41 + CANARY]),
    ],
)
def test_a_refusal_never_quotes_what_stands_in_the_line(app: Flask, wrong: str) -> None:
    assert CANARY not in refusal(wrong)


def test_null_stands_for_a_key_that_is_left_out(agent: Agent) -> None:
    bring_in(agent, [line(type=None, created_at=None, constitutional=None, tags=None)])

    assert [(memory.type, memory.origin_at) for memory in memories(agent)] == [(MemoryType.CORE, MONDAY)]


def test_blank_lines_and_a_byte_order_mark_are_skipped_but_counted(agent: Agent) -> None:
    given = ["\ufeff" + line(), "", "  \r\n", line(content="")]

    assert "line 4" in refusal(*given)
    assert len(parse_lines(given[:3])) == 1


def test_content_may_be_exactly_as_long_as_allowed(app: Flask) -> None:
    assert len(parse_lines([line(content=" " + "ü" * 10_000)])[0].content) == 10_000


def test_a_date_of_tomorrow_passes_and_one_of_the_day_after_does_not(app: Flask, clock: FakeClock) -> None:
    soon = clock.at + timedelta(hours=24)

    assert parse_lines([line(created_at=soon.isoformat())])[0].origin_at == soon
    assert "future" in refusal(line(created_at=(soon + timedelta(seconds=1)).isoformat()))


def test_a_file_without_a_memory_is_refused(app: Flask) -> None:
    for empty in ([], ["", "\n"]):
        with pytest.raises(Invalid, match="no memories"):
            parse_lines(empty)


def test_more_lines_than_allowed_are_refused_without_reading_on(app: Flask) -> None:
    def endless() -> Iterable[str]:
        for number in range(MOST_DRAFTS + 10):
            assert number <= MOST_DRAFTS, "it read on"
            yield ""

    with pytest.raises(ImportRefused, match="at most 20,000 lines"):
        parse_lines(endless())


def test_a_line_without_end_is_refused_without_reading_on(app: Flask) -> None:
    file = BytesIO(b"x" * (MAX_LINE * 5))

    with pytest.raises(ImportRefused, match="longer than 200,000 bytes"):
        parse_lines(read_lines(file))

    assert file.tell() == MAX_LINE + 1


def test_the_longest_memory_in_its_longest_json_form_passes(app: Flask) -> None:
    written = json.dumps({"content": "\U0001f9ea" * 10_000}).encode()

    assert len(parse_lines(read_lines(BytesIO(written)))[0].content) == 10_000


def test_a_draft_does_not_show_its_content(app: Flask) -> None:
    assert CANARY not in repr(parse_lines([line(content=CANARY)]))
