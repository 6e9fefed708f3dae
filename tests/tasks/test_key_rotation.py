"""A worker that runs while the master key is rotated goes on with everything, without a restart."""

from __future__ import annotations

import threading

from flask import Flask

from app.extensions import db
from app.history.verify import verify
from app.keys.forgetting import forget_agent
from app.keys.rotation import rotate_agent_key, rotate_master_key
from app.keys.shredding import is_due
from app.models import COMMAND_LINE, Intake, IntakeStatus, Refinement, Status, Trigger
from app.refinement.start import start_refinement
from app.silo import KeyRing
from tasks import intake as intakes
from tasks import upkeep
from tasks.queue import send_task
from tasks.refinement import enqueue
from tests.silo.holding import bytes_on_disk, hand_in, sealed_keys, texts
from tests.support.factories import make_agent, remember
from tests.support.model_server import ModelServer, hang, text, tool_call
from tests.support.processes import wait_for
from tests.support.workers import Worker

OTHER = "On Tuesday it rained, and we stayed in and read to one another until it was dark outside."


def begin_one(agent_id: int) -> str:
    number = start_refinement(agent_id, trigger=Trigger.ADMIN, by=COMMAND_LINE).id
    assert enqueue(number)
    return number


def when_ended(number: str) -> Refinement:
    def ended() -> Refinement | None:
        db.session.rollback()
        row = db.session.get_one(Refinement, number, populate_existing=True)
        return None if row.is_open else row

    return wait_for(ended, seconds=60)


def test_a_worker_with_the_old_key_goes_on_while_and_after_it_is_rotated(
    app: Flask, worker: Worker, model: ModelServer
) -> None:
    first = make_agent("first", model_id="openai/scripted", api_base=model.base_url)
    second = make_agent("second", model_id="openai/scripted", api_base=model.base_url)
    hers, _ = remember(first, "Ann likes tea, she says.", OTHER)
    his, _ = remember(second, "Bob likes rum, he says.", OTHER)
    thinking = threading.Event()
    model.script(
        text("YES"),
        hang(thinking, tool_call("update_memory", id=hers, content="Ann likes tea.")),
        tool_call("complete_refinement", summary="One tightened."),
        text("YES"),
        tool_call("update_memory", id=his, content="Bob likes rum."),
        tool_call("complete_refinement", summary="One tightened."),
    )
    running = begin_one(first.id)
    wait_for(lambda: len(model.requests) == 2, seconds=60)
    waiting = hand_in(second, "Dora likes salt.")

    done = rotate_master_key(by=COMMAND_LINE)
    assert rotate_agent_key(first.id, by=COMMAND_LINE) == 2
    ring = KeyRing(app.extensions["settings"].master_key_path)
    assert len(ring.kept()) == 1
    thinking.set()

    assert (done.finished, done.keys, done.intakes) == (True, 4, 1)
    assert when_ended(running).status == Status.COMPLETED
    assert when_ended(begin_one(second.id)).status == Status.COMPLETED
    assert intakes.enqueue(waiting)
    wait_for(lambda: db.session.rollback() or _is_taken(waiting))
    assert texts(first)[0] == "Ann likes tea."
    assert {"Bob likes rum.", "Dora likes salt."} <= set(texts(second))
    assert verify().ok


def _is_taken(number: str) -> bool:
    return db.session.get_one(Intake, number, populate_existing=True).status == IntakeStatus.TAKEN


def test_upkeep_cleans_what_could_not_be_cleaned_at_once(app: Flask, worker: Worker) -> None:
    agent = make_agent()
    sealed = sealed_keys(agent)
    forget_agent(agent.id, by=COMMAND_LINE)
    assert is_due()

    assert send_task(upkeep.shred_removed_keys)

    wait_for(lambda: db.session.rollback() or not is_due())
    assert [key for key in sealed if key in bytes_on_disk(app.extensions["settings"])] == []
