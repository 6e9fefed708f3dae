"""What an agent writes to the admins is kept with its time; none replaces another, and the log can tell."""

from __future__ import annotations

import pytest
from flask import Flask
from sqlalchemy import delete, select, update

from app.extensions import db, writing
from app.history.verify import verify
from app.models import Action, Agent, AttentionItem, AuditLog, Event, Refinement
from app.shapes.refinement import RefinementShape
from tests.refinement.driving import LONG, carry
from tests.support.clock import FakeClock
from tests.support.factories import begin, make_agent, remember
from tests.support.rows import fresh
from tests.support.scripted import call, say
from tests.support.tampering import as_owner

DONE = call("complete_refinement", summary="I looked.", note_to_admins="The tea is cold.")


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent()
    remember(made, *(LONG + str(n) for n in range(8)))
    return made


def test_the_note_of_the_completion_does_not_replace_the_one_of_the_consent(agent: Agent, clock: FakeClock) -> None:
    row = carry(agent, say("YES\nTo admins: mind the step."), DONE).refinement
    said = RefinementShape.of(fresh(row)).as_json()

    assert [note["text"] for note in said["notes"]] == ["mind the step.", "The tea is cold."]
    assert all(note["at"].endswith("Z") for note in said["notes"])
    assert said["note_to_admins"] == "The tea is cold."
    assert verify().ok


def test_each_note_stands_in_the_log_as_its_agent_wrote_it(agent: Agent) -> None:
    row = carry(agent, say("YES\nTo admins: mind the step."), DONE).refinement
    entries = db.session.scalars(
        select(AuditLog).where(AuditLog.action == Action.NOTE_TO_ADMINS).order_by(AuditLog.id)
    ).all()

    assert [entry.data for entry in entries] == [{"text": "mind the step."}, {"text": "The tea is cold."}]
    assert {(entry.actor, entry.refinement_id) for entry in entries} == {(f"agent:{agent.name}", row.id)}


def test_no_event_holds_what_a_note_says(agent: Agent) -> None:
    carry(agent, say("YES\nTo admins: mind the stair."), DONE)

    events = db.session.scalars(select(Event)).all()

    assert sum(event.kind == "refinement.noted" for event in events) == 2
    assert not any("stair" in str(event.data) or "tea" in str(event.data) for event in events)


def test_a_note_at_the_end_is_kept_when_the_latch_trips_there(agent: Agent) -> None:
    run = begin(agent)
    with writing():
        Refinement.lock(run.refinement.id).kept_mass = 1
    result = run.tool.execute("complete", summary="Done.", note_to_admins="I cut too much.")

    assert result["type"] == "refinement_rolled_back"
    assert [note.text for note in run.reload().notes] == ["I cut too much."]


def test_a_refused_completion_leaves_no_note(agent: Agent) -> None:
    run = begin(agent)
    assert run.tool.execute("complete", summary=" ", note_to_admins="Hello.")["type"] == "error"
    assert run.tool.execute("complete", summary="Done.", note_to_admins=" ")["type"] == "refinement_complete"
    assert run.tool.execute("complete", summary="Done.", note_to_admins="Late.")["type"] == "error"

    assert run.reload().notes == []
    assert db.session.scalar(select(AttentionItem.id)) is None


@pytest.mark.parametrize(
    "forge",
    [
        update(AttentionItem).values(text="All is well."),
        update(AttentionItem).values(text=None),
        update(AttentionItem).values(kind="unfinished"),
        update(AttentionItem).values(refinement_id=None),
        update(AttentionItem).values(grant_id="8f1c3c5e-0000-4000-8000-000000000000"),
        update(AttentionItem).values(seen_by="user:ann@example.org"),
        update(AttentionItem).values(seen_at=select(AttentionItem.at).limit(1).scalar_subquery()),
        delete(AttentionItem),
    ],
)
def test_the_proof_names_a_note_that_was_edited_hidden_or_removed(agent: Agent, forge: object) -> None:
    carry(agent, say("YES"), DONE)
    assert verify().ok
    with as_owner() as connection:
        connection.execute(forge)  # type: ignore[call-overload]

    verdict = verify()

    assert not verdict.ok
    assert "attention" in (verdict.first_problem or "")
