"""What one write comes to is what the rule finds in its trace; who else wrote a memory is read where somebody did."""

from __future__ import annotations

from itertools import product

import pytest

from app.extensions import writing
from app.history.trace import PresentMemory, RecordedState
from app.history.undo_case import UndoCase
from app.models import COMMAND_LINE, Action, Agent, Memory, MemoryType, record
from app.models.state import NO_EARLIER_STATE
from tests.history.going_back import just, refined, undo, update
from tests.support.factories import toggle

BEFORE, WRITE = 5, 8
STATES = [
    None,
    *(
        RecordedState(1, BEFORE, restores, "[]", flag, True, MemoryType.CORE, 9)
        for restores in (None, 3)
        for flag in (False, True)
    ),
]
MEMORIES = [
    PresentMemory(1, WRITE, False, flag, is_active, MemoryType.CORE, 9, False)
    for flag in (False, True)
    for is_active in (False, True)
]


@pytest.mark.parametrize("action", [Action.CONSTITUTIONAL_TOGGLE, Action.DEDUP, Action.ROLLBACK])
@pytest.mark.parametrize("restores", [None, NO_EARLIER_STATE, 3, BEFORE, 4])
def test_one_write_is_judged_as_its_trace_is(action: Action, restores: int | None) -> None:
    for before, memory in product(STATES, MEMORIES):
        row = (1, WRITE, before and BEFORE, restores, *[None] * 5, memory.constitutional << 9)
        case = UndoCase(memory, before, [row], {WRITE: (action, None)}, is_theirs_alone=True)

        assert case.decision() is case.decision_by_trace(), case


def test_a_flag_that_an_admin_set_between_two_of_its_writes_stays(agent: Agent, ids: list[int]) -> None:
    before = just(agent, ids[0])
    refinement = refined(agent, update(ids[0]))
    toggle(agent, ids[0])
    with writing():
        locked = Agent.lock(agent.id)
        memory = Memory.lock_core(locked, ids[0])
        memory.become(locked, version=memory.version + 1)
        record(Action.REFINEMENT_UPDATE, actor=COMMAND_LINE, of=locked, refinement_id=refinement, memories=[memory])

    undo(refinement)

    assert just(agent, ids[0]) == {ids[0]: before[ids[0]] | {"constitutional": True}}
