"""Whatever a text is made of, a check ends, soon, and finds nothing missing in a text that did not change."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.meaning import ChangeKind, extract, missing
from app.meaning.tokens import composed, plain

PIECES = [
    *("5 ", "1,1,", "1.1", "1-", "$", "%", "²", "½", "\U0001d7d8", "6 pm ", "January 3 ", "twenty hundred "),
    *("a_", "a.", "/a", "://", "a@a.", "-", "--", "`", "```", '"', "'", "a'", "''", "“", "«", "(", "[x](", ". "),
    *("Ab ", "Ab", "not ", "n't ", "may ", "have to ", "before ", "more less ", "\n", "\x00", "\u00a0"),
    *("😀", "\u200d", "\ufe0f", "🇫🇷", "我", "不", "لا ", "हि", "è", "e\u0301", "i\u0307", "İ", "ß"),
]
LONG = 10_000


def long_text(piece: str) -> str:
    return (piece * (LONG // len(piece) + 1))[:LONG]


@pytest.mark.parametrize("piece", PIECES)
def test_a_text_of_one_repeated_piece_takes_time_that_grows_with_its_length(piece: str) -> None:
    """Sixteen times the text may take forty times as long; quadratic would be 256 times. Tiny times don't count."""
    texts = [long_text(piece)[: LONG // 16], long_text(piece)]
    short, long = (min(seconds_of(text) for _ in range(2)) for text in texts)
    assert long < max(40 * short, 0.1), f"{short * 1000:.1f} ms, {long * 1000:.1f} ms"


def seconds_of(text: str) -> float:
    started = time.process_time()
    missing(text, text[::-1], kind=ChangeKind.CONSOLIDATE)
    return time.process_time() - started


PROSE = "Alice met Bob in Oslo on 3 May 2024 and they should not have paid more than 5 dollars. "


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(PIECES), min_size=2, max_size=12), st.integers(0, 1000))
def test_a_text_of_mixed_pieces_takes_a_few_times_as_long_as_prose(pieces: list[str], seed: int) -> None:
    chance = random.Random(seed)
    mixed = "".join(chance.choice(pieces) for _ in range(LONG))[:LONG]
    usual, hostile = (min(seconds_of(text) for _ in range(2)) for text in (long_text(PROSE), mixed))
    assert hostile < max(8 * usual, 0.1), f"{usual * 1000:.1f} ms, {hostile * 1000:.1f} ms"


texts = st.one_of(
    st.text(max_size=300),
    st.lists(st.sampled_from([*PIECES, " ", "Alice gave Bob 5 km. ", "don't "]), max_size=60).map("".join),
)


@settings(max_examples=70, deadline=None)
@given(texts, texts, st.sampled_from(ChangeKind))
def test_any_two_texts_can_be_compared(old: str, new: str, kind: ChangeKind) -> None:
    extract(old)
    for each in missing(old, new, kind=kind):
        assert each.words


@settings(max_examples=70, deadline=None)
@given(texts, st.sampled_from(ChangeKind))
def test_nothing_is_missing_in_a_text_that_did_not_change(text: str, kind: ChangeKind) -> None:
    assert missing(text, text, kind=kind) == []
    assert missing(text, f" {text}\n\n", kind=kind) == []


@settings(max_examples=70, deadline=None)
@given(texts)
def test_what_is_found_stands_in_the_text(text: str) -> None:
    written = composed(text)
    straight = plain(written)
    assert [each for each in extract(text).found if each.words not in written and each.words not in straight] == []
