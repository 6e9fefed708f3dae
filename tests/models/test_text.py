"""What text may enter: rules that both databases, every prompt and every screen can live with."""

from __future__ import annotations

from typing import Any

import pytest

from app.errors import Invalid
from app.values.text import MAX_CONTENT, clean_content, clean_name, clean_prompt, clean_tags, clean_text


def test_content_is_trimmed_and_has_1_to_10000_characters() -> None:
    assert clean_content("  tea \n") == "tea"
    assert clean_content(" " + "x" * MAX_CONTENT + " ") == "x" * MAX_CONTENT
    assert clean_content("😀" * MAX_CONTENT) == "😀" * MAX_CONTENT
    with pytest.raises(Invalid, match=r"10,001 characters; at most 10,000"):
        clean_content("x" * (MAX_CONTENT + 1))


@pytest.mark.parametrize(
    "blank",
    [
        *("", " ", "\n\t", "\u3000\u00a0\u2028", "\u200b", "\ufeff", "\u200b \u202e\u2060", "\x01\x02", "\U000e0041"),
        *(
            "\u3164",
            "\u2800 \u2800",
            "\ufe0f",
            "\u115f\u1160",
            "\uffa0",
            "\u180e\u180b\u180f",
            "\u034f",
            "\u17b4\u17b5",
        ),
        *(
            "\ufe00\ufe0e",
            "\U000e0100\U000e01ef",
            "\U000e0fff",
            "\u2065",
            "\ufff0",
            "\ufffc",
            "\U0001d159",
            "\u3164" * 10_000,
        ),
    ],
)
def test_content_of_which_nothing_can_be_seen_is_blank(blank: str) -> None:
    with pytest.raises(Invalid, match="blank"):
        clean_content(blank)


@pytest.mark.parametrize("value", [None, 1, True, b"tea", ["tea"], {"text": "tea"}, 1.5])
def test_what_is_no_text_is_refused(value: Any) -> None:
    with pytest.raises(Invalid, match="must be text"):
        clean_text(value, what="content")


@pytest.mark.parametrize(("text", "why"), [("te\x00a", "NUL"), ("te\ud83da", "surrogate"), ("\udc00", "surrogate")])
def test_nul_and_lone_surrogates_are_refused_everywhere(text: str, why: str) -> None:
    for clean in (
        clean_content,
        clean_name,
        lambda value: clean_prompt(value, what="prompt"),
        lambda v: clean_tags([v]),
    ):
        with pytest.raises(Invalid, match=why):
            clean(text)


def test_odd_but_harmless_text_stays_as_it_is() -> None:
    for text in ("a\u202eb", "e\u0301", "👩‍👩‍👧", "a\x1bb", "a\u2028b", "\u0000".replace("\x00", "a"), "a\r\nb"):
        assert clean_content(text) == text


def test_a_refusal_never_quotes_content() -> None:
    for text in ("secret\x00", "secret\ud800", "secret" * 5000):
        with pytest.raises(Invalid) as refusal:
            clean_content(text)
        assert "secret" not in str(refusal.value)


def test_names_are_one_visible_line() -> None:
    assert clean_name("  Ezra   the\nSecond ") == "Ezra the Second"
    for bad in ("", " ", "x" * 81, "a\u202eb", "a\x1bb", "\u200b", None, 3):
        with pytest.raises(Invalid):
            clean_name(bad)


@pytest.mark.parametrize(
    "unseen",
    [
        *("\u3164", "\u115f", "\uffa0", "\u2800", "\u034f", "\u180b", "\ufe00", "\ufe0f", "\u17b4", "\U000e0101"),
        *("\u00ad", "\u200d", "\u2066", "\u061c", "\ue000", "\U000f0000", "\U000e0041", "\ufff9", "\U0001d159"),
    ],
)
def test_no_two_names_or_tags_differ_only_by_what_nobody_sees(unseen: str) -> None:
    for name in (unseen, f"ez{unseen}ra", f"ezra{unseen}", f"{unseen}ezra", unseen * 3):
        with pytest.raises(Invalid, match="invisible"):
            clean_name(name)
        with pytest.raises(Invalid, match="invisible"):
            clean_tags([name])


@pytest.mark.parametrize(
    "name", ["Ann ❤\ufe0f", "Ünd", "李", "عزرا", "עזרא", "e\u0301zra", "a-b_c.d", "🦉", "<b>x</b>"]
)
def test_names_that_can_be_seen_stay_as_they_are(name: str) -> None:
    assert clean_name(name) == name


def test_prompts_may_be_none_but_not_longer_than_10000_characters() -> None:
    assert clean_prompt(None, what="prompt") is None
    assert clean_prompt("  ", what="prompt") is None
    assert clean_prompt("x" * 10_000, what="prompt") == "x" * 10_000
    with pytest.raises(Invalid, match="10,001"):
        clean_prompt("x" * 10_001, what="prompt")


def test_tags_are_lower_case_sorted_and_each_once() -> None:
    assert clean_tags(["Voice", "ann", "voice "]) == ["ann", "voice"]
    assert clean_tags(None) == clean_tags([]) == []
    for bad in ("voice", 5, [1], [None], ["x" * 41], [str(n) for n in range(21)], [""]):
        with pytest.raises(Invalid):
            clean_tags(bad)


@pytest.mark.parametrize(
    "text",
    [
        "❤\ufe0f",
        "\ufe0fa",
        "⠓⠊⠀⠞",
        "ㅤㄱ",
        "가\u115f",
        "1\ufe0f\u20e3",
        "🏴\U000e0067\U000e007f",
        "\ue000",
        "e\u034f",
        "´",
    ],
)
def test_what_shows_anything_is_kept_with_all_that_does_not(text: str) -> None:
    assert clean_content(text) == text


@pytest.mark.parametrize("unseen", ["\u3164", "\u2800", "\ufe0f", " \u115f\u200b\n"])
def test_a_prompt_of_which_nothing_can_be_seen_is_none(unseen: str) -> None:
    assert clean_prompt(unseen, what="prompt") is None
