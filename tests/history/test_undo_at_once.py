"""Undo when others are at it too, and when its process dies: one effect, whole or none at all."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from types import NoneType

import pytest
from flask import Flask

from app.config import ROOT, Settings
from app.errors import Refused
from app.extensions import db
from app.history.plan import Target
from app.history.undo import ATTEMPTS, UndoResult, roll_back
from app.keys.agent_keys import open_keys
from app.models import COMMAND_LINE, Action, Agent, Refinement, Rollback, Status
from app.refinement.tool import RefinementTool
from tests.history.going_back import (
    consolidate,
    count_of,
    delete,
    entries_of,
    everything,
    just,
    protect,
    refined,
    status_of,
    undo,
    undoer_of,
    update,
)
from tests.refinement.driving import DONE, call, carry, say
from tests.refinement.test_races import at_once
from tests.support.factories import Running, begin, toggle
from tests.support.workers import environment_of

ROUNDS = 4


pytestmark = pytest.mark.usefixtures("sound", "nothing_missing")


def test_of_admins_who_click_at_once_one_undoes_and_all_are_told_which(
    app: Flask, agent: Agent, ids: list[int]
) -> None:
    before = just(agent, *ids)
    for round_ in range(1, ROUNDS + 1):
        refinement = refined(agent, update(ids[0], f"Round {round_}."), delete(ids[1], ids[9]))

        found = at_once(app, *[lambda number=refinement: undo_of(number)] * 4)

        assert [type(one) for one in found] == [UndoResult] * 4, found
        assert sorted(one.applied for one in found) == [False, False, False, True]
        assert {one.rollback.id for one in found} == {undoer_of(Refinement, refinement)}
        assert count_of(agent)[0] == round_
        assert just(agent, *ids) == before


def test_an_undo_and_a_rewind_at_once_leave_what_one_after_the_other_would(
    app: Flask, agent: Agent, ids: list[int]
) -> None:
    before = just(agent, *ids)
    for _ in range(ROUNDS):
        first = refined(agent, update(ids[0]))
        second = refined(agent, update(ids[0], "Short."), delete(ids[1], ids[9]))

        found = at_once(
            app,
            *[lambda number=second: undo_of(number)] * 2,
            *[lambda number=first: roll_back(Target.rewind(number), by=COMMAND_LINE)] * 2,
        )

        assert [type(one) for one in found] == [UndoResult] * 4, found
        assert just(agent, *ids) == before
        assert undoer_of(Refinement, first) is not None
        assert undoer_of(Refinement, second) is not None


def test_an_undo_and_its_undoing_at_once_take_turns(app: Flask, agent: Agent, ids: list[int]) -> None:
    before = just(agent, *ids)
    refinement = refined(agent, update(ids[0]))
    refined_to = just(agent, *ids)
    first = undo(refinement).rollback
    assert first is not None

    found = at_once(
        app, *[lambda: roll_back(Target.rollback(first.id), by=COMMAND_LINE)] * 2, *[lambda: undo_of(refinement)] * 2
    )

    assert [type(one) for one in found] == [UndoResult] * 4, found
    is_undone = undoer_of(Refinement, refinement) is not None
    assert just(agent, *ids) == (before if is_undone else refined_to)
    assert undoer_of(Rollback, first.id) is not None or count_of(agent)[0] > 1


def test_an_undo_and_a_running_refinement_at_once(app: Flask, agent: Agent, ids: list[int]) -> None:
    """Whoever comes first: either the change is taken back with the rest, or it is refused; never does it survive."""
    before = just(agent, *ids)
    for round_ in range(ROUNDS):
        run = begin(agent)
        run.tool.execute("update", id=ids[0], content=f"Round {round_}.")

        found = at_once(app, go_on(run, ids), lambda run=run: undo_of(run.refinement.id))

        assert isinstance(found[0], list), found
        assert isinstance(found[1], UndoResult), found
        assert sorted(found[0], key=lambda kind: kind == "error") == found[0], "nothing is done after the end"
        assert status_of(run.refinement.id) is Status.STOPPED
        assert just(agent, *ids) == before


def test_an_undo_a_refinement_that_starts_and_an_admin_at_once_break_nothing(
    app: Flask, agent: Agent, ids: list[int]
) -> None:
    """The new refinement may be ended by the undo, at any of its steps; whatever is refused is refused in words."""
    before = just(agent, *ids[:2])
    for round_ in range(ROUNDS):
        refinement = refined(agent, update(ids[0], f"Round {round_}."), delete(ids[1], ids[9]))

        found = at_once(
            app,
            lambda number=refinement: undo_of(number),
            lambda: process(agent.id, ids[2:4]),
            lambda number=ids[5 + round_]: toggle(db.session.get_one(Agent, agent.id), number),
        )

        assert [type(one) for one in found] == [UndoResult, str, NoneType], found
        assert found[1] in (Status.STOPPED, Status.COMPLETED)
        assert just(agent, *ids[:2]) == before
        assert everything(agent)[ids[5 + round_]]["constitutional"] is True


@pytest.fixture
def unseen(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[str]]:
    """The next `times` undos begin before the open refinement is there to be seen; returns what is locked, in order."""

    def start_late(times: int) -> list[str]:
        hidden, locked = [True, False] * times, []
        see, lock, lock_agent = Refinement.open_of, Refinement.lock, Agent.lock
        monkeypatch.setattr(Refinement, "open_of", lambda agent: None if hidden and hidden.pop(0) else see(agent))
        monkeypatch.setattr(Refinement, "lock", lambda number: locked.append("refinement") or lock(number))
        monkeypatch.setattr(Agent, "lock", lambda number: locked.append("agent") or lock_agent(number))
        return locked

    return start_late


def test_a_refinement_that_starts_before_the_agent_is_locked_is_locked_first_all_the_same(
    agent: Agent, ids: list[int], unseen: Callable[[int], list[str]]
) -> None:
    """Locks go refinement, agent: the other way round, two who lock could wait for each other for ever."""
    earlier = refined(agent, delete(ids[0], ids[9]))
    run = begin(agent)
    locked = unseen(1)

    undo(earlier)

    assert locked == ["agent", "refinement", "agent"]
    assert status_of(run.refinement.id) is Status.STOPPED


def test_where_refinements_keep_starting_nothing_is_undone_and_that_is_said(
    agent: Agent, ids: list[int], unseen: Callable[[int], list[str]]
) -> None:
    earlier = refined(agent, delete(ids[0], ids[9]))
    run = begin(agent)
    before = everything(agent)
    unseen(ATTEMPTS)

    with pytest.raises(Refused, match="Refinements kept starting"):
        undo(earlier)

    assert everything(agent) == before
    assert status_of(run.refinement.id) is Status.RUNNING


def undo_of(number: str) -> UndoResult:
    return roll_back(Target.refinement(number), by=COMMAND_LINE)


def go_on(run: Running, ids: list[int]) -> Callable[[], list[str]]:
    """More changes through the same claim, from another thread; what came of each."""

    def work() -> list[str]:
        tool = RefinementTool(run.claim, open_keys(db.session.get_one(Agent, run.agent.id)))
        calls = (delete(ids[1], ids[9]), update(ids[2]), protect(ids[3]), consolidate(ids[4], ids[5]))
        return [tool.execute(action, **arguments)["type"] for action, arguments in calls]

    return work


def process(agent_id: int, ids: list[int]) -> str:
    """A whole refinement in the real process; how it ended."""
    replies = (say("YES"), *(call("update_memory", id=number, content="Changed.") for number in ids), DONE)
    return carry(db.session.get_one(Agent, agent_id), *replies).status


DIES = """
import os, signal
from sqlalchemy import event
from app import Part, create_app
from app.config import load_settings
from app.extensions import db
from app.history.plan import Target
from app.history.undo import roll_back
from app.models import COMMAND_LINE

