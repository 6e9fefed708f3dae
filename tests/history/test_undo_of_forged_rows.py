"""Rows that somebody wrote past the application lead no undo to give back what a memory never was."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask

from app.extensions import db
from app.history.plan import Target, preview_plan
from app.history.undo import RollbackConflict, roll_back
from app.history.verify import verify
from app.models import COMMAND_LINE, Action, Agent
from app.models.state import STATE_FIELDS
from app.shapes.audit import PlanShape
from tests.history.going_back import (
    LONG,
    consolidate,
    count_entries,
    delete,
    do,
    entries_of,
    everything,
    refined,
    undo,
    update,
)
from tests.support.factories import begin, make_agent, remember
from tests.support.tampering import removed, rows, tamper

_STATE = "memory_id = :memory AND entry_id = :entry"
_RELINK = "UPDATE memory_states SET previous_entry_id ="


@pytest.fixture
def stranger(app: Flask) -> Agent:
    made = make_agent("stranger")
    remember(made, "A stranger's secret.", "Another one.")
    return made


@pytest.fixture
def refinement(agent: Agent, ids: list[int]) -> str:
    """The second one: it wrote the first memory twice, the next ones once, and made one of two."""
    refined(agent, update(ids[0], LONG + "Once."), update(ids[1], LONG + "Once."))
    return refined(
        agent,
        *(update(ids[0], LONG + "Twice."), update(ids[0], LONG + "Thrice."), update(ids[1], LONG + "Twice.")),
        *(delete(ids[2], carried_by=ids[9]), consolidate(*ids[3:5], content=f"{LONG}3, 4")),
    )


def written(number: int) -> list[int]:
    """The entries that wrote a memory, oldest first."""
    found = rows("SELECT entry_id FROM memory_states WHERE memory_id = :memory ORDER BY entry_id", memory=number)
    return [entry for (entry,) in found]


def now_of(agent_id: int) -> dict[int, dict[str, Any]]:
    """Every byte of an agent, whatever the session held of it."""
    return everything(db.session.get_one(Agent, agent_id))


def is_refused(target: Target, *altered: int) -> None:
    """Nothing is written, whole as it is; who asked is told which memories were altered, and `verify` finds it too."""
    before, entries = now_of(1), count_entries()
    plan = preview_plan(target)
    assert (plan.altered, set(altered) <= set(plan.conflicts)) == (altered, True)
    assert PlanShape.of(plan).as_json()["altered"] == [*altered]
    with pytest.raises(RollbackConflict, match="altered behind Whetstone's back") as refused:
        roll_back(target, by=COMMAND_LINE)
    db.session.rollback()
    assert ", ".join(map(str, altered)) in refused.value.sentence

    assert (now_of(1), count_entries()) == (before, entries)
    assert not verify().ok


BROKEN = {
    "names nothing before it": "NULL",
    "names what never was": "987654",
    "names an older one": "(SELECT min(entry_id) FROM memory_states WHERE memory_id = :memory)",
}


@pytest.mark.parametrize("named", BROKEN.values(), ids=BROKEN.keys())
@pytest.mark.parametrize(("which", "place"), [(0, 2), (0, 3), (1, 2)])
@pytest.mark.parametrize("is_rewind", [False, True])
def test_a_write_that_does_not_name_the_one_before_it(
    agent: Agent, ids: list[int], refinement: str, named: str, which: int, place: int, is_rewind: bool
) -> None:
    """The first of its two changes to a memory, the second, or the only one."""
    target = Target.rewind(refinement) if is_rewind else Target.refinement(refinement)
    first, genuine = written(ids[which])[place - 1 : place + 1]
    assert tamper(f"{_RELINK} {named} WHERE {_STATE}", memory=ids[which], entry=genuine) == 1

    is_refused(target, ids[which])

    tamper(f"{_RELINK} {first} WHERE {_STATE}", memory=ids[which], entry=genuine)
    assert roll_back(target, by=COMMAND_LINE).applied
    assert verify().ok


@pytest.mark.parametrize("place", [0, 1, 2, 3])
@pytest.mark.parametrize("is_rewind", [False, True])
def test_a_write_that_is_missing(agent: Agent, ids: list[int], refinement: str, place: int, is_rewind: bool) -> None:
    """The very first one, that before this refinement, or one of its own two."""
    if place == 0 and not is_rewind:
        pytest.skip("an undo does not look so far back")
    target = Target.rewind(refinement) if is_rewind else Target.refinement(refinement)
    entry = written(ids[0])[place]

    with removed("memory_states", f"memory_id = {ids[0]} AND entry_id = {entry}"):
        is_refused(target, ids[0])

    assert roll_back(target, by=COMMAND_LINE).applied
    assert verify().ok


def test_a_memory_whose_only_write_by_it_is_missing_is_left_alone(
    agent: Agent, ids: list[int], refinement: str
) -> None:
    before, entry = now_of(1)[ids[1]], written(ids[1])[2]

    with removed("memory_states", f"memory_id = {ids[1]} AND entry_id = {entry}"):
        done = undo(refinement)
        assert now_of(1)[ids[1]] == before
        assert not verify().ok

    assert ids[1] not in done.plan.memories


def test_a_memory_that_shows_an_older_write_than_its_last(agent: Agent, ids: list[int], refinement: str) -> None:
    """As if nobody had written it since: what was written since would be gone unseen."""
    refined(agent, update(ids[1], LONG + "Later."))
    *_, own, later = written(ids[1])
    tamper("UPDATE memories SET entry_id = :entry WHERE id = :memory", memory=ids[1], entry=own)

    is_refused(Target.refinement(refinement), ids[1])
    is_refused(Target.rewind(refinement), ids[1])

    tamper("UPDATE memories SET entry_id = :entry WHERE id = :memory", memory=ids[1], entry=later)
    assert roll_back(Target.rewind(refinement), by=COMMAND_LINE).applied
    assert verify().ok


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("whose", ["another", "stranger", "nobody"])
def test_a_state_with_a_text_that_is_not_its_own(
    agent: Agent, stranger: Agent, ids: list[int], refinement: str, which: int, whose: str
) -> None:
    source = {
        "another": f"(SELECT content_digest FROM memories WHERE id = {ids[8]})",
        "stranger": f"(SELECT content_digest FROM memories WHERE agent_id = {stranger.id} ORDER BY id LIMIT 1)",
        "nobody": "(SELECT hash FROM audit_log WHERE id = 1)",
    }[whose]
    before = written(ids[which])[1]
    ((digest,),) = rows(f"SELECT content_digest FROM memory_states WHERE {_STATE}", memory=ids[which], entry=before)
    forged = f"UPDATE memory_states SET content_digest = {source} WHERE {_STATE}"
    assert tamper(forged, memory=ids[which], entry=before) == 1

    is_refused(Target.refinement(refinement), ids[which])

    back = f"UPDATE memory_states SET content_digest = :digest WHERE {_STATE}"
    tamper(back, memory=ids[which], entry=before, digest=digest)
    undo(refinement)
    assert verify().ok


def test_what_of_a_state_was_altered_is_named_after_its_undo_as_before(
    agent: Agent, ids: list[int], refinement: str
) -> None:
    """Its own columns are the entry's hash to prove: an undo copies them, and proves nothing by it."""
    before = written(ids[1])[1]
    forged = f"UPDATE memory_states SET token_estimate = token_estimate + 1000 WHERE {_STATE}"
    tamper(forged, memory=ids[1], entry=before)
    problem = verify().first_problem
    assert problem is not None

    undo(refinement)

    assert verify().first_problem == problem


