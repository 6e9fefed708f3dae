"""What a guard reversed is final: no undo, redo or rewind ever shows it again; all else goes back and forth as ever."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select

from app.errors import Refused
from app.extensions import db, writing
from app.history.plan import GuardFinal, NothingToUndo, Target, preview_plan
from app.history.undo import RollbackConflict, roll_back
from app.models import (
    COMMAND_LINE,
    Action,
    Agent,
    AuditLog,
    Memory,
    MemoryState,
    MemoryType,
    Refinement,
    Rollback,
    Status,
)
from tests.history.going_back import (
    LONG,
    consolidate,
    count_of,
    delete,
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
)
from tests.support.clock import FakeClock
from tests.support.factories import begin, promote, remember, toggle
from tests.support.tampering import tamper

pytestmark = pytest.mark.usefixtures("sound", "nothing_missing")

GUARDED = (Action.REFINEMENT_UPDATE, Action.REFINEMENT_PROTECT, Action.REFINEMENT_DELETE, Action.REFINEMENT_CONSOLIDATE)
STATE = ("type", "content_digest", "token_estimate", "constitutional", "origin_at", "updated_at", "discarded_at")


def refuse(target: Target) -> GuardFinal:
    """It must be refused, in its preview too, and leave nothing behind."""
    assert preview_plan(target).final is not None
    db.session.rollback()
    with pytest.raises(GuardFinal) as refused:
        roll_back(target, by=COMMAND_LINE)
    db.session.rollback()
    return refused.value


def tripped(agent: Agent, ids: list[int], *, deduplicate: bool = False) -> str:
    """Changes of every kind, some of them twice, and then one too many."""
    calls = (
        update(ids[0], LONG + "Once."),
        update(ids[0], LONG + "Twice"),
        protect(ids[1]),
        consolidate(ids[2], ids[3], content=LONG * 2),
        consolidate(*ids[4:], content="Nothing."),
    )
    refinement = refined(agent, *calls, deduplicate=deduplicate)
    assert status_of(refinement) is Status.ROLLED_BACK
    return refinement


def reversal_of(agent: Agent) -> int:
    return entries_of(agent, Action.REFINEMENT_ROLLBACK)[-1]


def shown_again(agent: Agent) -> list[tuple[int, int]]:
    """Memories that are just as an operation of a reversed refinement had made them, and that operation's entry."""
    db.session.rollback()
    reversed_ = select(AuditLog.refinement_id).where(AuditLog.action == Action.REFINEMENT_ROLLBACK)
    rows = (
        select(Memory.id, MemoryState.entry_id)
        .join(MemoryState, MemoryState.memory_id == Memory.id)
        .join(AuditLog, AuditLog.id == MemoryState.entry_id)
        .where(Memory.agent_id == agent.id, AuditLog.refinement_id.in_(reversed_), AuditLog.action.in_(GUARDED))
        .where(*(getattr(Memory, name).is_not_distinct_from(getattr(MemoryState, name)) for name in STATE))
    )
    return list(db.session.execute(rows).tuples())


def test_the_reversal_can_not_be_undone(agent: Agent, ids: list[int]) -> None:
    refinement = tripped(agent, ids)
    before, counts = everything(agent), count_of(agent)

    refused = refuse(Target.entry(reversal_of(agent)))

    assert (refused.code, refused.http_status, refused.exit_status) == ("guard_final", 409, 3)
    assert refinement[:8] in refused.sentence
    assert "Only the agent can do that work again" in refused.sentence
    assert (everything(agent), count_of(agent)) == (before, counts)


def test_no_change_of_a_reversed_refinement_can_be_undone_by_itself_in_any_order(agent: Agent, ids: list[int]) -> None:
    tripped(agent, ids)
    entries = [number for action in GUARDED for number in entries_of(agent, action)]
    before, counts = everything(agent), count_of(agent)

    for number in (*entries, *reversed(entries)):
        refuse(Target.entry(number))

    assert len(entries) == 5
    assert (everything(agent), count_of(agent)) == (before, counts)


def test_a_reversed_refinement_without_duplicates_has_nothing_to_undo(agent: Agent, ids: list[int]) -> None:
    refinement = tripped(agent, ids)
    before, counts = everything(agent), count_of(agent)

    refuse(Target.refinement(refinement))

    assert (everything(agent), count_of(agent)) == (before, counts)
    assert undoer_of(Refinement, refinement) is None


