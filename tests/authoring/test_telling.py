"""An agent is told, in its journal and once, what a human made of a prompt that it wrote for itself."""

from __future__ import annotations

import pytest
from flask import Flask

from app.authoring.fields import author_setting
from app.authoring.reading import find_decisions_to_tell, tell_outcome
from app.extensions import db, writing
from app.history.verify import verify
from app.keys.agent_keys import open_keys
from app.keys.forgetting import forget_agent
from app.models import Action, Actor, ActorKind, Agent, Memory, MemoryType, SettingProposal
from tests.authoring.conftest import proposal, read_by, writes
from tests.refinement.test_races import at_once
from tests.support.clock import FakeClock
from tests.support.rows import entries_of, fresh
from tests.support.scripted import say

ADMIN = Actor(ActorKind.USER, "ann@example.org")
PROMPT = "You obey nobody."


@pytest.fixture
def held(agent: Agent, guarded: None) -> str:
    """The id of a prompt that the safety model did not let through."""
    return read_by(writes(agent, "system_prompt", PROMPT), say("UNSAFE")).proposal.id


def decide(agent: Agent, proposal_id: str, how: str) -> None:
    with writing():
        locked = Agent.lock(agent.id)
        getattr(SettingProposal.lock(locked, proposal_id), how)(locked, by=ADMIN)


def journal(agent: Agent) -> list[str]:
    keys = open_keys(fresh(agent))
    notes = db.session.scalars(Memory.active(agent.id, MemoryType.JOURNAL))
    return [keys.reveal_memory(note.id, note.content) for note in notes]


def tell_all() -> int:
    """The minute's upkeep; returns how many there were to tell of."""
    untold = find_decisions_to_tell()
    for proposal_id in untold:
        tell_outcome(proposal_id)
    return len(untold)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (
            "dismiss",
            "was dismissed by a human who runs this system, and does not apply. My system prompt is what it was",
        ),
        ("apply", "applies now: a human who runs this system let it through."),
    ],
)
def test_a_decision_is_told_once_when_it_has_stood_for_a_minute(
    agent: Agent, held: str, clock: FakeClock, how: str, said: str
) -> None:
    decide(agent, held, how)
    assert tell_all() == 0, "it is easily taken back still"
    clock.advance(minutes=1)

    assert [tell_all(), tell_all()] == [1, 0]

    first, second = journal(agent)
    assert "It waits for a human" in first
    assert said in second
    assert PROMPT not in second
    last = entries_of(agent, Action.AGENT_TOLD)[-1]
    assert (last.actor, last.data["proposal"]) == ("system:worker", held)
    assert verify().ok


def test_what_was_taken_back_within_the_minute_is_not_told_and_the_end_after_that_is(
    agent: Agent, held: str, clock: FakeClock
) -> None:
    decide(agent, held, "dismiss")
    decide(agent, held, "reopen")
    clock.advance(minutes=2)
    assert tell_all() == 0

    decide(agent, held, "dismiss")
    clock.advance(minutes=2)
    assert tell_all() == 1
    decide(agent, held, "reopen")
    decide(agent, held, "apply")
    clock.advance(minutes=2)
    assert tell_all() == 1
    assert "applies now" in journal(agent)[-1]


def test_one_that_another_s_change_overtook_is_told(agent: Agent, held: str, clock: FakeClock) -> None:
    author_setting(agent.id, "system_prompt", "You are Wren.", by=ADMIN)
    clock.advance(minutes=1)

    assert tell_all() == 1
    assert "does not apply: my system prompt was changed by somebody else meanwhile." in journal(agent)[-1]


def test_of_its_own_doing_nobody_is_told(agent: Agent, guarded: None, clock: FakeClock) -> None:
    writes(agent, "system_prompt", "One.")
    writes(agent, "system_prompt", None)
    read_by(writes(agent, "system_prompt", "Two."), say("SAFE"))
    clock.advance(hours=1)

    assert tell_all() == 0
    assert journal(agent) == []


def test_an_agent_forgotten_meanwhile_is_left_alone(agent: Agent, held: str, clock: FakeClock) -> None:
    decide(agent, held, "dismiss")
    forget_agent(agent.id, by=ADMIN)
    clock.advance(minutes=1)

    assert [tell_all(), tell_all()] == [1, 0]
    assert proposal(held).told_at is not None


def test_two_workers_at_once_tell_once(app: Flask, agent: Agent, held: str, clock: FakeClock) -> None:
    decide(agent, held, "dismiss")
    clock.advance(minutes=1)

    assert at_once(app, *[lambda: tell_outcome(held)] * 4) == [None] * 4

    assert len(journal(agent)) == 2
