"""Undo: what was taken back is byte for byte as it was before, whole or not at all, and can be undone itself."""

from __future__ import annotations

import json

import pytest
from flask import Flask
from sqlalchemy import select

from app.errors import NotFound
from app.extensions import db, writing
from app.history.plan import NothingToUndo, Target, preview_plan
from app.history.undo import roll_back
from app.keys.agent_keys import open_keys
from app.models import (
    COMMAND_LINE,
    Action,
    Agent,
    AuditLog,
    Event,
    MemoryType,
    Refinement,
    Rollback,
    RollbackKind,
    Status,
    Trigger,
)
from app.refinement.start import start_refinement
from app.shapes.audit import PlanShape
from tests.history.going_back import (
    LONG,
    Call,
    conflict_of,
    consolidate,
    count_of,
    deduplicated,
    delete,
    do,
    entries_of,
    everything,
    just,
    protect,
    refined,
    rollback_of,
    status_of,
    undo,
    undoer_of,
    update,
    written_by,
)
from tests.support.clock import FakeClock
from tests.support.factories import begin, import_lines, proceed, promote, remember, toggle

pytestmark = pytest.mark.usefixtures("sound")


def test_it_gives_back_every_byte_and_takes_away_what_was_new(agent: Agent, ids: list[int], clock: FakeClock) -> None:
    before = everything(agent)
    clock.advance(days=1)
    calls = (update(ids[0]), consolidate(ids[1], ids[2], content=LONG * 2), delete(ids[3], ids[9]), protect(ids[4]))
    refinement = refined(agent, *calls)
    clock.advance(days=3)

    done = undo(refinement)

    after = everything(agent)
    assert {number: after[number] for number in before} == before
    assert all(after[number]["discarded_at"] == clock.at for number in after.keys() - before.keys())
    assert (done.plan.restored, done.plan.removed, done.plan.conflicts) == (6, 2, ()), "new: merged, and the note"
    assert done.plan.mass_after == before[0]["mass"]
    assert undoer_of(Refinement, refinement) == rollback_of(done)


def test_the_undo_can_be_undone_and_that_again(agent: Agent, ids: list[int], clock: FakeClock) -> None:
    before = everything(agent)
    refinement = refined(agent, update(ids[0]), consolidate(ids[1], ids[2], content=LONG), protect(ids[4]))
    clock.advance(hours=1)
    refined_to = everything(agent)
    first = rollback_of(undo(refinement))
    clock.advance(hours=1)

    second = rollback_of(undo(Target.rollback(first)))
    assert everything(agent) == refined_to
    assert (undoer_of(Rollback, first), undoer_of(Refinement, refinement)) == (second, None)

    third = rollback_of(undo(Target.rollback(second)))
    assert just(agent, *before) | {0: everything(agent)[0]} == before
    assert (undoer_of(Rollback, first), undoer_of(Refinement, refinement)) == (None, third)


def test_rows_that_are_held_say_by_what_they_were_undone(agent: Agent, ids: list[int]) -> None:
    first, second = (refined(agent, update(number, "One.")) for number in ids[:2])
    held = [db.session.get_one(Refinement, each) for each in (first, second)]

    undone = roll_back(Target.refinement(first), by=COMMAND_LINE).rollback
    assert undone is not None
    assert [each.undone_by for each in held] == [undone.id, None]

    again = roll_back(Target.rollback(undone.id), by=COMMAND_LINE).rollback
    assert again is not None
    assert [each.undone_by for each in held] == [None, None]
    assert undone.undone_by == again.id


def test_the_entry_of_an_undo_stands_for_the_undo(agent: Agent, ids: list[int]) -> None:
    refinement = refined(agent, update(ids[0]), delete(ids[1], ids[9]))
    refined_to = everything(agent)
    first = rollback_of(undo(refinement))

    second = undo(Target.entry(entries_of(agent, Action.ROLLBACK)[0]))

    assert second.plan.kind == RollbackKind.ROLLBACK
    assert (undoer_of(Rollback, first), undoer_of(Refinement, refinement)) == (rollback_of(second), None)
    assert everything(agent) == refined_to


