"""Numbers with their nouns."""

from __future__ import annotations

import pytest

from app.values.plural import count_nouns, count_times, noun_for


@pytest.mark.parametrize(
    ("count", "noun", "words"),
    [
        (0, "agent", "0 agents"),
        (1, "memory", "1 memory"),
        (2, "memory", "2 memories"),
        (2, "sealed key", "2 sealed keys"),
        (1_200, "audit entry", "1,200 audit entries"),
    ],
)
def test_a_number_stands_with_its_noun_in_the_right_form(count: int, noun: str, words: str) -> None:
    assert count_nouns(count, noun) == words


def test_a_noun_of_several_words_brings_its_own_plural() -> None:
    words = ("word that can't be a tag", "words that can't be tags")
    assert [count_nouns(count, *words) for count in (1, 2)] == [
        "1 word that can't be a tag",
        "2 words that can't be tags",
    ]


def test_a_noun_can_stand_apart_from_its_number() -> None:
    assert [noun_for(count, "entry") for count in (0, 1, 2)] == ["entries", "entry", "entries"]


def test_once_is_no_number() -> None:
    assert [count_times(count) for count in (1, 2, 1_000)] == ["once", "2 times", "1,000 times"]