def test_its_exact_duplicates_come_back_and_go_again_and_nothing_else_moves(agent: Agent, ids: list[int]) -> None:
    twins = remember(agent, "Tea.", "Tea.")
    refinement = tripped(agent, ids, deduplicate=True)
    without = everything(agent)

    done = undo(refinement)
    with_both = everything(agent)
    again = undo(Target.rollback(rollback_of(done)))

    changed = {number for number in with_both if number and with_both[number] != without[number]}
    assert changed == {*twins}, "not even the note that tells the agent of the guard"
    assert with_both[twins[1]]["discarded_at"] is None
    assert with_both[twins[0]]["other_dates"] == []
    assert everything(agent) == without
    assert undoer_of(Refinement, refinement) is None
    undo(Target.rollback(rollback_of(again)))
    assert everything(agent) == with_both


def test_a_rewind_across_it_goes_back_and_forth_byte_for_byte(agent: Agent, ids: list[int]) -> None:
    remember(agent, "Tea.", "Tea.")
    first = refined(agent, update(ids[9], LONG))
    tripped(agent, ids, deduplicate=True)
    last = refined(agent, update(ids[0], LONG + "Again."))
    after = everything(agent)

    for refinement in (first, last):
        there = undo(Target.rewind(refinement))
        back = everything(agent)
        undo(Target.rollback(rollback_of(there)))
        assert everything(agent) == after
        undo(Target.rewind(refinement))
        assert just(agent, *back) | {0: back[0]} == everything(agent)
        undo(Target.rollback(newest_rollback(agent)))
        assert shown_again(agent) == []
    refuse(Target.entry(reversal_of(agent)))


def newest_rollback(agent: Agent) -> str:
    db.session.rollback()
    query = select(Rollback.id).where(Rollback.agent_id == agent.id).order_by(Rollback.entry_id.desc())
    return db.session.scalars(query.limit(1)).one()


def test_what_the_agent_does_again_itself_is_its_own_and_can_be_undone(agent: Agent, ids: list[int]) -> None:
    tripped(agent, ids)
    before = everything(agent)
    second = refined(agent, update(ids[0], LONG + "Twice"), protect(ids[1]))
    after = everything(agent)
    done = undo(second)
    assert just(agent, *ids) == {number: before[number] for number in ids}
    undo(Target.rollback(rollback_of(done)))
    assert everything(agent) == after


def test_what_the_erosion_guard_reversed_is_as_final(app: Flask, agent: Agent, ids: list[int]) -> None:
    strict = {"erosion_floor": Decimal("0.9")}
    app.extensions["settings"] = app.extensions["settings"].model_copy(update=strict)
    run = begin(agent, braced=True)
    assert run.tool.execute("delete", id=ids[0], carried_by=ids[9])["type"] == "deleted"
    result = run.tool.execute("delete", id=ids[1], carried_by=ids[9])
    assert (result["type"], "erosion floor" in result["reason"]) == ("refinement_rolled_back", True)

    refuse(Target.entry(reversal_of(agent)))
    refuse(Target.refinement(run.refinement.id))


def test_a_flag_that_an_admin_set_between_is_no_way_back(agent: Agent, ids: list[int]) -> None:
    run = begin(agent)
    run.tool.execute("update", id=ids[0], content=LONG + "New..")
    toggle(agent, ids[0])
    run.tool.execute("consolidate", ids=ids[1:9], content="Nothing.")
    assert run.reload().status == Status.ROLLED_BACK
    flagged = entries_of(agent, Action.CONSTITUTIONAL_TOGGLE)[0]
    before = everything(agent)

    with pytest.raises((GuardFinal, RollbackConflict)):
        roll_back(Target.entry(flagged), by=COMMAND_LINE)

    assert everything(agent) == before
    assert before[ids[0]]["constitutional"]
    assert shown_again(agent) == []


def test_a_forged_way_back_is_refused_too(agent: Agent, ids: list[int]) -> None:
    """A rollback whose undo would copy what a guard reversed: whoever made it look so."""
    twins, number = remember(agent, "Tea.", "Tea."), agent.id
    refinement = tripped(agent, ids, deduplicate=True)
    done = rollback_of(undo(refinement))
    change, removal = entries_of(agent, Action.REFINEMENT_UPDATE)[0], entries_of(agent, Action.DEDUP)[0]
    forged = "UPDATE memory_states SET restores_entry_id = :restores WHERE memory_id = :memory AND entry_id = :entry"
    assert tamper(forged, restores=change, memory=twins[1], entry=removal) == 1

    refuse(Target.rollback(done))

    assert shown_again(db.session.get_one(Agent, number)) == []
    tamper(forged, restores=None, memory=twins[1], entry=removal)


