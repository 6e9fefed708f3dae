"""What a refinement did can be seen for ever: by its events, and by the log once those are gone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from flask import Flask

from app.asking.calls import Dependencies
from app.extensions import db, writing
from app.history.steps import Step, steps_of
from app.llm.client import Reply
from app.models import COMMAND_LINE, Agent, Event, Mode, Refinement, Status, Trigger
from app.models.event import drop_old_events
from app.refinement.process import run_refinement
from app.refinement.start import request_stop, start_refinement
from tests.support.clock import FakeClock
from tests.support.factories import make_agent, remember
from tests.support.rows import fresh
from tests.support.scripted import ScriptedClient, ScriptedClients, call, calls, say

UNRECORDED = {"begun", "asked", "turn", "retried", "refused"}
"""Steps that no entry of the log tells."""

SUM = f"Memories number {', '.join(map(str, range(9)))}, of which there are really some."
"""Memory 24 says all that the first nine say."""
BOTH = "Memories number 2 and 3, of which there are really some."

DONE = call("complete_refinement", summary="Done.", note_to_admins="")


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent()
    remember(made, *(f"Memory number {number}, of which there are really some." for number in range(23)), SUM)
    remember(made, "Twice.", "Twice.", "Twice.", "And this too.", "And this too.")
    return made


def run(agent: Agent, *replies: Reply, mode: Mode = Mode.FULL) -> Refinement:
    started = start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE, mode=mode)
    run_refinement(started.id, Dependencies(ScriptedClients(ScriptedClient(*replies)), pause=lambda _: None))
    return fresh(started)


def told(steps: Sequence[Step]) -> list[tuple[str, dict[str, Any]]]:
    """What both ways tell; the log knows more of some steps."""
    names = ("trigger", "mode", "removed", "tokens", "granted", "asked", "mass", "threshold", "entry", "action", "id")
    names += ("sources", "carrier", "specifics", "retention", "status")
    kinds = [(step.name, step.data) for step in steps]
    return [
        (kind, {name: data[name] for name in names if name in data and (kind, name) != ("queued", "mass")})
        for kind, data in kinds
        if kind not in UNRECORDED
    ]


@pytest.mark.parametrize(
    ("replies", "end"),
    [
        (
            [
                say("YES"),
                calls(
                    ("delete_memory", {"id": 1, "carried_by": 24}),
                    ("delete_memory", {"id": 99, "carried_by": 24}),
                    ("update_memory", {"id": 2, "content": "Memory number 1, of which there are some."}),
                    ("consolidate_memories", {"ids": [3, 4], "content": BOTH}),
                    ("protect_memory", {"id": 5}),
                ),
                DONE,
            ],
            Status.COMPLETED,
        ),
        ([say("No.")], Status.DECLINED),
        (
            [
                say("YES"),
                calls(*(("delete_memory", {"id": number, "carried_by": 24}) for number in range(1, 10))),
                say("Oh."),
            ],
            Status.ROLLED_BACK,
        ),
    ],
)
def test_the_log_tells_the_steps_again_once_their_events_are_gone(
    agent: Agent, clock: FakeClock, replies: list[Reply], end: Status
) -> None:
    refinement = run(agent, *replies)
    assert refinement.status == end
    before = told(steps_of(refinement))
    assert [kind for kind, _ in before][:2] == ["queued", "deduplicated"]
    clock.advance(days=91)
    remember(agent, "A newer event.")

    assert drop_old_events() > 0
    again = steps_of(fresh(refinement))
    assert told(again) == before
    assert [step.at for step in again] == sorted(step.at for step in again)
    assert not db.session.new


def test_a_stop_and_a_run_without_a_model_are_told_again_too(agent: Agent, clock: FakeClock) -> None:
    stopped = start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE)
    request_stop(stopped.id, by=COMMAND_LINE)
    swept = run(agent, mode=Mode.DEDUP_ONLY)
    clock.advance(days=91)
    remember(agent, "A newer event.")
    drop_old_events()

    assert [kind for kind, _ in told(steps_of(fresh(stopped)))] == ["queued", "stop_requested", "ended"]
    assert told(steps_of(fresh(swept)))[1] == ("deduplicated", {"removed": 3, "tokens": 8})


def test_a_refinement_of_which_only_the_beginning_is_gone_is_told_by_the_log(agent: Agent, clock: FakeClock) -> None:
    refinement = run(agent, say("YES"), call("delete_memory", id=1, carried_by=24), DONE)
    whole = told(steps_of(refinement))
    events = list(db.session.scalars(db.select(Event.at).where(Event.refinement_id == refinement.id)))
    with writing():
        db.session.execute(db.delete(Event).where(Event.kind == "refinement.queued"))

    assert len(events) > len(whole)
    assert told(steps_of(fresh(refinement))) == whole
