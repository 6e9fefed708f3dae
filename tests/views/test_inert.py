"""Content on a page: it can't act, and nothing in it hides."""

from __future__ import annotations

import re
import sys
import unicodedata
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.views.inert import inert

SEEN_THOUGH_FORMATS = set("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u0890\u0891\u08e2\U000110bd\U000110cd")
"""Signs of Arabic and Kaithi that stand around a number: they are drawn."""


class Tags(HTMLParser):
    """Every tag with its attributes, and all text between them."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(f"{tag} {attrs}")

    def handle_data(self, data: str) -> None:
        self.text += data


def parse(markup: str) -> Tags:
    tags = Tags()
    tags.feed(markup)
    tags.close()
    return tags


@pytest.mark.parametrize(
    "hostile",
    [
        "<script>alert(1)</script>",
        '<img src=x onerror="alert(1)">',
        '<div hx-get="/agents" hx-trigger="load" hx-on:click="x()">',
        '<hx-partial hx-target="#toasts">mine</hx-partial>',
        '<a href="javascript:alert(1)">here</a>',
        '"><svg/onload=alert(1)>',
        "' autofocus onfocus='alert(1)",
        "</bdi></div></main><form action=/exceptions>",
        "<!-- <style>*{display:none}</style>",
        "{{ 7 * 7 }} {% include 'x' %}",
        "&lt;b&gt; &#60;b&#62;",
        "<meta http-equiv=refresh content=0;url=//example.org>",
        "<template shadowrootmode=open><slot></template>",
    ],
)
def test_markup_is_text(hostile: str) -> None:
    parsed = parse(inert(hostile))

    assert parsed.tags == set()
    assert parsed.text == hostile


@pytest.mark.parametrize(
    ("unseen", "name"),
    [
        ("\u202e", "RLO"),
        ("\u2066", "LRI"),
        ("\u200f", "RLM"),
        ("\u200d", "ZWJ"),
        ("\u200b", "ZWSP"),
        ("\ufeff", "BOM"),
        ("\u00ad", "SHY"),
        ("\x00", "NUL"),
        ("\x1b", "ESC"),
        ("\r", "CR"),
        ("\x85", "U+0085"),
        ("\u2028", "LSEP"),
        ("\u3164", "U+3164"),
        ("\u2800", "U+2800"),
        ("\U000e0041", "U+E0041"),
        ("\ufe0f", "VS16"),
        ("\ud800", "U+D800"),
        ("\ue000", "U+E000"),
    ],
)
def test_what_can_not_be_seen_is_shown_by_its_name(unseen: str, name: str) -> None:
    assert inert(f"tea{unseen}pot") == f'tea<span class="unseen">{name}</span>pot'


def test_every_control_format_and_private_character_is_shown() -> None:
    for number in range(sys.maxunicode + 1):
        character = chr(number)
        if character in "\n\t" or character in SEEN_THOUGH_FORMATS:
            continue
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp"):
            assert 'class="unseen"' in inert(character), f"U+{number:04X}"


@pytest.mark.parametrize(
    "plain", ["Ann likes tea.", "two\nlines\tand a tab", "❤️ and 👍", "日本語、中文", "שלום عليكم", "a b", "é e\u0301"]
)
def test_what_is_seen_stays_as_it_is(plain: str) -> None:
    assert inert(plain) == plain


def test_a_wish_for_colour_is_shown_where_it_colours_nothing() -> None:
    assert inert("❤\ufe0f\ufe0f") == '❤<span class="unseen">VS16 × 2</span>'
    assert inert("🏳\ufe0f\u200d🌈") == '🏳<span class="unseen">VS16</span><span class="unseen">ZWJ</span>🌈'


def test_a_row_of_unseen_characters_is_counted() -> None:
    assert inert("\u200b" * 10_000) == '<span class="unseen">ZWSP × 10,000</span>'
    smuggled = inert("".join(chr(0xE0100 + number % 240) for number in range(500)))
    assert smuggled.count("<span") == 9
    assert "and 492 more unseen characters" in smuggled


def test_a_changed_piece_shows_its_line_ends_and_odd_spaces() -> None:
    assert inert("a\u00a0b") == "a\u00a0b"
    assert inert("a\u00a0b\nc", changed=True) == 'a<span class="unseen">NBSP</span>b↵\nc'


def test_long_texts_and_long_words_come_through_whole() -> None:
    for text in ("word " * 2000, "x" * 10_000, "\U0001f600" * 10_000):
        assert inert(text) == text


@given(st.text(st.characters(exclude_characters="\ufe0f"), max_size=300))
def test_nothing_but_marks_is_added_and_nothing_visible_is_lost(text: str) -> None:
    markup = inert(text)
    markup.encode()

    assert parse(markup).tags <= {"span [('class', 'unseen')]"}
    without_marks = re.sub(r'<span class="unseen">[^<]*</span>', "", markup)
    assert parse(without_marks).text == "".join(each for each in text if 'class="unseen"' not in inert(each))
