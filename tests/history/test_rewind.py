"""Rewind: as if no refinement had run since; what the agent, an import or an admin did since stays."""

from __future__ import annotations

import json

import pytest

from app.history.plan import Target
from app.history.undo import roll_back
from app.keys.agent_keys import open_keys
from app.models import COMMAND_LINE, Action, Agent, MemoryType, Refinement, Rollback, Status
from tests.history.going_back import (
    LONG,
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
from tests.support.factories import begin, import_lines, make_agent, promote, remember, toggle

pytestmark = pytest.mark.usefixtures("sound")


def test_it_goes_back_over_several_refinements_and_keeps_what_else_was_done(
    agent: Agent, ids: list[int], clock: FakeClock
) -> None:
    before = just(agent, *ids)
    first = refined(agent, update(ids[0]), consolidate(ids[1], ids[2], content=LONG))
    clock.advance(days=1)
    saved = remember(agent, "Saved since.")
    import_lines(agent.id, ['{"content": "Brought since."}'], keys=open_keys(agent), by=COMMAND_LINE)
    brought = written_by(entries_of(agent, Action.IMPORT)[0])
    toggle(agent, ids[5])
    clock.advance(days=1)
    second = refined(agent, update(ids[0], "Short."), protect(ids[6]), update(saved[0], "Save."))
    deduplicated(agent)
    clock.advance(days=1)
    kept = just(agent, *brought, ids[5])

    done = undo(Target.rewind(first))

    now = everything(agent)
    assert just(agent, *ids, *brought) == before | kept
    assert now[saved[0]]["version"] == 1
    made = now.keys() - {0, *ids, *brought, *saved}
    assert all(now[number]["discarded_at"] == clock.at for number in made)
    assert {first, second} <= set(done.plan.later)
    assert {undoer_of(Refinement, number) for number in (first, second)} == {rollback_of(done)}


def test_it_needs_no_undo_in_the_right_order(agent: Agent, ids: list[int]) -> None:
    before = just(agent, *ids)
    first = refined(agent, update(ids[0], "Once."))
    second = refined(agent, update(ids[0], "Twice."))
    assert conflict_of(first).plan.later == (second,)

    undo(Target.rewind(first))

    assert just(agent, *ids) == before


def test_it_can_be_undone_byte_for_byte(agent: Agent, ids: list[int], clock: FakeClock) -> None:
    first = refined(agent, update(ids[0]), delete(ids[1], ids[9]))
    second = refined(agent, consolidate(ids[0], ids[2], content="Both."), protect(ids[3]))
    refined_to = everything(agent)
    clock.advance(days=1)
    rewind = rollback_of(undo(Target.rewind(first)))
    rewound = everything(agent)
    clock.advance(days=1)

    back = undo(Target.rollback(rewind))

    assert everything(agent) == refined_to
    assert {undoer_of(Refinement, number) for number in (first, second)} == {None}
    assert undoer_of(Rollback, rewind) == rollback_of(back)
    undo(Target.rollback(rollback_of(back)))
    assert everything(agent) == rewound


def test_a_refinement_that_was_undone_before_stays_undone_when_the_rewind_is_undone(
    agent: Agent, ids: list[int]
) -> None:
    first = refined(agent, update(ids[0]))
    undoer = rollback_of(undo(first))
    second = refined(agent, update(ids[1]))
    rewind = undo(Target.rewind(first))
    assert rewind.plan.later == (second,)
    assert undoer_of(Refinement, first) == undoer

    undo(Target.rollback(rollback_of(rewind)))

    assert (undoer_of(Refinement, first), undoer_of(Refinement, second)) == (undoer, None)


def test_twice_the_same_rewind_has_one_effect(agent: Agent, ids: list[int]) -> None:
    undo(refined(agent, update(ids[0])))
    refinement = refined(agent, update(ids[0], "Short."))
    undo(Target.rewind(refinement))
    after, counts = everything(agent), count_of(agent)

    again = roll_back(Target.rewind(refinement), by=COMMAND_LINE)

    assert (again.applied, again.plan.changes) == (False, ())
    assert (everything(agent), count_of(agent)) == (after, counts)


def test_a_toggle_alone_is_no_difference(agent: Agent, ids: list[int]) -> None:
    refinement = refined(agent, delete(ids[0], ids[9]))
    toggle(agent, ids[1])
    toggled = just(agent, ids[1])

    done = undo(Target.rewind(refinement))

    assert ids[1] not in done.plan.memories
    assert just(agent, ids[1]) == toggled


def test_a_memory_that_it_takes_back_keeps_the_flag_that_an_admin_set_since(agent: Agent, ids: list[int]) -> None:
    before = just(agent, ids[0])
    refinement = refined(agent, update(ids[0]))
    toggle(agent, ids[0])

    undo(Target.rewind(refinement))

    assert just(agent, ids[0]) == {ids[0]: before[ids[0]] | {"constitutional": True}}


def test_a_new_memory_that_an_admin_made_constitutional_stays_and_is_listed(agent: Agent, ids: list[int]) -> None:
    before = just(agent, *ids)
    refinement = refined(agent, consolidate(ids[0], ids[1]))
    merged = max(written_by(entries_of(agent, Action.REFINEMENT_CONSOLIDATE)[0]))
    toggle(agent, merged)
    kept = just(agent, merged)

    done = undo(Target.rewind(refinement))

    assert done.plan.stays == (merged,)
    assert just(agent, *ids, merged) == before | kept


def test_a_promotion_since_goes_back_with_the_rest(agent: Agent, ids: list[int]) -> None:
    (note,) = remember(agent, "A note.", type_=MemoryType.JOURNAL)
    before = just(agent, note)
    refinement = refined(agent, delete(ids[0], ids[9]))
    promote(agent, note)

    undo(Target.rewind(refinement))

    assert just(agent, note) == before


def test_the_undo_of_something_older_stays(agent: Agent, ids: list[int]) -> None:
    original = just(agent, *ids)
    older = refined(agent, update(ids[0]))
    refinement = refined(agent, delete(ids[1], ids[9]))
    undo(older)

    undo(Target.rewind(refinement))

    assert just(agent, *ids) == original


def test_the_undo_of_something_older_stays_though_the_memory_was_refined_since(agent: Agent, ids: list[int]) -> None:
    before = just(agent, ids[0])
    older = refined(agent, update(ids[0]))
    first = refined(agent, update(ids[1]))
    undo(older)
    refined(agent, update(ids[0], "Short."))

    undo(Target.rewind(first))

    assert just(agent, ids[0]) == before


def test_the_undo_of_an_import_since_stays(agent: Agent, ids: list[int]) -> None:
    refinement = refined(agent, delete(ids[0], ids[9]))
    import_lines(agent.id, [json.dumps({"content": "Wrong."})], keys=open_keys(agent), by=COMMAND_LINE)
    entry = entries_of(agent, Action.IMPORT)[0]
    undo(Target.entry(entry))
    gone = just(agent, *written_by(entry))

    undo(Target.rewind(refinement))

    assert just(agent, *written_by(entry)) == gone


def test_what_was_undone_already_and_done_again_goes_back_all_the_same(agent: Agent, ids: list[int]) -> None:
    before = just(agent, *ids)
    refinement = refined(agent, update(ids[0]))
    first = rollback_of(undo(refinement))
    undo(Target.rollback(first))

    undo(Target.rewind(refinement))

    assert just(agent, *ids) == before


def test_it_ends_a_running_refinement(agent: Agent, ids: list[int]) -> None:
    before = just(agent, *ids)
    run = begin(agent)
    do(run, update(ids[0]))

    undo(Target.rewind(run.refinement.id))

    assert status_of(run.refinement.id) is Status.STOPPED
    assert "terminated" in do(run, delete(ids[0], ids[9]))["error"]
    assert just(agent, *ids) == before


def test_nothing_leaks_to_another_agent(agent: Agent, ids: list[int]) -> None:
    other = make_agent("other", refinement_threshold="0.5")
    others = remember(other, *(f"{LONG}{number}" for number in range(8)), LONG, LONG + "0, 9")
    refinement = refined(agent, delete(ids[0], ids[9]))
    refined(other, delete(others[0], others[9]))
    untouched = everything(other)

    undo(Target.rewind(refinement))

    assert everything(other) == untouched
