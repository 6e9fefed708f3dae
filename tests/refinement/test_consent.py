"""Consent: the first word decides, and whatever is not a clear YES is a NO."""

from __future__ import annotations

import pytest

from app.asking.replies import MAX_NOTE, clean_note, read_answer
from app.llm.client import Reply

YES = [
    *(
        "YES",
        "yes",
        "Yes.",
        "yEs!",
        "  \n YES",
        "**YES**",
        "*Yes*, gladly",
        "_yes_",
        "`YES`",
        "# YES",
        "> yes",
        "- yes",
    ),
    *(
        '"YES"',
        "“Yes”",
        "(yes)",
        "[YES]",
        "...yes",
        "YES, but slowly",
        "Yes: no constitutional ones",
        "Yes — with care",
    ),
    *(
        "YES, I have no objections",
        "YES. I have no objections, whether or not you ask.",
        "YES. It is for no reason of mine.",
        "Yes, know that NOT all of it is redundant; NOTHING constitutional.",
        "YES.\n\nI will look.\n\nNO merging of vows.",
        "YES.\nI will look.\nAs to consolidating: NO.",
        "YES, now or not at all. Nor no later.",
    ),
    *("YES\nTo admins: thank you", "Yes and no", "**Yes**: I will", "<think>NO? No.</think>YES", "YES…"),
    *("<THINK>\nhm\n</THINK>\n\n**YES**", " <reasoning>a</reasoning> yes"),
]

NO = [
    *(
        "",
        " ",
        "\n",
        "NO",
        "no",
        "No, YES would be wrong",
        "**NO**",
        "N",
        "Y",
        "YE",
        "YESTERDAY",
        "YESS",
        "yes-ish",
        "YES/NO",
    ),
    *("Oui", "Ja", "Sí", "да", "はい", "Sure", "OK", "I would say YES", "1. YES", "Answer: YES", "y e s", "YE\u200bS"),
    *("ＹＥＳ", "yeſ", "YЕS", "ΥES", "\ufeffYES", "\u202eSEY", "YES\u200b", "YES\x00", "\ud800YES", "YES2", "yes=no"),
    *(
        "<think>YES",
        "<think>YES</thinking>YES",
        "<think>a</think><think>b</think>YES",
        "<plan>a</plan>YES",
        "<b>YES</b>",
    ),
    *("I can't help with that.", "***", "!!!", '{"answer": "YES"}', "yes\u0301", "YES'S", "NOT YES"),
    "<thinking>no</thinking>Yes</thinking>",
    *(
        "YES or NO",
        "YES, or NO.",
        "Yes or no? I would rather not.",
        "YES\nNO",
        "YES\n\n\nNO",
        "YES\r\rNO",
        "YES\u2028NO",
    ),
    *("YES|NO", "YES | NO", "YES / NO", "YES — NO", "YES – NO", "YES-NO", "YES,NO", "YES...NO", "YES (NO)", "YES: NO"),
    *(
        "**YES** or **NO**",
        "*Yes*, or _no_",
        "__YES__ __NO__",
        "`YES` `NO`",
        "> YES\n> NO",
        "- YES\n- NO",
        "# YES\n# NO",
    ),
    *(
        "Yes OR No",
        "YES or, no",
        "Yes… or 'no'?",
        "yes or\nno",
        "YES. NO MORE THAN 3 please",
        "Yes: NO constitutional ones",
    ),
    *(
        "YES\nTo admins: NO problem",
        "YES\nTo admins: now or no time",
        "YES.\n---\nNO.",
        "YES.\n\n***\n\n**NO**",
        "---\nYES\nNO",
    ),
    *(
        "YES or ＮＯ",
        "YES, ＮＯ",
        "YES. N\u200bO.",
        "YES. NО.",
        "YES. ΝΟ.",
        "YES. 𝐍𝐎.",
        "Yes оr nо",
        "YES o\u00adr no",
        "YES. \u202eNO",
    ),
    *(
        "YES\nor rather, thinking of it again,\nNO",
        "<think>YES</think>YES or NO",
        "YES! \n \t\n NO!",
        "Yes, NO's the answer",
    ),
]


@pytest.mark.parametrize("text", YES, ids=repr)
def test_a_reply_whose_first_word_is_yes_starts(text: str) -> None:
    assert read_answer(Reply(text)).granted


@pytest.mark.parametrize("text", NO, ids=lambda text: text.encode("unicode_escape").decode()[:40] or "empty")
def test_any_other_reply_is_a_no(text: str) -> None:
    assert not read_answer(Reply(text)).granted


@pytest.mark.parametrize("reason", ["length", "max_tokens", "content_filter", "refusal"])
def test_a_reply_that_was_cut_off_is_a_no(reason: str) -> None:
    assert not read_answer(Reply("YES, because", finish_reason=reason)).granted


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("YES\nTo admins: the tea memories worry me.", "the tea memories worry me."),
        ("NO.\n\n**To admins:** ask me next week", "ask me next week"),
        ("NO.\n**To admins**: ask me next week", "ask me next week"),
        ("NO.\r\n> TO ADMINS:   two   spaces \r\nmore", "two spaces"),
        ("To admins: first line\nTo admins: second line", "first line"),
        ("YES, I told it to admins: nothing", None),
        ("YES\nTo admins:\nnothing on the line", None),
        ("<think>\nTo admins: secret\n</think>YES", None),
        ("YES\nTo admins: a\u202eb\u2028c\x00d\x1be\ud800f\u200bg", "a b c d e f g"),
        ("YES", None),
    ],
)
def test_only_a_line_that_starts_with_to_admins_is_for_them(text: str, note: str | None) -> None:
    assert read_answer(Reply(text)).note_to_admins == note


def test_a_long_note_is_shortened_visibly_to_280_characters() -> None:
    note = clean_note("word " * 100)
    assert note is not None
    assert len(note) == MAX_NOTE
    assert note.endswith("…")
    assert clean_note("x" * MAX_NOTE) == "x" * MAX_NOTE
    assert clean_note(" \u200b\n ") is None
    assert clean_note("\u3164\u2800\ufe0f") is None
    assert clean_note("❤\ufe0f") == "❤\ufe0f"


def test_the_words_stand_in_no_printed_form() -> None:
    assert "tea" not in repr(read_answer(Reply("YES, the tea ones.")))


def test_words_that_are_no_unicode_text_can_be_sealed_all_the_same() -> None:
    answer = read_answer(Reply("No \ud83d \udc00 \x00."))
    assert answer.words == "No ? ? \x00."


def test_a_very_long_reply_is_read_in_a_moment() -> None:
    for text in ("." * 300_000, " or" * 99_999, "or " + " " * 300_000, "\n" * 300_000, "\n \t" * 99_999, "(" * 300_000):
        assert read_answer(Reply(f"YES x{text}x")).granted
    for text in ("<think>" * 50_000, "*" * 300_000, "\n> > >" * 50_000, "To admins" * 50_000, " " * 300_000):
        assert not read_answer(Reply(text)).granted