def test_the_same_undo_twice_has_one_effect(agent: Agent, ids: list[int]) -> None:
    refinement = refined(agent, update(ids[0]), delete(ids[1], ids[9]))
    first = undo(refinement)
    after, counts = everything(agent), count_of(agent)

    again = roll_back(Target.refinement(refinement), by=COMMAND_LINE)

    assert (again.applied, again.plan.changes) == (False, ())
    assert again.rollback is not None
    assert again.rollback.id == rollback_of(first)
    assert (everything(agent), count_of(agent)) == (after, counts)


def test_a_later_edit_of_the_same_memory_is_named_and_nothing_is_applied(agent: Agent, ids: list[int]) -> None:
    refinement = refined(agent, update(ids[0]), delete(ids[1], ids[9]))
    later = refined(agent, update(ids[0], "Short."))
    after, counts = everything(agent), count_of(agent)

    refused = conflict_of(refinement)

    assert (refused.plan.conflicts, refused.plan.later) == ((ids[0],), (later,))
    assert str(ids[0]) in refused.sentence
    assert "Short" not in refused.sentence
    assert (everything(agent), count_of(agent)) == (after, counts)


def test_two_refinements_of_one_memory_go_back_in_the_right_order_only(agent: Agent, ids: list[int]) -> None:
    before = just(agent, *ids)
    first = refined(agent, update(ids[0], "Once."))
    second = refined(agent, update(ids[0], "Twice."))

    assert conflict_of(first).plan.conflicts == (ids[0],)
    undo(second)
    undo(first)

    assert just(agent, *ids) == before


@pytest.mark.usefixtures("nothing_missing")
def test_a_later_refinement_that_the_latch_reversed_is_not_named_as_a_conflict(agent: Agent, ids: list[int]) -> None:
    first = refined(agent, update(ids[0]))
    reversed_ = refined(agent, update(ids[0], "Short."), consolidate(*ids[1:9]))
    assert status_of(reversed_) is Status.ROLLED_BACK
    later = refined(agent, update(ids[0], "Shortest."))

    refused = conflict_of(first)

    assert (refused.plan.conflicts, refused.plan.later) == ((ids[0],), (later,))


def test_a_protection_by_a_later_refinement_is_not_undone_with_what_was_done_before_it(
    agent: Agent, ids: list[int]
) -> None:
    first = refined(agent, update(ids[0]))
    later = refined(agent, protect(ids[0]))

    assert conflict_of(first).plan.later == (later,)

    assert just(agent, ids[0])[ids[0]]["constitutional"]


def test_what_an_admin_made_constitutional_since_stays_so(agent: Agent, ids: list[int]) -> None:
    before = just(agent, *ids)
    refinement = refined(agent, update(ids[0]))
    toggle(agent, ids[0])

    undo(refinement)

    assert just(agent, ids[0]) == {ids[0]: before[ids[0]] | {"constitutional": True}}


def test_a_new_memory_that_an_admin_made_constitutional_stays_and_is_listed(agent: Agent, ids: list[int]) -> None:
    before = just(agent, *ids)
    refinement = refined(agent, consolidate(ids[0], ids[1]))
    merged = max(written_by(entries_of(agent, Action.REFINEMENT_CONSOLIDATE)[0]))
    toggle(agent, merged)
    kept = just(agent, merged)

    done = undo(refinement)

    assert done.plan.stays == (merged,)
    assert just(agent, *ids, merged) == before | kept


def test_a_flag_that_an_admin_took_off_since_stays_off(agent: Agent, ids: list[int]) -> None:
    refinement = refined(agent, protect(ids[0]))
    toggle(agent, ids[0], on=False)

    undo(refinement)

    assert just(agent, ids[0])[ids[0]]["constitutional"] is False


def test_a_flag_that_an_admin_took_off_before_does_not_keep_a_protection_since(agent: Agent, ids: list[int]) -> None:
    toggle(agent, ids[0])
    toggle(agent, ids[0], on=False)
    refinement = refined(agent, update(ids[0], LONG), protect(ids[0]))

    undo(refinement)

    assert just(agent, ids[0])[ids[0]]["constitutional"] is False


def test_a_protection_by_the_refinement_goes_back(agent: Agent, ids: list[int]) -> None:
    before = just(agent, *ids)
    refinement = refined(agent, update(ids[0], LONG), protect(ids[0]), protect(ids[1]))

    undo(refinement)

    assert just(agent, *ids) == before


