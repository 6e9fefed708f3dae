"""What an open refinement waits for is known while a model thinks, and nothing is written for it but what failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest
from flask import Flask
from sqlalchemy import func, select

from app.extensions import begin_immediate, db, end_reading, now
from app.history.progress import Progress
from app.history.steps import steps_of
from app.history.timeline import timeline_of
from app.llm.client import Message, ModelError, ModelErrorKind, Reply
from app.models import COMMAND_LINE, Agent, Event, Refinement, Status
from app.models.agent_settings import operator_settings
from app.refinement.start import request_stop
from tests.refinement.driving import DONE, alike, call, carry, say
from tests.support.clock import FakeClock
from tests.support.factories import begin, make_agent, remember
from tests.support.scripted import calls

Thinking = Callable[[Sequence[Message]], Reply]


@pytest.fixture
def agent(app: Flask, clock: FakeClock) -> Agent:
    made = make_agent()
    remember(made, *alike(6))
    return made


def progress_of(agent: Agent) -> Progress:
    refinement = Refinement.open_of(agent.id)
    assert refinement is not None
    found = Progress.of(refinement, agent, steps_of(refinement))
    assert found is not None
    end_reading()
    return found


def seen_by(seen: list[Progress], agent: Agent, reply: Reply, act: Callable[[], object] = lambda: None) -> Thinking:
    """A model that is looked at while it thinks."""

    def think(_: Sequence[Message]) -> Reply:
        act()
        seen.append(progress_of(agent))
        return reply

    return think


def test_each_wait_says_its_turn_since_when_and_until_when(agent: Agent, clock: FakeClock) -> None:
    seen: list[Progress] = []
    deletion = call("delete_memory", id=1, carried_by=6)
    began = clock.at

    def stop_it() -> None:
        clock.advance(seconds=7)
        refinement = Refinement.open_of(agent.id)
        assert refinement is not None
        request_stop(refinement.id, by=COMMAND_LINE)

    done = carry(
        agent,
        seen_by(seen, agent, say("YES"), lambda: clock.advance(seconds=9)),
        seen_by(seen, agent, deletion, lambda: clock.advance(seconds=5)),
        seen_by(seen, agent, DONE, stop_it),
    )

    assert done.status == "stopped"
    assert [(each.title, each.turn, each.since - began) for each in seen] == [
        ("Waiting for its answer", None, timedelta(0)),
        ("Turn 1: the model is thinking", 1, timedelta(seconds=9)),
        ("Turn 2: the model is thinking", 2, timedelta(seconds=14)),
    ]
    assert seen[2].waited == 7
    settings = operator_settings()
    assert {each.deadline for each in seen} == {began + timedelta(seconds=settings.deadline_seconds)}
    assert seen[1].attempt_ends == began + timedelta(seconds=9 + settings.step_timeout_seconds)
    assert [each.is_stopping for each in seen] == [False, False, True]
    assert seen[0].stop_words == ""
    assert seen[2].stop_words.startswith("Stop waits for the model's reply of turn 2, until ")
    assert Progress.of(done.refinement, agent, steps_of(done.refinement)) is None


def test_an_attempt_that_failed_is_told_with_its_reason_and_the_next_one_counts_on(agent: Agent) -> None:
    seen: list[Progress] = []
    failed = ModelError(ModelErrorKind.SERVER_ERROR, "The model failed, and SECRET said why.", status=500)

    done = carry(agent, say("YES"), failed, failed, seen_by(seen, agent, DONE))

    assert done.status == "completed"
    (while_thinking,) = seen
    assert (while_thinking.attempt, while_thinking.attempts, while_thinking.turn) == (3, 3, 1)
    assert while_thinking.pause_left > 0  # the test's pauses take no time
    told = [(row.title, row.detail) for row in timeline_of(done.refinement) if row.kind == "retried"]
    assert [title for title, _ in told] == ["Attempt 1 of 3 failed", "Attempt 2 of 3 failed"]
    assert all(detail.startswith("the model's server failed (HTTP 500); asked again after ") for _, detail in told)
    assert "SECRET" not in str([step.data for step in steps_of(done.refinement)])


def test_while_a_model_thinks_nothing_is_written(agent: Agent) -> None:
    counts: list[int] = []

    def think(_: Sequence[Message]) -> Reply:
        counts.append(db.session.scalar(select(func.count()).select_from(Event)) or 0)
        progress_of(agent)
        counts.append(db.session.scalar(select(func.count()).select_from(Event)) or 0)
        end_reading()
        return DONE

    carry(agent, say("YES"), think)

    assert counts[0] == counts[1]


def test_a_queued_one_waits_for_a_worker_and_the_close_for_its_readers(agent: Agent) -> None:
    run = begin(agent)
    refinement, steps = run.refinement, steps_of(run.refinement)

    def title(**changed: object) -> str:
        for name, value in changed.items():
            setattr(refinement, name, value)
        found = Progress.of(refinement, agent, steps)
        assert found is not None
        return found.title

    end_reading()
    begin_immediate(db.session())
    agent.recall_probes = 3
    assert title() == "The agent writes its recall questions"
    assert title(probes_asked=3) == "Turn 1: the model is thinking"
    assert title(ending=Status.COMPLETED, mutations=1) == "The agent answers its recall questions"
    assert title(reader_action="flag") == "The second reader compares the changes"
    assert title(status=Status.QUEUED) == "Waiting for a worker"
    found = Progress.of(refinement, agent, [])
    assert found is not None and (found.deadline, found.attempt_ends) == (None, None)  # an older worker told none
    db.session.rollback()


def test_quiet_turns_are_one_row_that_opens_and_searches_stand_with_their_turn(agent: Agent) -> None:
    search = call("search_memories", query="the secret of the third of May")
    done = carry(
        agent,
        say("YES"),
        search,
        calls(("search_memories", {"query": "x"}), ("search_memories", {"query": "y"})),
        calls(("search_memories", {"query": "z"}), ("delete_memory", {"id": 1, "carried_by": 6})),
        DONE,
    )

    rows = timeline_of(done.refinement)
    quiet = next(row for row in rows if row.parts)
    assert (quiet.title, quiet.searches, quiet.calls) == ("Turns 1 to 3", 4, 5)
    assert [(part.title, part.searches) for part in quiet.parts] == [("Turn 1", 1), ("Turn 2", 2), ("Turn 3", 1)]
    assert [row.turns for row in rows if row.kind == "operation"] == [(3, 3)]
    assert "secret" not in str([step.data for step in steps_of(done.refinement)])
    assert now() >= rows[-1].at