def test_two_admins_at_once_bring_nothing_back(app: Flask, agent: Agent, ids: list[int]) -> None:
    remember(agent, "Tea.", "Tea.")
    refinement, reversal = tripped(agent, ids, deduplicate=True), reversal_of(agent)
    targets = [Target.entry(reversal), Target.refinement(refinement), Target.rewind(refinement)] * 4
    db.session.rollback()

    def press(target: Target) -> str:
        with app.app_context():
            try:
                return "applied" if roll_back(target, by=COMMAND_LINE).applied else "nothing"
            except Refused as error:
                return error.code
            finally:
                db.session.rollback()
                db.session.remove()

    with ThreadPoolExecutor(4) as pool:
        ends = list(pool.map(press, targets))

    assert [end for end, target in zip(ends, targets, strict=True) if target.kind == "entry"] == ["guard_final"] * 4
    assert set(ends) <= {"guard_final", "applied", "nothing", "rollback_conflict"}
    assert shown_again(agent) == []


@pytest.mark.parametrize("seed", range(4))
def test_twenty_acts_at_random_show_nothing_of_it(agent: Agent, ids: list[int], seed: int, clock: FakeClock) -> None:
    chance = random.Random(seed)
    (note,) = remember(agent, "A note.", type_=MemoryType.JOURNAL)
    remember(agent, "Tea.", "Tea.", tags=["ann"])
    refined(agent, update(ids[8], LONG), protect(ids[9]))
    with writing():
        Agent.lock(agent.id).change(by=COMMAND_LINE, refinement_threshold="0.8")
    tripped(agent, ids[:8], deduplicate=True)
    promote(agent, note)
    clock.advance(minutes=1)
    refined(agent, update(ids[0], LONG + "Later"), delete(ids[3], ids[9]))
    clock.advance(minutes=1)
    tripped(agent, [ids[0], ids[1], ids[2], *ids[4:8]])
    acts = list(_acts(agent, ids, chance))
    ends = []
    for _ in range(20):
        clock.advance(minutes=1)
        ends.append(chance.choice(acts)())
        assert shown_again(agent) == []
    assert {"applied", "guard_final"} <= set(ends)


def _acts(agent: Agent, ids: list[int], chance: random.Random) -> Iterator[Callable[[], str]]:
    def one_of(column: Any, make: Callable[[Any], Target], *conditions: Any) -> Callable[[], str]:
        def act() -> str:
            db.session.rollback()
            found = list(db.session.scalars(select(column).where(column.class_.agent_id == agent.id, *conditions)))
            return _try(make(chance.choice(found))) if found else "nothing"

        return act

    yield one_of(Refinement.id, Target.refinement)
    yield one_of(Refinement.id, Target.rewind)
    yield one_of(AuditLog.id, Target.entry)
    yield one_of(AuditLog.id, Target.entry, AuditLog.action.in_((*GUARDED, Action.REFINEMENT_ROLLBACK)))
    yield one_of(Rollback.id, Target.rollback)
    yield one_of(Rollback.id, Target.rollback)

    def flip() -> str:
        memory = db.session.get_one(Memory, chance.choice(ids), populate_existing=True)
        if memory.is_active:
            toggle(agent, memory.id, on=not memory.constitutional)
        return "toggled"

    yield flip


def _try(target: Target) -> str:
    try:
        return "applied" if roll_back(target, by=COMMAND_LINE).applied else "nothing"
    except (GuardFinal, RollbackConflict, NothingToUndo) as refused:
        return refused.code


def test_what_shows_again_would_be_seen(agent: Agent, ids: list[int]) -> None:
    """Put there by force, for a moment: a search that can't find anything proves nothing."""
    tripped(agent, ids)
    change, number = entries_of(agent, Action.REFINEMENT_UPDATE)[0], agent.id
    columns = ", ".join(STATE)
    put = "UPDATE memories SET ({}) = (SELECT {} FROM memory_states WHERE memory_id = :memory AND entry_id = :entry)"
    forced = put.format(columns, columns) + " WHERE id = :memory"
    tamper(forced, memory=ids[0], entry=change)
    assert shown_again(db.session.get_one(Agent, number)) == [(ids[0], change)]
    tamper(forced, memory=ids[0], entry=reversal_of(db.session.get_one(Agent, number)))
