"""Few of a process's refinements work at a time, in their order; and none hangs because another one does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from flask import Flask

from app.asking.calls import Dependencies
from app.extensions import db, is_sqlite
from app.models import COMMAND_LINE, Agent, Refinement, Trigger
from app.refinement import process
from app.refinement.process import run_refinement
from app.refinement.start import start_refinement
from app.work_turns import WorkTurns, in_turn, waiting_elsewhere
from tests.refinement.driving import DONE, alike, call, carry, say
from tests.support.factories import make_agent, remember
from tests.support.processes import wait_for
from tests.support.scripted import Scripted, ScriptedClient, ScriptedClients
from tests.support.threads import begun


@pytest.fixture
def turns(app: Flask) -> WorkTurns:
    made: WorkTurns = app.extensions.setdefault("work_turns", WorkTurns(1, patience=20))
    return made


def queued(name: str) -> str:
    agent = make_agent(name)
    remember(agent, *alike(3))
    return start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE).id


def run(refinement_id: str, *replies: Scripted) -> None:
    run_refinement(refinement_id, Dependencies(ScriptedClients(ScriptedClient(*replies))))


def status_of(refinement_id: str) -> str:
    db.session.rollback()
    return str(db.session.get_one(Refinement, refinement_id, populate_existing=True).status)


def test_two_work_at_a_time_on_sqlite_and_four_beside_a_server(app: Flask) -> None:
    assert process._work_turns()._free == (2 if is_sqlite(db.session()) else 4)


def test_they_come_in_the_order_in_which_they_asked() -> None:
    turns, order, threads = WorkTurns(2), list[int](), list[threading.Thread]()
    assert turns.take()
    assert turns.take()
    for number in range(5):

        def work(number: int = number) -> None:
            assert turns.take()
            order.append(number)
            turns.pass_on()

        threads.append(threading.Thread(target=work))
        threads[-1].start()
        wait_for(lambda number=number: turns.waiting == number + 1)  # type: ignore[misc]
    assert order == []
    turns.pass_on()
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3, 4]
    turns.pass_on()
    assert turns.is_free


def test_never_more_than_so_many_have_one() -> None:
    turns, lock, now, most = WorkTurns(3), threading.Lock(), 0, 0

    def work() -> None:
        nonlocal now, most
        for _ in range(50):
            with in_turn(turns):
                with lock:
                    now += 1
                    most = max(most, now)
                time.sleep(0)
                with lock:
                    now -= 1
                with waiting_elsewhere():
                    time.sleep(0)

    threads = [threading.Thread(target=work) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 3
    assert (turns.waiting, turns.is_free) == (0, True)


def test_who_has_waited_too_long_goes_on_without_one_and_gives_none_back() -> None:
    turns = WorkTurns(1, patience=0.05)
    assert turns.take()
    with in_turn(turns):
        pass
    assert not turns.is_free
    turns.pass_on()
    assert turns.is_free


def test_a_turn_is_anothers_while_a_model_thinks(app: Flask, agent: Agent, turns: WorkTurns) -> None:
    remember(agent, *alike(3))
    other = queued("other")

    def think(_: object) -> object:
        assert turns.is_free
        thread = begun(app, lambda: run(other, say("YES"), DONE))
        thread.join()
        assert status_of(other) == "completed"
        db.session.rollback()
        return say("YES")

    assert carry(agent, think, DONE).status == "completed"  # type: ignore[arg-type]
    assert turns.is_free


def test_a_refinement_waits_for_its_turn_and_stays_queued_until_then(app: Flask, turns: WorkTurns) -> None:
    refinement_id = queued("wren")
    assert turns.take()
    thread = begun(app, lambda: run(refinement_id, say("YES"), DONE))
    wait_for(lambda: turns.waiting == 1)
    assert status_of(refinement_id) == "queued"
    turns.pass_on()
    thread.join()
    assert status_of(refinement_id) == "completed"
    assert turns.is_free


def test_a_reply_is_dealt_with_in_turn(app: Flask, turns: WorkTurns) -> None:
    refinement_id, answered = queued("wren"), threading.Event()

    def think(_: object) -> object:
        assert turns.take()
        answered.set()
        return say("YES")

    thread = begun(app, lambda: run(refinement_id, think, DONE))  # type: ignore[arg-type]
    assert answered.wait(20)
    wait_for(lambda: turns.waiting == 1)
    assert status_of(refinement_id) == "asking"
    turns.pass_on()
    thread.join()
    assert status_of(refinement_id) == "completed"


def test_however_it_ends_its_turn_is_given_back(agent: Agent, turns: WorkTurns) -> None:
    ids = remember(agent, *alike(3))

    def fail(_: object) -> object:
        raise RuntimeError("odd")

    with pytest.raises(RuntimeError, match="odd"):
        carry(agent, say("YES"), call("delete_memory", id=ids[0], carried_by=ids[1]), fail)  # type: ignore[arg-type]
    assert turns.is_free
    run_refinement("nobody", Dependencies(ScriptedClients(ScriptedClient())))
    assert turns.is_free


def test_a_full_disk_holds_up_nobody_else(agent: Agent, turns: WorkTurns, monkeypatch: pytest.MonkeyPatch) -> None:
    remember(agent, *alike(3))
    tried = process._Process._try_to_end
    has_room, was_free = iter([False, False, True]), []

    def try_to_end(self: process._Process, end: Callable[[Refinement, Agent], None]) -> bool:
        return next(has_room) and tried(self, end)

    monkeypatch.setattr(process._Process, "_try_to_end", try_to_end)
    refinement = start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE)
    client = ScriptedClient(say("YES"), say("Hm."), say("Hm."))
    pauses = Dependencies(ScriptedClients(client), pause=lambda _: was_free.append(turns.is_free))
    run_refinement(refinement.id, pauses)
    assert was_free == [True, True]
    assert status_of(refinement.id) == "unfinished"
    assert turns.is_free
