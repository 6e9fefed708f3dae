"""What the Knife accepts as an argument, and nothing else."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest

from app.errors import Invalid
from app.refinement.arguments import (
    MAX_ARGUMENTS,
    check_argument_names,
    memory_id,
    memory_ids,
    parse_arguments,
    parse_day,
    query_text,
)

NO_IDS: list[Any] = [
    *(None, True, False, 1.0, 1.5, float("nan"), float("inf"), -1, 10**18, 10**4000, b"1", {}, [], [1], {"id": 1}),
    *("", " ", "1_0", "١٢", "１２", "²", " 1", "1 ", "1\n", "\u20031", "+1", "-1", "1.0", "1e3", "0x1", "one", "#1"),
    *("1,2", "None", "true", "9" * 19, "9" * 5000, "1\x00", "\ud800", "1;DROP TABLE memories"),
]


@pytest.mark.parametrize("value", NO_IDS, ids=lambda value: repr(value)[:24])
def test_an_id_is_an_integer_or_a_decimal_string_and_nothing_else(value: Any) -> None:
    with pytest.raises(Invalid, match="one integer, or one decimal string"):
        memory_id(value)


def test_both_forms_of_an_id_mean_the_same() -> None:
    assert memory_id(42) == memory_id("42") == 42
    assert memory_id("042") == 42
    assert memory_id(10**18 - 1) == memory_id("9" * 18)


NO_LISTS: list[Any] = [
    *(None, 1, 1.0, True, b"1,2", {}, {"1": 2}, {1, 2}, [], [1], [1, 1], [1, True], [1, 2.0], ["1", "2"], [1, "2"]),
    *([[1], [2]], [1, None], [1, -2], "", ",", "1", "1,", ",1", "1,,2", "1,1", "1,01", "1;2", "1 2", "1,2_0", "١,٢"),
    *("1,\u20032", "1,\n2", "[1, 2]", "1,-2", "1,2.0", "1,two", "1," + "9" * 5000, list(range(1001))),
    ",".join(map(str, range(1001))),
]


@pytest.mark.parametrize("value", NO_LISTS, ids=lambda value: repr(value)[:24])
def test_ids_are_a_list_of_integers_or_one_comma_separated_string_and_nothing_else(value: Any) -> None:
    with pytest.raises(Invalid, match=r"ids|id must|two different"):
        memory_ids(value)


def test_both_forms_of_ids_mean_the_same_and_each_counts_once() -> None:
    assert memory_ids([3, 1, 3]) == memory_ids("3,1,3") == memory_ids("3, 1 , 3") == [3, 1]


NO_ARGUMENTS = [
    *("", "   ", "\n", "{}", "[]", "null", "1", '"id"', "true", "NaN", '{"id": NaN}', '{"id": Infinity}', '{"id": 1'),
    *("{", '{"id": 1} {"id": 2}', '{"id": 1, "id": 2}', '{"id": {"a": 1, "a": 2}}', "{'id': 1}", '{"id": 1,}', "id=1"),
    *("\ufeff{}", "[" * 100_000, '{"a":' * 30_000, '{"id": ' + "9" * 5000 + "}", "\x00"),
    '{"query": "' + "x" * MAX_ARGUMENTS + '"}',
]


@pytest.mark.parametrize("raw", NO_ARGUMENTS, ids=lambda raw: repr(raw[:24]))
def test_malformed_or_empty_arguments_are_refused_in_words(raw: str) -> None:
    with pytest.raises(Invalid) as refusal:
        parse_arguments(raw)
    assert refusal.value.sentence.endswith(".")
    assert len(refusal.value.sentence) < 120


@pytest.mark.parametrize("raw", [None, b"{}", {"id": 1}, 7])
def test_arguments_that_are_no_text_are_refused(raw: Any) -> None:
    with pytest.raises(Invalid):
        parse_arguments(raw)


def test_what_is_well_formed_is_read_as_it_stands() -> None:
    assert parse_arguments('{"id": 3, "content": "é\\u2028"}') == {"id": 3, "content": "é\u2028"}
    assert parse_arguments(json.dumps({"query": "😀"})) == {"query": "😀"}


def test_a_call_names_what_is_missing_and_what_is_unknown() -> None:
    with pytest.raises(Invalid, match=r"Missing: id, content\. This call takes id, content"):
        check_argument_names({"note": "x"}, ("id", "content"))
    with pytest.raises(Invalid, match=r"Unknown: 'force'\. This call takes id"):
        check_argument_names({"id": 1, "force": True}, ("id",))
    with pytest.raises(Invalid, match="Missing: id"):
        check_argument_names({"id": None}, ("id",))
    with pytest.raises(Invalid) as refusal:
        check_argument_names({"id": 1, "\ud800" * 500: 1}, ("id",))
    refusal.value.sentence.encode()


def test_a_day_is_an_iso_date_or_time() -> None:
    assert parse_day("2026-03-23", name="since") == date(2026, 3, 23)
    assert parse_day("2026-03-23T23:30:00Z", name="since") == date(2026, 3, 23)
    assert parse_day("2026-03-23T23:30:00-02:00", name="since") == date(2026, 3, 24)
    assert parse_day("2026-03-23 10:00", name="since") == date(2026, 3, 23)
    assert parse_day(None, name="since") is None
    assert parse_day("", name="since") is None


NO_DAYS: list[Any] = [
    *("yesterday", "2026-13-01", "2026-02-30", "2026-03-23garbage", "2026-03-23; DROP", "23.03.2026", "0000-00-00"),
    *("٢٠٢٦-٠٣-٢٣", 0, False, 20260323, 1.5, [], {}, "9" * 5000, "2026-03-23\x00", "\ud800", b"2026-03-23"),
    "9999-12-31T23:59:59-12:00",
]


@pytest.mark.parametrize("value", NO_DAYS, ids=lambda value: repr(value)[:24])
def test_any_other_day_is_refused_with_the_form_that_is_right(value: Any) -> None:
    with pytest.raises(Invalid, match="since"):
        parse_day(value, name="since")


def test_a_query_has_1_to_1000_characters() -> None:
    assert query_text("  tea ") == "tea"
    assert query_text("x" * 1000) == "x" * 1000
    for bad in ("", "   ", "x" * 1001, None, 5, ["tea"], "te\x00a", "\ud83d"):
        with pytest.raises(Invalid):
            query_text(bad)
