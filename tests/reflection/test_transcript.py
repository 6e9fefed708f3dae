"""What may be handed in as a conversation: checked strictly, refused in sentences that quote nothing of it."""

from __future__ import annotations

from typing import Any

import pytest

from app.errors import Invalid
from app.reflection.transcript import MAX_CHARACTERS, MAX_MESSAGES, ROLES, Turn, as_text, from_text, read_messages

SECRET = "quokka"


def said(content: object = SECRET, role: object = "user", **more: object) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def test_text_in_all_four_roles_is_taken_as_it_is() -> None:
    assert read_messages([said(f" {role}\n", role) for role in ROLES]) == [Turn(role, f" {role}\n") for role in ROLES]


def test_openai_s_parts_become_lines() -> None:
    parts = [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]
    assert read_messages([said(parts)]) == [Turn("user", "One.\nTwo.")]


def test_what_a_tool_did_not_answer_may_be_blank() -> None:
    assert read_messages([said("", "tool"), said("Yes.")])[0] == Turn("tool", "")


def test_a_tool_loop_s_own_messages_are_taken_and_what_is_no_text_of_them_is_left_out() -> None:
    calls = [{"id": "1", "type": "function", "function": {"name": "recall", "arguments": SECRET}}]
    loop = [
        said("You are Wren.", "system"),
        said("Where is Ada?", name="ann"),
        said(None, "assistant", tool_calls=calls, provider_specific_fields={"refusal": None}),
        said("In Bern.", "tool", tool_call_id="1"),
        said("She is in Bern.", "assistant", refusal=None, annotations=[]),
        {"role": "assistant", "tool_calls": calls},
    ]
    assert read_messages(loop) == [
        Turn("system", "You are Wren."),
        Turn("user", "Where is Ada?"),
        Turn("assistant", ""),
        Turn("tool", "In Bern."),
        Turn("assistant", "She is in Bern."),
        Turn("assistant", ""),
    ]


def test_it_comes_back_from_its_sealed_form_as_it_was() -> None:
    turns = read_messages([said('line\nend "quoted" \u2028 \U0001f989'), said([{"type": "text", "text": "x"}])])
    assert from_text(as_text(turns)) == turns


def test_the_longest_one_is_taken() -> None:
    assert len(read_messages([said("x" * (MAX_CHARACTERS // MAX_MESSAGES))] * MAX_MESSAGES)) == MAX_MESSAGES
    assert read_messages([said("x" * MAX_CHARACTERS)])


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (None, "list of 1 to 500"),
        ("quokka", "list of 1 to 500"),
        ({"role": "user", "content": SECRET}, "list of 1 to 500"),
        ([], "list of 1 to 500"),
        ([said()] * (MAX_MESSAGES + 1), "list of 1 to 500"),
        ([said("x" * MAX_CHARACTERS), said("x")], "200,001 characters; at most 200,000"),
        ([said(" \n"), said("")], "blank"),
        ([said(), SECRET], "Message 2 must be an object"),
        ([said(), None], "Message 2 must be an object"),
        ([{"content": SECRET}], "Message 1 must be an object"),
        ([said(quokka=1)], "Message 1 must be an object"),
        ([{"role": "user", "text": SECRET}], "Message 1 must be an object"),
        ([{"role": "user"}], "neither text nor a list"),
        ([said(None, tool_calls=[])], "neither text nor a list"),
        ([said(role="quokka")], "Message 1 has another role"),
        ([said(role="User")], "Message 1 has another role"),
        ([said(role=None)], "Message 1 has another role"),
        ([said(role=[])], "Message 1 has another role"),
        ([said(None)], "neither text nor a list"),
        ([said(7)], "neither text nor a list"),
        ([said({"text": SECRET})], "neither text nor a list"),
        ([said([SECRET])], "Message 1 has a part"),
        ([said([{"type": "image_url", "image_url": {"url": SECRET}}])], "Message 1 has a part"),
        ([said([{"type": "text", "text": None}])], "Message 1 has a part"),
        ([said([{"type": "text", "text": SECRET, "quokka": 1}])], "Message 1 has a part"),
        ([said("quokka\x00")], "NUL character"),
        ([said("quokka\ud800")], "surrogate"),
    ],
)
def test_what_can_not_be_used_is_refused_without_a_word_of_it(given: object, why: str) -> None:
    with pytest.raises(Invalid, match=why) as refused:
        read_messages(given)
    assert SECRET not in refused.value.sentence
    assert refused.value.sentence.endswith("Nothing was handed in.")


@pytest.mark.parametrize("text", ["", "quokka", "[", "{}", "[" * 100_000])
def test_sealed_text_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(Invalid) as refused:
        from_text(text)
    assert SECRET not in refused.value.sentence