def test_a_flag_that_was_on_before_stays_on(agent: Agent, ids: list[int]) -> None:
    (copy,) = remember(agent, LONG + "0", constitutional=True, tags=["vow"])
    before = everything(agent)
    refinement = refined(agent, protect(ids[1]), deduplicate=True)
    assert just(agent, copy)[copy]["tags"] == ["tea", "vow"], "the keeper takes over the tags"

    undo(refinement)

    assert just(agent, *before) == {**before, 0: everything(agent)[0]}
    assert just(agent, copy)[copy]["constitutional"] is True


def test_a_source_that_was_restored_already_is_left_alone(agent: Agent, ids: list[int]) -> None:
    before = just(agent, *ids)
    refinement = refined(agent, consolidate(ids[0], ids[1]), update(ids[2]))
    undo(Target.entry(entries_of(agent, Action.REFINEMENT_CONSOLIDATE)[0]))
    assert just(agent, *ids[:2]) == {number: before[number] for number in ids[:2]}

    done = undo(refinement)

    assert just(agent, *ids) == before
    assert ids[2] in done.plan.memories
    assert not set(ids[:2]) & set(done.plan.memories)


def test_a_source_that_was_restored_and_changed_again_is_a_conflict(agent: Agent, ids: list[int]) -> None:
    refinement = refined(agent, consolidate(ids[0], ids[1]), update(ids[2]))
    undo(Target.entry(entries_of(agent, Action.REFINEMENT_CONSOLIDATE)[0]))
    refined(agent, update(ids[1]))

    assert conflict_of(refinement).plan.conflicts == (ids[1],)


def test_it_ends_a_running_refinement_whose_late_calls_then_do_nothing(agent: Agent, ids: list[int]) -> None:
    before = everything(agent)
    run = begin(agent)
    do(run, update(ids[0]))

    undo(run.refinement.id)

    assert status_of(run.refinement.id) is Status.STOPPED
    late: list[Call] = [("search", {"query": "May"}), ("complete", {"summary": "Late."})]
    for call in (update(ids[1]), delete(ids[1], ids[9]), protect(ids[1]), *late):
        assert "terminated" in do(run, call)["error"]
    assert everything(agent) == before


def test_a_refinement_that_only_waits_is_ended_too(agent: Agent, ids: list[int]) -> None:
    earlier = refined(agent, delete(ids[0], ids[9]))
    waiting = start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE).id

    undo(earlier)

    assert status_of(waiting) is Status.STOPPED


def test_one_that_has_changed_nothing_yet_is_ended_by_its_own_undo(agent: Agent, ids: list[int]) -> None:
    run = begin(agent)

    done = roll_back(Target.refinement(run.refinement.id), by=COMMAND_LINE)

    assert (done.applied, done.plan.stops) == (False, run.refinement.id)
    assert status_of(run.refinement.id) is Status.STOPPED


def test_a_conflict_lets_a_running_refinement_go_on(agent: Agent, ids: list[int]) -> None:
    earlier = refined(agent, update(ids[0], f"{LONG}0!"))
    run = begin(agent)
    do(run, delete(ids[0], ids[9]))

    assert conflict_of(earlier).plan.later == (run.refinement.id,)

    assert status_of(run.refinement.id) is Status.RUNNING
    assert do(run, delete(ids[1], ids[9]))["type"] == "deleted"


def test_an_import_is_taken_back_whole(agent: Agent, ids: list[int], clock: FakeClock) -> None:
    before = everything(agent)
    lines = [{"content": "One.", "constitutional": True}, {"content": "Two.", "type": "journal"}, {"content": "Three."}]
    import_lines(agent.id, map(json.dumps, lines), keys=open_keys(agent), by=COMMAND_LINE)
    entry = entries_of(agent, Action.IMPORT)[0]
    clock.advance(hours=1)

    done = undo(Target.entry(entry))

    assert done.plan.memories == tuple(written_by(entry))
    assert just(agent, *before) | {0: everything(agent)[0]} == before
    assert all(state["discarded_at"] == clock.at for state in just(agent, *written_by(entry)).values())


