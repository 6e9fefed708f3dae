"""mem0 exports and plain text: a memory each, with the dates and categories that they have."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from flask import Flask

from app.errors import Invalid
from app.exchange import mem0
from app.exchange.file_text import parse_text
from app.models import MemoryType
from tests.exchange.files import CANARY, remembered, written
from tests.exchange.files import mem0 as export


def mem0_refusal(document: object) -> str:
    with pytest.raises(Invalid) as refused:
        mem0.parse(written(document))
    return refused.value.sentence


def test_a_memory_keeps_its_text_date_and_category(bare: Flask) -> None:
    past = remembered(" Allergic to peanuts ", created_at="2026-05-04T09:12:33.120000-07:00")

    (found,) = mem0.parse(written(export(past | {"metadata": {"category": "Health"}}))).drafts

    assert (found.content, found.type, found.tags) == ("Allergic to peanuts", MemoryType.CORE, ("health",))
    assert found.origin_at == datetime(2026, 5, 4, 16, 12, 33, 120000, tzinfo=UTC)


@pytest.mark.parametrize(
    "where",
    [
        {"categories": ["food", "health"]},
        {"metadata": {"categories": ["food", "health"]}},
        {"categories": ["food"], "metadata": {"category": "health"}},
        {"category": "health", "metadata": {"category": "food", "categories": None}},
    ],
)
def test_categories_are_found_wherever_a_version_puts_them(bare: Flask, where: dict[str, Any]) -> None:
    (found,) = mem0.parse(written([remembered("Peanuts.", **where)])).drafts

    assert found.tags == ("food", "health")


def test_what_can_not_be_a_tag_is_left_out_and_counted(bare: Flask) -> None:
    words = ["x" * 41, 7, "", "tea", {"a": 1}]

    found = mem0.parse(written([remembered("Peanuts.", categories=words)]))

    assert [each.tags for each in found.drafts] == [("tea",)]
    assert found.left_out == {"tags": 4}


def test_more_categories_than_a_memory_has_room_for_are_counted(bare: Flask) -> None:
    found = mem0.parse(written([remembered("Peanuts.", categories=[f"c{number:02}" for number in range(23)])]))

    assert len(found.drafts[0].tags) == 20
    assert found.left_out == {"tags": 3}


def test_one_page_of_several_and_relations_are_told(bare: Flask) -> None:
    page = export(remembered("Ann."), relations=[{"source": "a"}], next="https://example.org/?page=2", count=70)

    found = mem0.parse(written(page))

    assert found.left_out == {"relations": 1}
    assert found.notes == ["Left out: 1 relation.", "This is one page of an export that has more."]
    assert mem0.parse(written(export(remembered("Ann."), next=None))).notes == []


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ([remembered("Ann."), remembered("  ")], "memory 2: The content is blank"),
        ([remembered(None)], "memory 1: The content must be text."),
        ([remembered("Ann."), {"id": "1", "text": CANARY}], "memory 2: It must be a JSON object that has a memory."),
        ([remembered("Ann."), CANARY], "memory 2: It must be a JSON object that has a memory."),
        ([remembered(CANARY + "\ud800")], "memory 1: The content holds half of a surrogate pair"),
        ([remembered(CANARY + "\x00")], "memory 1: The content holds a NUL"),
        ([remembered(CANARY + "x" * 10_000)], "at most 10,000 are allowed"),
        ([remembered("Ann.", created_at=CANARY)], "memory 1: The created_at must be an ISO 8601 time"),
        ([remembered("Ann.")] * 20_001, "at most 20,000 memories"),
        ([], "There are no memories in it"),
        (export(), "There are no memories in it"),
        ({"results": {CANARY: 1}}, "It is no mem0 export"),
        ({}, "It is no mem0 export"),
    ],
)
def test_what_can_not_be_used_is_refused_in_words_without_content(bare: Flask, wrong: object, word: str) -> None:
    said = mem0_refusal(wrong)

    assert word in said
    assert CANARY not in said


def test_it_stops_looking_behind_as_many_wrong_ones_as_an_import_may_have(bare: Flask) -> None:
    said = mem0_refusal([{"memory": ""}] * 50_000)

    assert "20,000 items of 20,000 can't be used" in said


def test_every_line_of_a_text_is_a_memory_and_blank_ones_are_skipped(bare: Flask) -> None:
    found = parse_text("\ufeffAnn likes tea.\r\n\n  \n - Bob: rum\u2028and more \nlast".encode())

    assert [each.content for each in found] == ["Ann likes tea.", "- Bob: rum\u2028and more", "last"]
    assert {(each.type, each.origin_at, each.tags) for each in found} == {(MemoryType.CORE, None, ())}


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        (b"Fine.\n\n" + CANARY.encode() + b"\x00", "line 3: The content holds a NUL"),
        (b"Fine.\n" + CANARY.encode() + b"\xff", "line 2: It is not UTF-8 text (byte 24)."),
        (b"Fine.\n" + CANARY.encode() * 500, "line 2: The content has 11,500 characters"),
        (b"\n \n", "There are no memories in it"),
        (b"Ann.\n" * 20_001, "line 20,001: One import takes at most 20,000 lines"),
    ],
)
def test_a_line_that_can_not_be_used_refuses_the_text(bare: Flask, wrong: bytes, word: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_text(wrong)

    assert word in refused.value.sentence
    assert CANARY not in refused.value.sentence
