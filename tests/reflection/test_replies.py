"""Reading the model's answer: exactly the shape that was asked for, or nothing of it counts."""

from __future__ import annotations

import json

import pytest

from app.asking.replies import MalformedReply
from app.reflection.conversation import read_findings
from app.reflection.promotion import read_promotions
from tests.support.scripted import say

GOOD = '{"journal": ["Dora comes on Friday."], "core": [" No sugar. "]}'


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"\n {GOOD} \n",
        f"```json\n{GOOD}\n```",
        f"```\n{GOOD}\n```\n",
        f"<think>What matters? {{}}</think>\n{GOOD}",
        f"<thinking>Hm.</thinking>```JSON\n{GOOD}\n```",
    ],
)
def test_an_object_is_read_behind_one_thought_and_within_one_fence(text: str) -> None:
    found = read_findings(say(text))
    assert (found.core, found.journal) == (("No sugar.",), ("Dora comes on Friday.",))


def test_as_many_as_allowed_are_taken() -> None:
    most = {"journal": [f"j{n}" for n in range(10)], "core": [f"c{n}" for n in range(3)]}
    found = read_findings(say(json.dumps(most)))
    assert (len(found.core), len(found.journal)) == (3, 10)


def test_a_fence_within_a_memory_is_its_own() -> None:
    text = json.dumps({"journal": ["```json\n{}\n```"], "core": []})
    assert read_findings(say(f"```json\n{text}\n```")).journal == ("```json\n{}\n```",)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "quokka",
        f"Here you are: {GOOD}",
        f"{GOOD} quokka",
        f"{GOOD}{GOOD}",
        f"```json\n{GOOD}",
        f"quokka\n```json\n{GOOD}\n```",
        f"<think>{GOOD}",
        f"<think>a</think><think>b</think>{GOOD}",
        GOOD[:-1],
        "null",
        f"[{GOOD}]",
        '{"journal": ["quokka"]}',
        '{"core": []}',
        '{"journal": [], "core": [], "quokka": []}',
        '{"journal": [], "core": [], "constitutional": ["quokka"]}',
        '{"journal": [], "core": ["quokka"], "core": []}',
        '{"journal": "quokka", "core": []}',
        '{"journal": null, "core": []}',
        '{"journal": {"0": "quokka"}, "core": []}',
        '{"journal": [7], "core": []}',
        '{"journal": [null], "core": []}',
        '{"journal": [["quokka"]], "core": []}',
        '{"journal": [{"content": "quokka", "constitutional": true}], "core": []}',
        '{"journal": [""], "core": []}',
        '{"journal": [" \\n\\u200b"], "core": []}',
        '{"journal": ["quokka\\u0000"], "core": []}',
        '{"journal": ["quokka\\ud800"], "core": []}',
        json.dumps({"journal": ["q" * 10_001], "core": []}),
        json.dumps({"journal": ["quokka"] * 11, "core": []}),
        json.dumps({"journal": [], "core": ["a", "b", "c", "d"]}),
        '{"journal": [], "core": [' + "[" * 100_000,
        '{"journal": [], "core": [' + "9" * 10_000 + "]}",
    ],
)
def test_anything_else_is_malformed_and_not_quoted(text: str) -> None:
    with pytest.raises(MalformedReply) as refused:
        read_findings(say(text))
    assert "quokka" not in refused.value.sentence
    assert refused.value.sentence.startswith("The model's reply could not be used: ")


@pytest.mark.parametrize("reason", ["length", "max_tokens", "content_filter", "refusal"])
def test_a_reply_that_was_cut_off_is_malformed_even_where_it_looks_whole(reason: str) -> None:
    with pytest.raises(MalformedReply, match="cut off"):
        read_findings(say(GOOD, finish_reason=reason))
    with pytest.raises(MalformedReply, match="cut off"):
        read_promotions(say('{"promote": []}', finish_reason=reason), [])


def test_promotions_are_ids_of_what_was_shown() -> None:
    assert read_promotions(say('{"promote": []}'), [1, 2]) == []
    assert read_promotions(say('```json\n{"promote": [2, 1]}\n```'), [1, 2, 3]) == [2, 1]
    assert read_promotions(say(json.dumps({"promote": list(range(10))})), range(10)) == list(range(10))


@pytest.mark.parametrize(
    "promote",
    [
        "1",
        '["1"]',
        "[1.0]",
        "[true]",
        "[null]",
        "[[1]]",
        "[1, 1]",
        "[4]",
        "[1, 4]",
        "[-1]",
        "[0]",
        "{}",
        '"all"',
        "[1e0]",
    ],
)
def test_ids_in_another_form_or_of_something_else_are_malformed(promote: str) -> None:
    with pytest.raises(MalformedReply):
        read_promotions(say(f'{{"promote": {promote}}}'), [1, 2, 3])


def test_more_promotions_than_allowed_are_malformed() -> None:
    with pytest.raises(MalformedReply, match="at most 10"):
        read_promotions(say(json.dumps({"promote": list(range(11))})), range(20))


@pytest.mark.parametrize("text", ['{"promote": [], "core": []}', "{}", "[]", "none", "I promote nothing."])
def test_another_shape_than_promote_is_malformed(text: str) -> None:
    with pytest.raises(MalformedReply):
        read_promotions(say(text), [1])