app = create_app(load_settings(), part=Part.COMMAND_LINE)
with app.app_context():
    event.listen(db.session, "{moment}", lambda session: os.kill(os.getpid(), signal.SIGKILL))
    roll_back(Target.{kind}("{number}"), by=COMMAND_LINE)
"""


def die(settings: Settings, *, moment: str, kind: str, number: str) -> None:
    """Roll back in a process that is killed at a moment of its transaction."""
    script = DIES.format(moment=moment, kind=kind, number=number)
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, env=environment_of(settings), cwd=ROOT, timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL


@pytest.mark.parametrize("kind", ["refinement", "rewind"])
def test_a_process_that_is_killed_before_it_commits_has_done_nothing(
    settings: Settings, agent: Agent, ids: list[int], kind: str
) -> None:
    before = just(agent, *ids)
    refinement = refined(agent, update(ids[0]), delete(ids[1], ids[9]), protect(ids[2]))
    after, counts = everything(agent), count_of(agent)

    die(settings, moment="before_commit", kind=kind, number=refinement)

    assert (everything(agent), count_of(agent)) == (after, counts)
    undo(Target.refinement(refinement) if kind == "refinement" else Target.rewind(refinement))
    assert just(agent, *ids) == before


def test_a_running_refinement_goes_on_when_the_process_that_would_end_it_is_killed(
    settings: Settings, agent: Agent, ids: list[int]
) -> None:
    run = begin(agent)
    run.tool.execute("delete", id=ids[0], carried_by=ids[9])

    die(settings, moment="before_commit", kind="refinement", number=run.refinement.id)

    assert run.tool.execute("delete", id=ids[1], carried_by=ids[9])["type"] == "deleted"
    assert entries_of(agent, Action.ROLLBACK) == []


def test_a_process_that_is_killed_once_it_has_committed_has_done_all_of_it(
    settings: Settings, agent: Agent, ids: list[int]
) -> None:
    before = just(agent, *ids)
    refinement = refined(agent, update(ids[0]), delete(ids[1], ids[9]))

    die(settings, moment="after_commit", kind="refinement", number=refinement)

    assert just(agent, *ids) == before
    assert not roll_back(Target.refinement(refinement), by=COMMAND_LINE).applied
    assert len(entries_of(agent, Action.ROLLBACK)) == 1
