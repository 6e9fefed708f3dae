"""A worker that was given up and comes back late: nothing of an ended refinement changes any more, nor is it told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import text

from app.extensions import db, now, writing
from app.llm.client import Message, ModelError, ModelErrorKind, Reply, Usage
from app.models import COMMAND_LINE, Agent, Refinement
from app.refinement.start import request_stop
from app.refinement.sweep import close_stalled
from tests.refinement.driving import DONE, alike, call, carry, say
from tests.support.factories import begin, ledger, remember

Thought = Callable[[Sequence[Message]], Reply]


@pytest.fixture
def ids(agent: Agent) -> list[int]:
    return remember(agent, *alike(20))


class Sweeper:
    """Closes the open refinement while its model thinks, and remembers what the database then held of it."""

    def __init__(self, close: Callable[[], object]) -> None:
        self._close = close
        self.at_the_end: list[Any] = []

    def before(self, reply: Reply | ModelError) -> Thought:
        def think(_: Sequence[Message]) -> Reply:
            self._close()
            self.at_the_end = everything()
            if isinstance(reply, ModelError):
                raise reply
            return reply

        return think


def everything() -> list[Any]:
    """All rows of refinements, events and the log, as they are stored."""
    db.session.rollback()
    tables = ("refinements", "events", "audit_log", "agents", "memories", "consents")
    return [[tuple(row) for row in db.session.execute(text(f"SELECT * FROM {table} ORDER BY id"))] for table in tables]


def sweep() -> None:
    with writing() as session:
        session.execute(text("UPDATE refinements SET heartbeat_at = :at"), {"at": now() - timedelta(days=999)})
    assert len(close_stalled()) == 1


@pytest.mark.parametrize(
    "late",
    [
        call("delete_memory", id=1, carried_by=20),
        call("delete_memory", id=10**9, carried_by=20),
        call("search_memories", query="may"),
        DONE,
        replace(say("Let me think."), usage=Usage(700, 70)),
        ModelError(ModelErrorKind.BAD_REQUEST, "The model refused."),
    ],
)
def test_what_comes_late_in_the_loop_is_written_nowhere(
    app: Flask, agent: Agent, ids: list[int], late: Reply | ModelError
) -> None:
    sweeper = Sweeper(sweep)

    done = carry(agent, say("YES"), call("delete_memory", id=ids[3], carried_by=ids[-1]), sweeper.before(late), DONE)

    assert (done.status, done.refinement.mutations, done.refinement.turns) == ("interrupted", 1, 1)
    assert everything() == sweeper.at_the_end
    assert done.client.replies_left == 1, "a model was asked after the end"


@pytest.mark.parametrize("late", [say("YES"), say("NO"), ModelError(ModelErrorKind.BAD_REQUEST, "No.")])
def test_what_comes_late_to_the_question_is_written_nowhere(
    app: Flask, agent: Agent, ids: list[int], late: Reply | ModelError
) -> None:
    sweeper = Sweeper(sweep)

    done = carry(agent, sweeper.before(late), DONE)

    assert done.status == "interrupted"
    assert everything() == sweeper.at_the_end
    assert done.client.replies_left == 1


def test_a_stop_meanwhile_lets_the_reply_be_booked_and_nothing_after_it(
    app: Flask, agent: Agent, ids: list[int]
) -> None:
    def press(_: Sequence[Message]) -> Reply:
        request_stop(Refinement.open_of(agent.id).id, by=COMMAND_LINE)  # type: ignore[union-attr]
        return call("delete_memory", id=ids[0], carried_by=ids[-1])

    done = carry(agent, say("YES"), press, DONE)

    assert (done.status, done.refinement.mutations, done.refinement.turns) == ("stopped", 0, 1)
    assert (done.refinement.calls, done.refinement.stats["refused"]) == (0, {})


def test_the_reply_to_a_rollback_is_on_no_account(app: Flask, agent: Agent, ids: list[int]) -> None:
    seen: list[list[Any]] = []

    def answer(messages: Sequence[Message]) -> Reply:
        assert "refinement_rolled_back" in messages[-1]["content"]
        seen.append(everything())
        return replace(say("I see."), usage=Usage(700, 70))

    cuts = [call("delete_memory", id=number, carried_by=ids[-1]) for number in ids[:6]]
    done = carry(agent, say("YES"), *cuts, answer)

    assert (done.status, done.refinement.turns) == ("rolled_back", 6)
    assert everything() == seen[0]


def test_a_tool_that_is_held_by_nobody_any_more_books_nothing(app: Flask, agent: Agent, ids: list[int]) -> None:
    run = begin(agent)
    run.tool.execute("search", query="may")
    run.tool.execute("delete", id=10**9, carried_by=ids[-1])
    sweep()
    before, memories = everything(), ledger(agent)

    run.tool.settle()
    for action in ("search", "delete", "complete", "burn"):
        assert "terminated" in run.tool.execute(action, id=ids[0], query="may", summary="x")["error"]
    run.tool.settle()

    assert (everything(), ledger(agent)) == (before, memories)


def test_an_ended_refinement_announces_nothing(app: Flask, agent: Agent, ids: list[int]) -> None:
    run = begin(agent)
    sweep()
    with pytest.raises(RuntimeError, match="has ended"), writing():
        Refinement.lock(run.refinement.id).announce("turn", turn=1)


@pytest.mark.parametrize("worker", ["test", "another"])
def test_only_whose_hands_it_is_in_books_a_turn(agent: Agent, ids: list[int], worker: str) -> None:
    number = begin(agent).refinement.id
    used = {"prompt_tokens": 70, "completion_tokens": 5, "cost_usd": Decimal("0.25")}
    with writing():
        assert Refinement.book_turn(number, worker, 2, **used) is (worker == "test")
        assert Refinement.book_turn(number, worker, 1, **used) is (worker == "test")
    row = db.session.get_one(Refinement, number)
    told = (row.turns, row.prompt_tokens, row.completion_tokens, row.cost_usd)
    assert told == ((2, 140, 10, Decimal("0.5")) if worker == "test" else (0, 0, 0, 0))