def test_what_a_stranger_s_entry_wrote_is_no_part_of_it(
    agent: Agent, stranger: Agent, ids: list[int], refinement: str
) -> None:
    before, elsewhere = everything(stranger), stranger.id
    (entry, *_) = entries_of(stranger, Action.CREATE)
    forged = "UPDATE audit_log SET refinement_id = :refinement WHERE id = :entry"
    assert tamper(forged, refinement=refinement, entry=entry) == 1

    done = undo(refinement)

    assert before.keys().isdisjoint(done.plan.memories)
    assert now_of(elsewhere) == before
    assert not verify(db.session.get_one(Agent, elsewhere)).ok


def test_nor_is_a_stranger_s_memory_that_its_own_entry_claims_to_have_written(
    agent: Agent, stranger: Agent, ids: list[int], refinement: str
) -> None:
    before, elsewhere = everything(stranger), stranger.id
    (entry,) = entries_of(agent, Action.REFINEMENT_DELETE)
    number = max(before)
    copied = ", ".join(STATE_FIELDS)
    forged = (
        f"INSERT INTO memory_states (memory_id, entry_id, previous_entry_id, {copied})"
        f" SELECT memory_id, :entry, entry_id, {copied} FROM memory_states WHERE memory_id = :memory"
    )
    assert tamper(forged, memory=number, entry=entry) == 1
    assert tamper("UPDATE memories SET entry_id = :entry WHERE id = :memory", memory=number, entry=entry) == 1

    done = undo(refinement)

    assert number not in done.plan.memories
    assert now_of(elsewhere) == before
    assert not verify(db.session.get_one(Agent, elsewhere)).ok


@pytest.mark.usefixtures("nothing_missing")
def test_a_guard_leaves_what_was_altered_and_takes_back_the_rest(agent: Agent, ids: list[int]) -> None:
    """A trip that failed for it would leave everything that was done."""
    before, run = everything(agent), begin(agent)
    for number in ids[:2]:
        assert do(run, update(number, LONG + "New."))["type"] == "updated"
    *_, last = written(ids[0])
    tamper(f"{_RELINK} NULL WHERE {_STATE}", memory=ids[0], entry=last)
    altered = now_of(1)[ids[0]]

    result = do(run, consolidate(*ids[2:9], content="Nothing."))

    assert result["type"] == "refinement_rolled_back", result
    now = now_of(1)
    assert now[ids[0]] == altered
    assert {number: now[number] for number in ids[1:]} == {number: before[number] for number in ids[1:]}
    assert not verify().ok
