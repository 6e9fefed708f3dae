"""Races with real threads on a real database: one winner, no error, nothing lost, nothing after the end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask

from app.asking.calls import Dependencies
from app.errors import Refused
from app.extensions import db, writing
from app.keys.agent_keys import open_keys
from app.models import COMMAND_LINE, Agent, AuditLog, Memory, Refinement, Status, Trigger
from app.refinement.process import run_refinement
from app.refinement.start import AlreadyRunning, request_stop, start_refinement
from app.refinement.tool import RefinementTool
from tests.refinement.driving import DONE, LONG, say
from tests.support.factories import Running, begin, ledger, make_agent, remember
from tests.support.scripted import ScriptedClient, ScriptedClients

LONG_RUN = bool(os.environ.get("WHETSTONE_LONG"))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(0 if LONG_RUN else 300), pytest.mark.usefixtures("nothing_missing")]
"""Many changes at once are what is looked at here, whatever the texts say."""

ROUNDS = 200 if LONG_RUN else 4
CHANGES = {"memory_refinement_consolidate", "memory_refinement_update", "memory_refinement_delete"}


def at_once(app: Flask, *jobs: Callable[[], Any]) -> list[Any]:
    """Run each job in a thread and an app context of its own, all begun together; their results or exceptions."""
    barrier, found = threading.Barrier(len(jobs)), [None] * len(jobs)

    def work(number: int, job: Callable[[], Any]) -> None:
        with app.app_context():
            barrier.wait(10)
            try:
                found[number] = job()
            except Exception as error:  # noqa: BLE001 - the test looks at it
                found[number] = error  # type: ignore[call-overload]
            finally:
                db.session.remove()

    threads = [threading.Thread(target=work, args=pair, daemon=True) for pair in enumerate(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    db.session.rollback()
    return found


def actions(agent: Agent) -> list[str]:
    query = db.select(AuditLog.action).where(AuditLog.agent_id == agent.id).order_by(AuditLog.sequence)
    return [str(action) for action in db.session.scalars(query)]


def close(run: Running) -> None:
    with writing():
        Refinement.lock(run.refinement.id).end(Agent.lock(run.agent.id), Status.INTERRUPTED)


def test_of_starts_at_once_one_wins_and_the_others_are_told(app: Flask, agent: Agent) -> None:
    remember(agent, "Ann likes tea.")
    for round_ in range(ROUNDS):
        found = at_once(app, *[lambda: start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE).id] * 4)
        won = [one for one in found if isinstance(one, str)]
        lost = [one for one in found if isinstance(one, AlreadyRunning)]
        assert (len(won), len(lost)) == (1, 3), found
        assert {one.refinement_id for one in lost} == set(won)
        assert db.session.scalar(db.select(db.func.count(Refinement.id))) == round_ + 1
        request_stop(won[0], by=COMMAND_LINE)


def test_of_workers_at_once_one_carries_it(app: Flask, agent: Agent) -> None:
    remember(agent, "Ann likes tea.")
    for _ in range(ROUNDS):
        row = start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE)
        clients = [ScriptedClients(ScriptedClient(say("YES"), DONE)) for _ in range(3)]
        found = at_once(app, *[lambda v=v, number=row.id: run_refinement(number, Dependencies(v)) for v in clients])
        assert found == [None] * 3
        assert sorted(len(v.made) for v in clients) == [0, 0, 1]
        assert db.session.get_one(Refinement, row.id, populate_existing=True).status == "completed"


def hammer(run: Running, ids: list[int], seed: int) -> Callable[[], list[dict[str, Any]]]:
    """Calls of every kind through the same claim, each thread in another order."""

    def work() -> list[dict[str, Any]]:
        tool = RefinementTool(run.claim, open_keys(db.session.get_one(Agent, run.agent.id)))
        results = []
        for step in range(6):
            one, other = ids[(seed * 7 + step * 3) % len(ids)], ids[(seed * 5 + step * 11 + 1) % len(ids)]
            wanted: dict[str, dict[str, Any]] = {
                "update": {"id": one, "content": f"{LONG}{seed}.{step}"},
                "consolidate": {"ids": [one, other], "content": LONG * 2},
                "delete": {"id": other, "carried_by": one},
                "protect": {"id": ids[seed % 3]},
                "search": {"query": "promised"},
            }
            action = list(wanted)[(seed + step) % 5]
            results.append(tool.execute(action, **wanted[action]))
        return results

    return work


def test_eight_threads_a_stop_and_a_writer_break_nothing(app: Flask) -> None:
    for round_ in range(ROUNDS):
        agent = make_agent(f"agent {round_}")
        ids = remember(agent, *(f"{LONG} {n}" for n in range(60)))
        run = begin(agent)

        def stop(run: Running = run) -> None:
            while db.session.scalar(db.select(Refinement.mutations).where(Refinement.id == run.refinement.id)) == 0:
                db.session.rollback()
            db.session.rollback()
            request_stop(run.refinement.id, by=COMMAND_LINE)

        def write(agent: Agent = agent) -> None:
            for n in range(4):
                remember(agent, f"Saved meanwhile {n}.")

        found = at_once(app, *[hammer(run, ids, seed) for seed in range(8)], stop, write)
        assert not [one for one in found if isinstance(one, Exception)], found
        done = actions(agent)
        stopped_at = done.index("memory_refinement_stop_requested")
        assert not CHANGES & set(done[stopped_at:])
        results = [result for one in found[:8] for result in one]
        made = sum(result["type"] in ("consolidated", "updated", "deleted") for result in results)
        assert run.reload().mutations == made == sum(action in CHANGES for action in done) <= 10
        close(run)


def test_the_cap_holds_against_eight_threads_that_each_want_ten(app: Flask, agent: Agent) -> None:
    ids = remember(agent, *(f"{LONG} {n}" for n in range(100)))
    run = begin(agent)

    def delete_ten(seed: int) -> Callable[[], list[str]]:
        def work() -> list[str]:
            tool = RefinementTool(run.claim, run.tool._keys)
            return [
                str(tool.execute("delete", id=one, carried_by=ids[-1])["type"])
                for one in ids[seed * 10 : seed * 10 + 10]
            ]

        return work

    found = at_once(app, *map(delete_ten, range(8)))
    kinds = [kind for one in found for kind in one]
    assert (kinds.count("deleted"), kinds.count("error")) == (10, 70)
    assert (run.reload().mutations, len(ledger(agent))) == (10, 90)
    close(run)


def test_a_trip_among_parallel_calls_reverses_all_and_ends_all(app: Flask) -> None:
    for round_ in range(ROUNDS):
        agent = make_agent(f"agent {round_}")
        ids = remember(agent, *(f"{LONG} {n}" for n in range(16)))
        run, before = begin(agent), ledger(agent)

        def delete(one: int, run: Running = run, last: int = ids[-1]) -> Callable[[], str]:
            return lambda: str(
                RefinementTool(run.claim, run.tool._keys).execute("delete", id=one, carried_by=last)["type"]
            )

        found = at_once(app, *map(delete, ids[:8]))
        assert sorted(found) == ["deleted"] * 4 + ["error"] * 3 + ["refinement_rolled_back"]
        assert (run.reload().status, ledger(agent)) == ("rolled_back", before)


def test_a_flag_is_not_taken_back_between_a_start_and_its_end(app: Flask, agent: Agent) -> None:
    (number,) = remember(agent, "We never lie.", constitutional=True)
    remember(agent, "Ann likes tea.")

    def take_back() -> None:
        with writing():
            locked = Agent.lock(agent.id)
            Memory.lock_core(locked, number).release(locked, by=COMMAND_LINE)

    for _ in range(ROUNDS * 2):
        started, released = at_once(
            app, lambda: start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE).id, take_back
        )
        assert released is None or isinstance(released, Refused)
        is_constitutional = db.session.get_one(Memory, number, populate_existing=True).constitutional
        assert is_constitutional == (released is not None)
        done = actions(agent)
        last_start = len(done) - 1 - done[::-1].index("memory_refinement_start")
        assert "memory_constitutional_toggle" not in done[last_start:]
        request_stop(started, by=COMMAND_LINE)
        with writing():
            locked = Agent.lock(agent.id)
            Memory.lock_core(locked, number).protect(locked, by=COMMAND_LINE)
