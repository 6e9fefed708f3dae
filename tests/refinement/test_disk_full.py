"""A refinement that a full disk ends says so, as soon as there is room to say it; what it did before stays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from flask import Flask

from app.asking.calls import Dependencies
from app.errors import DiskFull
from app.extensions import db
from app.models import COMMAND_LINE, Agent, Refinement, Status, Trigger
from app.refinement.process import ROOM_SECONDS, run_refinement
from app.refinement.start import start_refinement
from app.refinement.sweep import DISK_FULL, close_stalled
from app.vocabulary.statuses import EARLIER_CHANGES_KEPT
from tasks import celery
from tests.refinement.driving import alike, call, say
from tests.refinement.test_heartbeat import running_of
from tests.support.factories import ledger, remember
from tests.support.full_disk import FullDisk
from tests.support.scripted import ScriptedClient, ScriptedClients


@pytest.fixture
def disk(app: Flask) -> Iterator[FullDisk]:
    made = FullDisk(app)
    yield made
    made.free()


@pytest.fixture
def ids(agent: Agent) -> list[int]:
    return remember(agent, *alike(20))


def test_one_that_finds_the_disk_full_ends_with_that_reason_once_there_is_room(
    agent: Agent, ids: list[int], disk: FullDisk
) -> None:
    def delete_on_a_full_disk(_messages: object) -> object:
        disk.fill()
        return call("delete_memory", id=ids[1], carried_by=ids[-1])

    row, pauses, client = carried(
        agent, disk, call("delete_memory", id=ids[0], carried_by=ids[-1]), delete_on_a_full_disk
    )

    assert (row.status, row.failure, row.mutations) == (Status.INTERRUPTED, DISK_FULL, 1)
    assert row.reason == f"{DISK_FULL}; {EARLIER_CHANGES_KEPT}."
    assert pauses == [ROOM_SECONDS, ROOM_SECONDS]
    assert [id_ for id_, *_ in ledger(agent)] == ids[1:]
    assert len(client.asked) == 3, "the model was not asked again about what it can't mend"


def test_another_end_keeps_its_own_reason_while_it_waits_for_room(agent: Agent, ids: list[int], disk: FullDisk) -> None:
    def fall_silent(_messages: object) -> object:
        disk.fill()
        return say("I am done, I think.")

    row, pauses, _ = carried(agent, disk, say("And so?"), fall_silent)

    assert (row.status, len(pauses)) == (Status.UNFINISHED, 2)
    assert row.reason is not None
    assert row.reason.startswith("The model stopped calling functions")


def carried(agent: Agent, disk: FullDisk, *replies: object) -> tuple[Refinement, list[float], ScriptedClient]:
    """To its end, where somebody makes room during the second pause."""
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            disk.free()

    refinement = start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE)
    client = ScriptedClient(say("YES"), *replies)  # type: ignore[arg-type]
    run_refinement(refinement.id, Dependencies(ScriptedClients(client), pause=pause, monotonic=lambda: 0.0))
    db.session.rollback()
    return db.session.get_one(Refinement, refinement.id, populate_existing=True), pauses, client


def test_one_whose_worker_died_meanwhile_is_closed_with_that_reason_by_who_found_no_room_for_it(
    agent: Agent, disk: FullDisk
) -> None:
    running = running_of(agent)
    disk.fill()
    assert close_stalled() == []
    disk.free()
    assert close_stalled() == [running.claim.refinement_id]
    assert (running.reload().status, running.reload().failure) == (Status.INTERRUPTED, DISK_FULL)


def test_a_worker_leaves_although_it_can_t_end_what_it_carries(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    class Heart:
        def held(self) -> dict[str, str]:
            raise DiskFull

    left: list[int] = []
    monkeypatch.setattr(celery, "flask_app", lambda: app)
    monkeypatch.setitem(app.extensions, "heartbeat", Heart())
    celery.close_in_time(left.append, seconds=0)
    monkeypatch.undo()
    app.extensions.pop("heartbeat", None)
    assert left == [0]