def test_an_import_that_was_refined_since_is_a_conflict(agent: Agent, ids: list[int]) -> None:
    import_lines(agent.id, ['{"content": "One of many."}'], keys=open_keys(agent), by=COMMAND_LINE)
    entry = entries_of(agent, Action.IMPORT)[0]
    refinement = refined(agent, update(written_by(entry)[0], "One."))

    assert conflict_of(Target.entry(entry)).plan.later == (refinement,)
    undo(refinement)
    undo(Target.entry(entry))


def test_one_entry_in_the_middle_of_a_refinement_goes_back_alone(agent: Agent, ids: list[int]) -> None:
    before = just(agent, *ids)
    refined(agent, update(ids[0]), delete(ids[1], ids[9]), update(ids[2]))
    refined_to = just(agent, *ids)

    undo(Target.entry(entries_of(agent, Action.REFINEMENT_DELETE)[0]))

    assert before[ids[9]] != refined_to[ids[9]], "it carries the dates of what was deleted"
    assert just(agent, *ids) == refined_to | {number: before[number] for number in (ids[1], ids[9])}


def test_a_saved_memory_and_a_promotion_and_a_toggle_go_back(agent: Agent, ids: list[int]) -> None:
    (note,) = remember(agent, "A note.", type_=MemoryType.JOURNAL)
    before = everything(agent)
    promote(agent, note)
    done = undo(Target.entry(entries_of(agent, Action.PROMOTE)[0]))
    assert everything(agent) == before
    assert done.plan.mass_after == before[0]["mass"]

    toggle(agent, ids[0])
    undo(Target.entry(entries_of(agent, Action.CONSTITUTIONAL_TOGGLE)[0]))
    assert everything(agent) == before

    undo(Target.entry(entries_of(agent, Action.CREATE)[-1]))
    assert just(agent, note)[note]["discarded_at"] is not None


@pytest.mark.usefixtures("nothing_missing")
def test_the_undo_of_a_refinement_that_the_latch_reversed_gives_back_what_dedup_removed(agent: Agent) -> None:
    ids = remember(agent, LONG, LONG + "\n", LONG * 9, "Tea.")
    before = just(agent, *ids)
    refinement = refined(agent, delete(ids[2], ids[0]), deduplicate=True)
    assert status_of(refinement) is Status.ROLLED_BACK
    assert just(agent, ids[1])[ids[1]]["discarded_at"] is not None, "what dedup removed stays removed"

    undo(refinement)

    assert just(agent, *ids) == before


@pytest.mark.usefixtures("nothing_missing")
def test_what_a_reversed_refinement_only_touched_is_no_conflict_later(agent: Agent) -> None:
    ids = remember(agent, LONG, LONG + "\n", LONG * 9, "Tea.")
    first = refined(agent, update(ids[3], "Tea?"), delete(ids[2], ids[0]), deduplicate=True)
    assert status_of(first) is Status.ROLLED_BACK
    refined(agent, update(ids[3], "Tea!"))
    later = just(agent, ids[3])

    undo(first)

    assert just(agent, ids[3]) == later
    assert just(agent, ids[1])[ids[1]]["discarded_at"] is None


def test_an_undone_dedup_gives_the_keeper_its_own_tags_back(agent: Agent) -> None:
    first, second = *remember(agent, LONG, tags=["ann"]), *remember(agent, LONG, tags=["voice"])
    before = everything(agent)
    refinement = deduplicated(agent)
    assert just(agent, first)[first]["tags"] == ["ann", "voice"]

    undo(refinement)

    assert everything(agent) == before
    assert refined(agent, delete(first, second)), "without the immutable tag it can be changed again"
    assert second in before


@pytest.mark.usefixtures("nothing_missing")
def test_what_the_latch_reversed_is_no_obstacle_to_what_was_done_since(agent: Agent, ids: list[int]) -> None:
    twins = remember(agent, LONG, LONG + "\n")
    tripped = refined(agent, consolidate(*ids[:9]), deduplicate=True)
    assert status_of(tripped) is Status.ROLLED_BACK
    refined(agent, update(ids[0]))
    after = just(agent, ids[0])

    undo(tripped)

    assert just(agent, ids[0]) == after
    assert all(state["discarded_at"] is None for state in just(agent, *twins).values())


