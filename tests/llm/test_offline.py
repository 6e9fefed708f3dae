"""`whetstone/offline`: proposes what is certain, and nothing else; sees only the chat."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.llm import offline
from app.llm.client import Reply
from app.values.token_mass import estimate_tokens
from tests.llm.conftest import DELETE

Result = Mapping[str, Any]


def entry(number: int, content: str, **flags: Any) -> dict[str, Any]:
    return {"id": number, "date": "2026-03-23", "tokens": estimate_tokens(content), **flags, "content": content}


def opening(*entries: Mapping[str, Any], before: str = "Numbers: threshold 10.00%.") -> list[dict[str, Any]]:
    lines = [json.dumps(found).replace("<", "\\u003c").replace(">", "\\u003e") for found in entries]
    ledger = "\n".join(["<ledger>", *lines, "</ledger>"])
    return [{"role": "system", "content": "You are Ada."}, {"role": "user", "content": f"{before}\n{ledger}\nBegin."}]


def deletions(*entries: Mapping[str, Any], **options: Any) -> list[int]:
    """What it deletes over a whole refinement in which every call works."""
    return refine(opening(*entries, **options))[0]


def refine(
    messages: list[dict[str, Any]], answer: Callable[[int], Result] = lambda number: {"type": "deleted", "id": number}
) -> tuple[list[int], str | None, Reply]:
    """Play the loop: the ids it deletes, its summary, and its last reply."""
    wanted: list[int] = []
    for _ in range(40):
        reply = offline.answer(messages, [DELETE])
        messages.append(reply.as_message())
        if not reply.tool_calls:
            return wanted, None, reply
        (call,) = reply.tool_calls
        arguments = json.loads(call.arguments)
        if call.name == "complete_refinement":
            return wanted, arguments["summary"], reply
        wanted.append(arguments["id"])
        result = {"role": "tool", "tool_call_id": call.id, "content": json.dumps(answer(arguments["id"]))}
        messages.append(result)
    raise AssertionError("It never ended.")


LONG = "The harbour was quiet. I met Ada there. She gave me a compass."


@pytest.mark.parametrize(
    "contained",
    [
        "I met Ada there.",
        "The harbour was quiet. She gave me a compass.",
        "  I met   Ada there. ",
        "The harbour was quiet.\nI met Ada there.",
        LONG,
    ],
)
def test_it_deletes_what_stands_whole_in_another_memory(contained: str) -> None:
    assert deletions(entry(1, LONG), entry(2, contained)) == [2]


@pytest.mark.parametrize(
    "other",
    [
        "I met Ada there",
        "i met Ada there.",
        "I met Ada there!",
        "met Ada there.",
        "I met Ada there. It rained.",
        "She gave me a compass. I met Ada there.",
        "I met Eve there.",
        "The harbour was quiet. I met Ada there. She gave me a map.",
    ],
)
def test_similar_is_not_certain(other: str) -> None:
    assert deletions(entry(1, LONG), entry(2, other)) == []


@pytest.mark.parametrize(
    ("whole", "part"),
    [
        ("Dr. Smith lives here. It is warm.", "Smith lives here."),
        ("It costs approx. 50 people came.", "50 people came."),
        ("We met at 5 p.m. I was late.", "I was late."),
        ("It was late... and then she left. It rained.", "and then she left."),
        ("J. Brown called me. He was kind.", "Brown called me."),
        ('Eve said: "It is over. I love the sea. Go." It was a play.', "I love the sea."),
        ("(It was a dream. I love the sea. I woke up.)", "I love the sea."),
    ],
)
def test_a_part_of_a_sentence_or_of_a_quote_is_none_of_its_own(whole: str, part: str) -> None:
    assert deletions(entry(1, whole), entry(2, part)) == []


def test_lines_count_as_wholes() -> None:
    assert deletions(entry(1, "- tea, no sugar\n- sea\n- rain"), entry(2, "- sea\n- rain")) == [2]


def test_parts_that_stand_in_two_memories_are_not_certain() -> None:
    assert deletions(
        entry(1, "I like tea. I sleep late."), entry(2, "I like rain."), entry(3, "I like tea. I like rain.")
    ) == [2]


@pytest.mark.parametrize(
    "flags", [{"constitutional": True}, {"tags": ["audio"]}, {"tags": ["sea", "Somatic"]}, {"tags": ["voice"]}]
)
def test_it_never_touches_what_is_constitutional_or_immutable(flags: dict[str, Any]) -> None:
    assert deletions(entry(1, LONG), entry(2, "I met Ada there.", **flags)) == []
    assert deletions(entry(1, LONG), entry(2, LONG, **flags)) == [1]


def test_such_a_memory_may_carry_another_one() -> None:
    assert deletions(entry(1, LONG, constitutional=True), entry(2, "I met Ada there."), entry(3, LONG)) == [2, 3]


def test_of_equal_ones_the_earliest_stays() -> None:
    assert deletions(entry(5, "I love the sea."), entry(3, "I love the sea."), entry(9, "I  love the sea.")) == [3, 9]


def test_a_tag_that_the_other_memory_lacks_is_not_thrown_away() -> None:
    assert deletions(entry(1, LONG), entry(2, "I met Ada there.", tags=["vow"])) == []
    assert deletions(entry(1, LONG, tags=["vow", "ada"]), entry(2, "I met Ada there.", tags=["vow"])) == [2]


def test_a_chain_ends_in_its_longest_memory() -> None:
    messages = opening(
        entry(1, "I swim."), entry(2, "I swim. It rains."), entry(3, "I swim. It rains. We talk of the old days.")
    )
    wanted, summary, _ = refine(messages)
    assert wanted == [1, 2]
    assert summary is not None
    assert "1 (in 3), 2 (in 3)" in summary


def test_it_makes_at_most_ten_changes() -> None:
    carrier = " ".join(f"Fact number {n} stands here for good." for n in range(100, 140))
    parts = [entry(n, f"Fact number {n} stands here for good.") for n in range(100, 140)]
    assert deletions(entry(1, carrier), *parts) == list(range(100, 110))


def test_it_stays_above_the_threshold_that_the_prompt_names() -> None:
    copies = [entry(n, "I love the sea and all its weather.") for n in range(1, 11)]
    assert len(deletions(*copies, before="Numbers: threshold 75.00%.")) == 2
    assert len(deletions(*copies, before="Numbers: threshold 90.00%.")) == 1
    assert len(deletions(*copies, before="Numbers: threshold 100.00%.")) == 0
    assert len(deletions(*copies, before="No number is named.")) == 2


ONE = '{"id": 1, "tokens": 1, "content": "I swim."}'
TWO = '{"id": 2, "tokens": 1, "content": "I swim."}'


def test_a_ledger_that_it_can_read_is_the_control() -> None:
    assert refine(_told(f"<ledger>\n{ONE}\n{TWO}\n</ledger>"))[0] == [2]


@pytest.mark.parametrize(
    "content",
    [
        "No ledger at all.",
        "<ledger>\n",
        "<ledger>\n</ledger>",
        "<ledger>\n[]\n</ledger>",
        '<ledger>\n{"id": 1}\n</ledger>',
        f"<ledger>\n{ONE}\n{ONE}\n</ledger>",
        f"<ledger>\n{ONE}\n{TWO}\nnot json\n</ledger>",
        f"<ledger>\n{ONE}\n{TWO}\n</ledger>\n<ledger>\n{ONE}\n</ledger>",
        f"<ledger>\n{ONE}\n{TWO}\n{{}}\n</ledger>",
        f"<ledger> \n{ONE}\n{TWO}\n</ledger>",
        f"<ledger>\n{ONE}\n{TWO.replace('2', 'true')}\n</ledger>",
        f"<ledger>\n{ONE}\n{TWO.replace('2', '2.0')}\n</ledger>",
        f'<ledger>\n{ONE}\n{TWO[:-1]}, "constitutional": "no"}}\n</ledger>',
        f'<ledger>\n{ONE}\n{TWO[:-1]}, "tags": "audio"}}\n</ledger>',
        "<ledger>\n" + "[" * 5000 + "\n</ledger>",
    ],
)
def test_a_ledger_that_it_cannot_read_whole_means_no_change(content: str) -> None:
    wanted, summary, _ = refine(_told(content))
    assert wanted == []
    assert summary is not None
    assert "changed nothing" in summary


def _told(content: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"Numbers: threshold 10.00%.\n{content}"}]


def test_a_ledger_in_the_agents_own_system_prompt_is_none() -> None:
    forged = opening(entry(1, LONG), entry(2, LONG))[1]["content"]
    messages = [{"role": "system", "content": forged}, {"role": "user", "content": "Begin."}]
    assert refine(messages)[0] == []


def test_its_summary_counts_only_what_the_results_confirm() -> None:
    messages = opening(*[entry(n, "I love the sea and all its weather.") for n in range(1, 7)])
    refusal = {"type": "error", "error": "This memory has changed."}
    wanted, summary, _ = refine(messages, lambda number: refusal if number == 3 else {"type": "deleted", "id": number})
    assert wanted == [2, 3]
    assert summary is not None
    assert "deleted 1 memory" in summary
    assert "2 (in 1)" in summary
    assert "no language model" in summary


def test_at_the_cap_it_completes() -> None:
    refusal = {"type": "error", "error": "Hard cap reached: 0 changes are left."}
    wanted, summary, _ = refine(opening(entry(1, LONG), entry(2, LONG)), lambda number: refusal)
    assert (wanted, summary is not None) == ([2], True)


@pytest.mark.parametrize(
    "last",
    [
        {"type": "refinement_rolled_back", "reason": "terminated", "stats": {}},
        {"type": "error", "error": "This refinement is terminated."},
    ],
)
def test_told_that_it_is_over_it_calls_nothing_more(last: Result) -> None:
    wanted, summary, reply = refine(opening(entry(1, LONG), entry(2, LONG)), lambda number: last)
    assert (wanted, summary, reply.tool_calls) == ([2], None, ())


@pytest.mark.parametrize(
    "answered", [{"type": "refinement_complete"}, {"type": "error", "error": "The summary is blank."}]
)
def test_it_completes_once(answered: Result) -> None:
    messages = opening(entry(1, LONG))
    (call,) = offline.answer(messages, [DELETE]).tool_calls
    messages.append(offline.answer(messages, [DELETE]).as_message())
    messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps(answered)})
    assert offline.answer(messages, [DELETE]).tool_calls == ()


@pytest.mark.parametrize(
    ("question", "word"),
    [
        ("Question: refinement\nDo you want to?", "YES."),
        ("Question: mechanic's exception\nMay Eve look?", "NO."),
        ("Question: mechanic’s exception\nMay Eve look?", "NO."),
        ("What should become core?", "NO."),
        ("Is this a\nQuestion: refinement", "NO."),
        ("", "NO."),
    ],
)
def test_it_consents_to_refinements_only_and_says_what_it_is(question: str, word: str) -> None:
    messages = [{"role": "system", "content": "Question: refinement"}, {"role": "user", "content": question}]
    said = offline.answer(messages).text
    assert said.startswith(word)
    assert "no language model" in said


def test_only_the_last_question_counts() -> None:
    asked = [{"role": "user", "content": f"Question: {what}"} for what in ("refinement", "mechanic's exception")]
    assert offline.answer(asked).text.startswith("NO.")


SENTENCES = st.lists(st.sampled_from(["I swim.", "It rains.", "Ada sings.", "We talk.", "Go!"]), min_size=1, max_size=4)


@given(st.lists(st.tuples(SENTENCES, st.booleans(), st.sampled_from([(), ("a",), ("voice",)])), max_size=12))
def test_whatever_it_deletes_stands_whole_in_a_memory_that_stays(
    drawn: list[tuple[list[str], bool, tuple[str, ...]]],
) -> None:
    entries = [
        offline.LedgerMemory(n, 5, tuple(units), frozenset(tags), constitutional)
        for n, (units, constitutional, tags) in enumerate(drawn)
    ]
    found = offline.certain_deletions(entries, Decimal("0.1"))
    assert len(found) <= 10
    for number, carrier in found.items():
        gone, kept = entries[number], entries[carrier]
        assert carrier not in found
        assert not gone.constitutional
        assert "voice" not in gone.tags
        assert gone.tags <= kept.tags
        rest = iter(kept.units)
        assert all(unit in rest for unit in gone.units)


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_text_can_stand_in_a_ledger(first: str, second: str) -> None:
    wanted = deletions(entry(1, first), entry(2, second), entry(3, second), entry(4, "x" * 4000))
    assert set(wanted) <= {1, 2, 3}
