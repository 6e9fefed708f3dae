"""The limits of the loop: turns, time, tokens, cost, silence. The valid changes stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from flask import Flask

from app.llm.client import Message, ModelError, ModelErrorKind, Reply, Usage
from app.models import Agent
from tests.refinement.driving import DONE, alike, call, carry, say
from tests.support.factories import remember
from tests.support.scripted import calls


@pytest.fixture
def ids(agent: Agent) -> list[int]:
    return remember(agent, *alike(20))


def test_words_without_calls_end_unfinished_and_valid_changes_stay(agent: Agent, ids: list[int]) -> None:
    done = carry(
        agent, say("YES"), call("delete_memory", id=ids[0], carried_by=ids[-1]), say("I think"), say("that is all.")
    )
    assert (done.status, done.refinement.mutations, done.refinement.turns) == ("unfinished", 1, 3)
    assert "You called no function" in done.client.asked[-1].messages[-1]["content"]


def test_a_model_that_calls_again_after_words_is_not_taken_to_be_done(agent: Agent, ids: list[int]) -> None:
    search = call("search_memories", query="may")
    done = carry(agent, say("YES"), say("I think"), search, say("that"), search, say("is all."), DONE)
    assert (done.status, done.client.replies_left) == ("completed", 0)


def test_turns_are_limited_to_thirty(agent: Agent, ids: list[int]) -> None:
    done = carry(agent, say("YES"), *[call("search_memories", query="may")] * 30)
    assert (done.status, done.refinement.turns, done.client.replies_left) == ("unfinished", 30, 0)


def test_tokens_and_cost_are_limited(app: Flask, agent: Agent, ids: list[int]) -> None:
    search = call("search_memories", query="may")
    app.extensions["settings"] = app.extensions["settings"].model_copy(update={"max_model_tokens": 1000})
    heavy = replace(search, usage=Usage(600, 0))
    done = carry(agent, say("YES"), heavy, heavy, DONE)
    assert (done.status, done.client.replies_left, "tokens" in (done.refinement.reason or "")) == (
        "unfinished",
        1,
        True,
    )
    dear = replace(search, usage=Usage(1, 1, Decimal("5.000001")))
    done = carry(agent, say("YES"), dear, DONE)
    assert (done.status, done.client.replies_left, "cost" in (done.refinement.reason or "")) == ("unfinished", 1, True)
    assert done.refinement.cost_usd == Decimal("5.000001")


def test_the_time_limit_ends_it_unfinished_wherever_it_strikes(agent: Agent, ids: list[int]) -> None:
    time = [0.0]

    def late(reply: Reply | ModelError) -> Any:
        def answer(_: Sequence[Message]) -> Reply:
            time[0] = 901.0
            if isinstance(reply, ModelError):
                raise reply
            return reply

        return answer

    timeout = ModelError(ModelErrorKind.TIMEOUT, "The model did not answer in time.")
    for reply in (call("search_memories", query="may"), call("delete_memory", id=ids[1], carried_by=ids[-1]), timeout):
        time[0] = 0.0
        done = carry(
            agent,
            say("YES"),
            call("delete_memory", id=10**9, carried_by=ids[-1]),
            late(reply),
            monotonic=lambda: time[0],
        )
        assert (done.status, done.refinement.reason) == (
            "unfinished",
            "The time limit was reached; earlier changes are kept.",
        )
    assert done.client.asked[0].timeout == 120
    time[0] = 0.0
    assert carry(agent, late(timeout), monotonic=lambda: time[0]).status == "failed"


def test_calls_of_one_reply_that_come_after_the_time_limit_are_not_made(agent: Agent, ids: list[int]) -> None:
    ticks = iter([*[0.0] * 11, *[901.0] * 100])
    many = calls(*(("delete_memory", {"id": one, "carried_by": ids[-1]}) for one in ids[:5]))
    done = carry(agent, say("YES"), many, monotonic=lambda: next(ticks))
    assert done.status == "unfinished"
    assert 0 < done.refinement.mutations < 5


def test_a_retried_call_is_one_turn(agent: Agent, ids: list[int]) -> None:
    busy = ModelError(ModelErrorKind.RATE_LIMITED, "busy", retry_after=7)
    done = carry(agent, busy, say("YES"), busy, busy, DONE)
    assert (done.status, done.refinement.turns) == ("completed", 1)
    assert all(pause >= 7 for pause in done.pauses)
    assert len(done.pauses) == 3