def test_a_conflict_is_none_once_the_toggles_from_before_are_read(agent: Agent) -> None:
    """Its keeper was toggled after the start: the rewind names what was there before, the removal names the toggle."""
    keeper, twin = *remember(agent, LONG, tags=["ann"]), *remember(agent, LONG, tags=["voice"])
    queued = start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE)
    toggle(agent, keeper)
    proceed(queued, deduplicate=True).tool.execute("complete", summary="Nothing else.")
    (removal,) = entries_of(agent, Action.DEDUP)
    assert written_by(removal) == [keeper, twin]
    undo(Target.rewind(queued.id))
    before = everything(agent)

    done = roll_back(Target.entry(removal), by=COMMAND_LINE)

    assert (done.applied, done.plan.conflicts, done.plan.changes) == (False, (), ())
    assert everything(agent) == before


def test_a_flag_set_again_is_not_touched_by_the_undo_of_the_undo_that_cleared_it(agent: Agent, ids: list[int]) -> None:
    toggle(agent, ids[0])
    undo(Target.entry(entries_of(agent, Action.CONSTITUTIONAL_TOGGLE)[0]))
    toggle(agent, ids[0])
    before = everything(agent)

    done = roll_back(Target.entry(entries_of(agent, Action.ROLLBACK)[0]), by=COMMAND_LINE)

    assert list(done.plan.memories) == []
    assert everything(agent) == before


def test_a_preview_says_what_will_happen_and_writes_nothing(agent: Agent, ids: list[int]) -> None:
    refinement = refined(agent, update(ids[0]), consolidate(ids[1], ids[2]))
    after, counts = everything(agent), count_of(agent)

    plan = preview_plan(Target.refinement(refinement))

    assert (everything(agent), count_of(agent)) == (after, counts)
    assert PlanShape.of(plan) == PlanShape.of(undo(refinement).plan)
    assert (plan.mass_before, plan.mass_after) == (after[0]["mass"], everything(agent)[0]["mass"])


def test_one_entry_tells_of_it_without_content(agent: Agent, ids: list[int]) -> None:
    refinement = refined(agent, update(ids[0], "Xylophone."), delete(ids[1], ids[9]))

    done = undo(refinement)

    (number,) = entries_of(agent, Action.ROLLBACK)
    entry = db.session.get_one(AuditLog, number)
    events = [event.data for event in db.session.scalars(select(Event).where(Event.agent_id == agent.id))]
    assert (entry.actor, entry.data["rollback"]) == (str(COMMAND_LINE), rollback_of(done))
    assert (entry.data["restored"], entry.data["removed"]) == (3, 1)
    for said in (repr(done), json.dumps(entry.data), json.dumps(PlanShape.of(done.plan).as_json()), json.dumps(events)):
        assert "promised" not in said
        assert "Xylophone" not in said


def test_an_entry_that_changed_no_memory_is_refused(agent: Agent, ids: list[int]) -> None:
    with writing():
        Agent.lock(agent.id).change(by=COMMAND_LINE, core_token_budget=10)
    account_entry = db.session.scalar(select(AuditLog.id).where(AuditLog.agent_id.is_(None)).limit(1))
    counts = count_of(agent)

    for number in (entries_of(agent, Action.AGENT_SETTINGS_UPDATE)[0], account_entry):
        assert number is not None
        for way in (preview_plan, lambda target: roll_back(target, by=COMMAND_LINE)):
            with pytest.raises(NothingToUndo, match=f"Entry {number} changed no memory"):
                way(Target.entry(number))
    assert count_of(agent) == counts


@pytest.mark.parametrize(
    "target",
    [
        *(make("00000000-0000-4000-8000-000000000000") for make in (Target.refinement, Target.rollback, Target.rewind)),
        *(make(name) for make in (Target.refinement, Target.rollback, Target.rewind) for name in ("", "nonsense")),
        *(Target.entry(number) for number in (0, -1, 999_999, 2**63 - 1, 10**30)),
    ],
    ids=str,
)
def test_what_does_not_exist_is_not_found(app: Flask, target: Target) -> None:
    for way in (preview_plan, lambda target: roll_back(target, by=COMMAND_LINE)):
        with pytest.raises(NotFound):
            way(target)
