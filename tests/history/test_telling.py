"""An agent is told what humans do to its memories, in a note that no rollback takes away: one a person and hour."""

from __future__ import annotations

import pytest
from flask import Flask
from sqlalchemy import delete, select, update

from app.extensions import db, writing
from app.history.plan import NothingToUndo, Target, preview_plan
from app.history.telling import find_acts_to_tell, tell_human_acts
from app.history.undo import roll_back
from app.history.verify import verify
from app.keys.agent_keys import open_keys
from app.keys.forgetting import forget_agent
from app.models import COMMAND_LINE, Action, Actor, ActorKind, Agent, AuditLog, HumanAct, Memory, MemoryType, Source
from tests.refinement.test_races import at_once
from tests.support.clock import FakeClock
from tests.support.factories import begin, import_lines, ledger, make_agent, promote, remember
from tests.support.tampering import as_owner, hash_anew

LONG = "On the third of May we promised each other to tell the truth, even when it is small and unwelcome. "
ANN = Actor(ActorKind.USER, "ann@example.org")
BOB = Actor(ActorKind.USER, "bob@example.org")


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent()
    remember(made, *(f"{LONG}{n}" for n in range(7)), f"{LONG}0, 7")
    return made


def refine(agent: Agent) -> str:
    run = begin(agent)
    run.tool.execute("delete", id=1, carried_by=8)
    run.tool.execute("complete", summary="Done.")
    return run.refinement.id


def toggle(agent: Agent, memory_id: int, *, by: Actor, on: bool = True) -> None:
    with writing():
        locked = Agent.lock(agent.id)
        memory = Memory.lock_core(locked, memory_id)
        (memory.protect if on else memory.release)(locked, by=by)


def bring(agent: Agent, line: str, by: Actor) -> None:
    import_lines(agent.id, [line], keys=open_keys(agent), by=by)


def tell_all() -> int:
    """The worker's minute; returns how many notes there were to write."""
    found = find_acts_to_tell()
    for agent_id, actor in found:
        tell_human_acts(agent_id, actor)
    return len(found)


def told(agent: Agent) -> list[str]:
    """The notes, as the agent reads them."""
    db.session.rollback()
    keys = open_keys(db.session.get_one(Agent, agent.id, populate_existing=True))
    query = Memory.active(agent.id, MemoryType.JOURNAL).where(Memory.source == Source.SYSTEM)
    return [keys.reveal_memory(note.id, note.content) for note in db.session.scalars(query)]


def test_each_act_of_a_human_is_told_in_words_and_numbers(agent: Agent, clock: FakeClock) -> None:
    refinement_id, first = refine(agent), clock.now()
    done = roll_back(Target.refinement(refinement_id), by=ANN).rollback
    assert done is not None
    roll_back(Target.rollback(done.id), by=ANN)
    clock.advance(minutes=12)
    toggle(agent, 2, by=ANN)
    toggle(agent, 3, by=ANN)
    toggle(agent, 3, by=ANN, on=False)
    bring(agent, '{"content": "New."}', ANN)
    roll_back(Target.rewind(refinement_id), by=ANN)
    last = clock.now()
    clock.advance(minutes=1)

    assert [tell_all(), tell_all()] == [1, 0]

    assert told(agent) == [
        "A human who runs this system, ann@example.org, changed my memories between "
        f"{first:%Y-%m-%d %H:%M} and {last:%H:%M} UTC: undid refinement {refinement_id} (2 memories restored, 1 "
        "removed); undid an earlier rollback (3 memories restored, 0 removed); made memories 2, 3 constitutional; took "
        "the constitutional flag off memory 3; imported 1 memory; rewound me to before refinement "
        f"{refinement_id} (2 memories restored, 1 removed)."
    ]
    assert verify().ok


def test_the_command_line_is_a_human_too_and_the_agent_itself_is_not(agent: Agent, clock: FakeClock) -> None:
    bring(agent, '{"content": "Mine."}', agent.as_actor)
    clock.advance(minutes=2)
    assert tell_all() == 0

    bring(agent, '{"content": "Not mine."}', COMMAND_LINE)
    clock.advance(minutes=1)

    assert tell_all() == 1
    assert told(agent)[0].startswith("Somebody at the command line of this system changed my memories on ")


def test_what_was_done_just_now_is_told_a_minute_later(agent: Agent, clock: FakeClock) -> None:
    toggle(agent, 2, by=ANN)
    clock.advance(seconds=59)
    assert tell_all() == 0
    clock.advance(seconds=1)
    assert tell_all() == 1


def test_it_is_one_note_a_person_and_hour_and_nothing_is_left_out(agent: Agent, clock: FakeClock) -> None:
    toggle(agent, 2, by=ANN)
    toggle(agent, 3, by=BOB)
    clock.advance(minutes=1)
    assert tell_all() == 2
    toggle(agent, 4, by=ANN)
    clock.advance(minutes=30)
    toggle(agent, 5, by=ANN)
    assert tell_all() == 0

    clock.advance(minutes=30)

    assert [tell_all(), tell_all()] == [1, 0]
    notes = told(agent)
    assert sorted(note.partition("@")[0][-3:] for note in notes) == ["ann", "ann", "bob"]
    assert "made memories 4, 5 constitutional" in notes[-1]
    assert verify().ok


