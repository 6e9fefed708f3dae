"""A model that repeats refused calls is not paid to go on: the loop ends early, and says why."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.llm.client import Reply, ToolCall
from app.models import Agent
from tests.refinement.driving import DONE, Ended, alike, call, carry, say
from tests.support.factories import remember
from tests.support.scripted import Scripted, calls

pytestmark = pytest.mark.once

CARRIER = 20
"""The last of `ids`."""

WRONG = call("delete_memory", id=999_999, carried_by=CARRIER)
SEARCH = call("search_memories", query="may")


@pytest.fixture
def ids(agent: Agent) -> list[int]:
    return remember(agent, *alike(20))


def raw(arguments: str, name: str = "delete_memory") -> Reply:
    return Reply(tool_calls=(ToolCall("c1", name, arguments),), finish_reason="tool_calls")


def wrong(*numbers: int) -> Reply:
    """One reply with a refused call for each number; all of them are different calls."""
    return calls(*(("delete_memory", {"id": 10**9 + number, "carried_by": CARRIER}) for number in numbers))


def run(agent: Agent, *replies: Scripted) -> Ended:
    return carry(agent, say("YES"), *replies, *[DONE] * 2)


def ended_after(agent: Agent, *replies: Scripted) -> int | None:
    """The turn at which the loop gave up; None when it went on to the end."""
    done = run(agent, *replies)
    if done.status == "completed":
        return None
    assert done.status == "unfinished"
    assert "the model repeated a refused call" in (done.refinement.reason or "")
    return done.refinement.turns


def test_the_same_refused_call_in_three_replies_ends_it(agent: Agent, ids: list[int]) -> None:
    assert ended_after(agent, WRONG, WRONG) is None
    assert ended_after(agent, WRONG, WRONG, WRONG, WRONG) == 3


def test_three_times_in_one_reply_is_not_three_replies(agent: Agent, ids: list[int]) -> None:
    thrice = calls(*[("delete_memory", {"id": 999_999, "carried_by": CARRIER})] * 3)
    assert ended_after(agent, thrice) is None
    assert ended_after(agent, thrice, WRONG) is None


def test_a_change_starts_the_count_anew(agent: Agent, ids: list[int]) -> None:
    assert ended_after(agent, WRONG, WRONG, call("delete_memory", id=ids[0], carried_by=ids[-1]), WRONG, WRONG) is None
    both = calls(
        ("delete_memory", {"id": 999_999, "carried_by": CARRIER}),
        ("delete_memory", {"id": ids[1], "carried_by": ids[-1]}),
    )
    assert ended_after(agent, WRONG, WRONG, both, WRONG, WRONG) is None
    afterwards = calls(
        ("delete_memory", {"id": ids[2], "carried_by": ids[-1]}),
        ("delete_memory", {"id": 999_999, "carried_by": CARRIER}),
    )
    assert ended_after(agent, WRONG, WRONG, afterwards, WRONG, WRONG) == 5


def test_searches_words_and_protections_do_not_start_it_anew(agent: Agent, ids: list[int]) -> None:
    protect = call("protect_memory", id=ids[0])
    assert ended_after(agent, WRONG, SEARCH, WRONG, SEARCH, WRONG) == 5
    assert ended_after(agent, WRONG, protect, WRONG, say("Hm."), WRONG) == 5


@pytest.mark.parametrize(
    "spelled",
    [
        ('{"id":9999,"carried_by":20}', '{ "id" : 9999, "carried_by": 20 }', '{"carried_by":20,"id":\t9999}\n'),
        ('{"id":1,"content":"x","a":1}', '{"a":1,"content":"x","id":1}', '{"content":"\\u0078","id":1,"a":1}'),
        ('{"id": 1', '{"id": 1 ', ' {"id": 1'),
        ("", " ", "\n"),
        ("[" * 9999, "[" * 9999, "[" * 9999),
        ("9" * 5000, "9" * 5000, "9" * 5000),
        ('{"id": "\ud800"}', '{"id": "\\ud800"}', '{"id":"\ud800"}'),
    ],
)
def test_the_same_call_is_the_same_however_it_is_spelled(
    agent: Agent, ids: list[int], spelled: tuple[str, ...]
) -> None:
    assert ended_after(agent, *map(raw, spelled), WRONG) == 3


def test_other_arguments_or_another_function_are_another_call(agent: Agent, ids: list[int]) -> None:
    assert ended_after(agent, wrong(1), wrong(2), wrong(3), wrong(4), wrong(5)) is None
    protect = raw(json.dumps({"id": 999_999}), "protect_memory")
    assert ended_after(agent, WRONG, WRONG, protect, protect) is None


def test_six_refusals_over_three_replies_end_it(agent: Agent, ids: list[int]) -> None:
    assert ended_after(agent, wrong(1, 2), wrong(3, 4), wrong(5)) is None
    assert ended_after(agent, wrong(1, 2), wrong(3, 4), wrong(5, 6), SEARCH) == 3
    assert ended_after(agent, *(wrong(number) for number in range(7))) == 6


def test_six_refusals_in_fewer_replies_are_not_enough(agent: Agent, ids: list[int]) -> None:
    assert ended_after(agent, wrong(1, 2, 3, 4, 5, 6)) is None
    assert ended_after(agent, wrong(*range(6)), SEARCH, wrong(*range(7, 20)), SEARCH) is None
    assert ended_after(agent, wrong(*range(6)), SEARCH, wrong(7), wrong(8)) == 4


def test_the_changes_made_until_then_stay_and_can_be_undone(agent: Agent, ids: list[int]) -> None:
    done = run(agent, call("delete_memory", id=ids[0], carried_by=ids[-1]), WRONG, WRONG, WRONG)
    assert (done.status, done.refinement.mutations, done.refinement.undone_by) == ("unfinished", 1, None)


def test_refusals_are_counted_by_kind_with_all_calls(agent: Agent, ids: list[int]) -> None:
    many = calls(
        *(
            ("delete_memory", {"id": 999_999, "carried_by": CARRIER}),
            ("burn", {"id": 1}),
            ("update_memory", {"id": ids[0], "content": " "}),
        ),
        *(("search_memories", {"query": "may"}), ("delete_memory", {"id": ids[0], "carried_by": ids[-1]})),
    )
    done = run(agent, many, raw('{"id": 1'), WRONG)
    expected = {"unknown_memory": 2, "unknown_function": 1, "invalid": 1, "malformed_arguments": 1}
    assert (done.refinement.stats["refused"], done.refinement.calls) == (expected, 8)
    assert done.refinement.stats["refused"] == expected
    assert done.refinement.calls == 8
    assert done.refinement.refusal_line == "5 of 8 calls were refused"


def test_calls_after_the_end_are_not_counted(agent: Agent, ids: list[int]) -> None:
    most = calls(*(("delete_memory", {"id": number, "carried_by": ids[-1]}) for number in ids[:10]))
    done = run(agent, most, WRONG)
    assert done.status == "rolled_back"
    assert (done.refinement.calls, done.refinement.stats["refused"]) == (6, {})


def test_a_model_that_most_refuse_and_that_changed_nothing_is_said_to_be_unable(agent: Agent, ids: list[int]) -> None:
    few = run(agent, WRONG, WRONG, wrong(1), DONE)
    assert few.refinement.refusal_line == "3 of 4 calls were refused"
    most = run(agent, wrong(1, 2, 3), SEARCH, SEARCH)
    assert most.refinement.refusal_line == "3 of 6 calls were refused"
    unable = run(agent, wrong(1, 2, 3, 4), SEARCH, SEARCH)
    assert unable.refinement.refusal_line == "4 of 7 calls were refused: this model may not be able to refine"
    changed = run(agent, wrong(1, 2, 3, 4), call("delete_memory", id=ids[0], carried_by=ids[-1]))
    assert changed.refinement.refusal_line == "4 of 6 calls were refused"


def test_a_weak_models_recorded_replies_cost_few_turns(agent: Agent, ids: list[int]) -> None:
    """The pattern that was measured: an echo of the last call up to nineteen times, half of it malformed."""
    recorded: list[Any] = [raw('{"id": "1, 2"}'), raw("{}"), *[raw("{}")] * 19, DONE]
    done = carry(agent, say("YES"), *recorded)
    assert (done.status, done.refinement.turns, done.refinement.mutations) == ("unfinished", 4, 0)
    assert "earlier changes are kept" in (done.refinement.reason or "")
