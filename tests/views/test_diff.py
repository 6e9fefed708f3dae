"""What changed between two texts, word by word: nothing is lost, and what would take long is not compared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.views.shown.diff import ADDED, REMOVED, SAME, DiffPiece, compare_texts


def said(before: str, after: str) -> str:
    """`-gone-` and `+came+` between what stayed."""
    signs = {ADDED: "+", REMOVED: "-"}
    return "".join(f"{signs.get(p.kind, '')}{p.text}{signs.get(p.kind, '')}" for p in compare_texts(before, after))


def text_of(pieces: list[DiffPiece], without: str) -> str:
    return "".join(piece.text for piece in pieces if piece.kind != without)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("Ann likes tea.", "Ann likes green tea.", "Ann likes+ green+ tea."),
        ("Ann really likes tea.", "Ann likes tea.", "Ann- really- likes tea."),
        ("Ann likes tea", "Ann likes tea, too", "Ann likes tea+, too+"),
        ("a b c", "x y z", "-a b c-+x y z+"),
        ("Same.", "Same.", "Same."),
        ("", "New.", "+New.+"),
        ("one\ntwo", "one two", "one-\n-+ +two"),
        ("今日は雨", "今日は晴", "今日は-雨-+晴+"),
    ],
)
def test_words_that_stayed_came_and_went(before: str, after: str, expected: str) -> None:
    assert said(before, after) == expected


SOME_TEXT = st.text(st.sampled_from("ab .\n\té漢-"), max_size=40)


@given(SOME_TEXT, SOME_TEXT)
def test_both_texts_can_be_read_off_it(before: str, after: str) -> None:
    pieces = compare_texts(before, after)

    assert text_of(pieces, ADDED) == before
    assert text_of(pieces, REMOVED) == after
    assert all(piece.text for piece in pieces)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("b " + "a " * 4999, "a b " * 2500),
        (" ".join(str(n % 101) for n in range(2500)), " ".join(str(n * 7 % 101 + 1) for n in range(2500))),
        (" ".join(f"w{n} x" for n in range(1200)), " ".join(f"w{n} y" for n in range(1200))),
    ],
)
def test_what_would_take_long_to_compare_is_shown_as_written_anew(before: str, after: str) -> None:
    pieces = compare_texts(before, after)

    assert [piece.kind for piece in pieces if piece.kind != SAME] == [REMOVED, ADDED]
    assert text_of(pieces, ADDED) == before
    assert text_of(pieces, REMOVED) == after


def test_content_is_in_no_representation() -> None:
    assert "secret" not in repr(compare_texts("a secret", "no secret"))