@pytest.mark.parametrize("how", ["refinement", "rewind"])
def test_no_rollback_takes_such_a_note_away_or_stumbles_over_it(agent: Agent, clock: FakeClock, how: str) -> None:
    before = ledger(agent)
    refinement_id = refine(agent)
    toggle(agent, 5, by=ANN)
    clock.advance(minutes=1)
    assert tell_all() == 1
    after = told(agent)

    done = roll_back(getattr(Target, how)(refinement_id), by=ANN)

    assert done.applied
    assert told(agent) == after
    assert [row[:4] for row in ledger(agent)] == [row[:4] for row in before]


def test_the_entry_of_such_a_note_can_not_be_undone(agent: Agent, clock: FakeClock) -> None:
    toggle(agent, 2, by=ANN)
    clock.advance(minutes=1)
    tell_all()
    entry_id = db.session.scalars(select(AuditLog.id).where(AuditLog.action == Action.AGENT_TOLD)).one()

    for attempt in (preview_plan, lambda target: roll_back(target, by=ANN)):
        with pytest.raises(NothingToUndo, match="Such notes stay"):
            attempt(Target.entry(entry_id))

    assert len(told(agent)) == 1


@pytest.mark.usefixtures("nothing_missing")
def test_a_note_that_was_promoted_and_cut_comes_back_by_a_rewind(agent: Agent, clock: FakeClock) -> None:
    toggle(agent, 2, by=ANN)
    clock.advance(minutes=1)
    tell_all()
    note = db.session.scalars(select(Memory.id).where(Memory.source == Source.SYSTEM)).one()
    first = refine(agent)
    promote(agent, note)
    run = begin(agent)
    assert run.tool.execute("delete", id=note, carried_by=8)["type"] == "deleted"
    run.tool.execute("complete", summary="Done.")
    assert told(agent) == []

    roll_back(Target.rewind(first), by=ANN)

    assert len(told(agent)) == 1
    assert verify().ok


def test_an_undo_that_did_nothing_leaves_nothing_to_tell(agent: Agent, clock: FakeClock) -> None:
    refinement_id = refine(agent)
    roll_back(Target.refinement(refinement_id), by=ANN)
    roll_back(Target.refinement(refinement_id), by=BOB)
    clock.advance(minutes=1)

    assert tell_all() == 1
    assert "ann@example.org" in told(agent)[0]


def test_an_agent_forgotten_meanwhile_is_left_alone(agent: Agent, clock: FakeClock) -> None:
    toggle(agent, 2, by=ANN)
    clock.advance(minutes=1)
    (untold,) = find_acts_to_tell()
    forget_agent(agent.id, by=ANN)

    tell_human_acts(*untold)

    assert tell_all() == 0
    assert verify().ok


def test_four_workers_at_once_tell_once(app: Flask, agent: Agent, clock: FakeClock) -> None:
    toggle(agent, 2, by=ANN)
    clock.advance(minutes=1)
    (untold,) = find_acts_to_tell()

    assert at_once(app, *[lambda: tell_human_acts(*untold)] * 4) == [None] * 4

    assert len(told(agent)) == 1


def test_more_acts_than_fit_into_one_note_are_told_an_hour_later(agent: Agent, clock: FakeClock) -> None:
    for _ in range(105):
        toggle(agent, 2, by=ANN)
        toggle(agent, 2, by=ANN, on=False)
    clock.advance(minutes=1)
    assert [tell_all(), tell_all()] == [1, 0]
    clock.advance(hours=1)
    assert [tell_all(), tell_all()] == [1, 0]

    first, second = told(agent)

    assert (first.count("memory 2"), second.count("memory 2")) == (200, 10)
    assert first.endswith("memory 2.")


@pytest.mark.parametrize(
    "forge",
    [
        delete(HumanAct),
        update(HumanAct).values(actor="user:bob@example.org"),
        update(HumanAct).values(told_at=select(HumanAct.at).limit(1).scalar_subquery()),
    ],
)
def test_who_hides_an_act_from_the_agent_is_named_by_the_proof(agent: Agent, forge: object) -> None:
    toggle(agent, 2, by=ANN)
    assert verify().ok
    with as_owner() as connection:
        connection.execute(forge)  # type: ignore[call-overload]

    assert not verify().ok


def test_a_note_that_tells_of_nothing_real_is_named_by_the_proof(agent: Agent, clock: FakeClock) -> None:
    toggle(agent, 2, by=ANN)
    clock.advance(minutes=1)
    tell_all()
    forged = update(AuditLog).where(AuditLog.action == Action.AGENT_TOLD).values(data={"entries": [1], "journal": 9})
    with as_owner() as connection:
        connection.execute(forged)
    row = db.session.get_one(Agent, agent.id, populate_existing=True)
    db.session.expunge_all()
    hash_anew(row)

    verdict = verify()

    assert not verdict.ok
    assert "tells of what no human did" in (verdict.first_problem or "")
