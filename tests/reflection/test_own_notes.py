"""The daily look back is about what the agent lived: Whetstone's own notes are no reason to ask, nor to keep."""

from __future__ import annotations

import pytest

from app.extensions import db, now, writing
from app.history.telling import find_acts_to_tell, tell_human_acts
from app.models import COMMAND_LINE, Agent, Memory, MemoryType, Source
from app.reflection.promotion import find_due
from tests.reflection.conftest import jot, look_back, texts
from tests.reflection.test_promotion import naming
from tests.support.clock import FakeClock
from tests.support.factories import begin, remember

LONG = "On the third of May we promised each other to tell the truth, even when it is small and unwelcome. "


def is_due(agent: Agent) -> bool:
    db.session.rollback()
    return agent.id in find_due(now())


def completed(agent: Agent, clock: FakeClock) -> None:
    begin(agent).tool.execute("complete", summary="Nothing to do.")


def tripped(agent: Agent, clock: FakeClock) -> None:
    run = begin(agent)
    for number in (1, 2, 3):
        run.tool.execute("delete", id=number, carried_by=8)
    assert run.tool.was_rolled_back


def told(agent: Agent, clock: FakeClock) -> None:
    with writing():
        locked = Agent.lock(agent.id)
        Memory.lock_core(locked, 1).protect(locked, by=COMMAND_LINE)
    clock.advance(minutes=1)
    for untold in find_acts_to_tell():
        tell_human_acts(*untold)


@pytest.mark.parametrize("happens", [completed, tripped, told])
def test_a_note_of_whetstone_alone_is_no_reason_to_ask(agent: Agent, clock: FakeClock, happens: object) -> None:
    remember(agent, *(f"{LONG}{n}" for n in range(7)), f"{LONG}0, 1, 2")
    happens(agent, clock)  # type: ignore[operator]
    assert len(texts(agent, MemoryType.JOURNAL)) == 1

    assert not is_due(agent)

    jot(agent, "Dora came.")
    assert is_due(agent)


def test_such_a_note_is_not_offered_and_can_not_be_named(agent: Agent, clock: FakeClock) -> None:
    remember(agent, *(f"{LONG}{n}" for n in range(7)), f"{LONG}0, 1, 2")
    completed(agent, clock)
    told(agent, clock)
    notes = list(db.session.scalars(db.select(Memory.id).where(Memory.source.in_((Source.SYSTEM, Source.REFINEMENT)))))
    (mine,) = jot(agent, "Dora came.")
    assert len(notes) == 2

    client = look_back(agent, naming(*notes, mine))

    question = str(client.asked[0].messages[1]["content"])
    assert "Dora came." in question
    assert "Your journal: 1 entries" in question
    assert "I completed a refinement" not in question
    assert "changed my memories" not in question
    assert len(texts(agent, MemoryType.JOURNAL)) == 3, "an answer that names what was not shown counts for nothing"
