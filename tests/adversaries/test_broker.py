"""Who has the broker sends ids to every task: made-up ones, those of others, old ones; they read and decide nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import pytest

import tasks.celery
from app.extensions import db
from app.grants.request import request_access
from app.history.verify import verify
from app.models import User
from app.tokens.request import WantedToken, request_token
from tasks.celery import TaskFailed
from tests.adversaries.forging import Rows, all_rows, changes, read_rows
from tests.adversaries.scene import SECRET, WISH, Scene

NOBODY = "00000000-0000-4000-8000-000000000000"

MADE_UP: list[tuple[Any, ...]] = [
    (),
    (NOBODY,),
    (987_654_321,),
    (-1,),
    (2**70,),
    (1.5,),
    ("x" * 10_000,),
    ("' OR 1=1 --",),
    (b"\xff",),
    (None,),
    ([NOBODY],),
    ({"id": NOBODY},),
    (NOBODY, NOBODY),
    (-1, NOBODY),
    (1_000_000, NOBODY),
    (1_000_001, NOBODY),
]


def every_task() -> list[str]:
    tasks.celery.app.loader.import_default_modules()
    return sorted(name for name in tasks.celery.app.tasks if name.startswith("tasks."))


@pytest.fixture
def worker(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Tasks run in this process, as a worker runs them; whatever they ask is heard."""
    monkeypatch.setattr(tasks.celery, "flask_app", lambda: scene.app)
    assert len(every_task()) > 25
    for name in {name.rpartition(".")[0] for name in every_task()}:
        if hasattr(sys.modules[name], "LiteLLMClients"):
            monkeypatch.setattr(sys.modules[name], "LiteLLMClients", lambda: scene.models)
    return scene


def send(name: str, ids: Sequence[Any]) -> None:
    """What a task fails with says its kind and place, and never a value."""
    try:
        tasks.celery.app.tasks[name].run(*ids)
    except TaskFailed as failed:
        assert " at " in str(failed)
        assert "x" * 20 not in str(failed)
    finally:
        db.session.rollback()


def settled(scene: Scene) -> Rows:
    """All that beat sends has been done once."""
    for name in every_task():
        send(name, ())
    return all_rows()


def test_made_up_ids_change_nothing_for_any_task(worker: Scene) -> None:
    scene = worker
    before = settled(scene)
    for name in every_task():
        for ids in MADE_UP:
            send(name, ids)
    assert changes(before, all_rows()) == []
    assert scene.models.heard == {}
    assert verify().ok
    assert SECRET in scene.read_by(scene.home)


def waiting(scene: Scene) -> list[Any]:
    """The id of one thing of each kind, of which nothing was answered yet; and of both agents."""
    with scene.web.app_context():
        ann = db.session.get_one(User, scene.ann.id)
        request_access(scene.victim.id, WISH, for_user=ann, by=ann.actor)
        request_token(scene.victim.id, WantedToken("laptop", ["read"]), for_user=ann, by=ann.actor)
    scene.save_as_victim()
    kinds = ("access_grants", "token_requests", "intakes", "refinements")
    return [scene.victim.id, scene.attacker.agent.id, *(row["id"] for kind in kinds for row in read_rows(kind))]


DECISIONS = ("token-made", "token-ended", "exception-decided", "exception-ended", "consent", "model", "erasure")


def decided() -> list[tuple[Any, ...]]:
    return [(row["kind"], row["subject"]) for row in read_rows("log_leaves") if row["kind"] in DECISIONS]


def test_each_message_is_answered_once_and_by_the_agent_s_own_model(worker: Scene) -> None:
    """Ids that are real, to every task, three times each: what waited is answered as it would have been, once."""
    scene = worker
    ids = waiting(scene)
    for name in every_task():
        for each in ids:
            send(name, (each,))
    once, asked = decided(), read_rows("consents")
    assert [row["granted"] for row in asked] == [False] * len(asked)
    assert read_rows("access_grants")[0]["status"] == "denied"
    scene.models.heard.clear()
    for name in every_task() * 2:
        for each in ids:
            send(name, (each,))
    assert decided() == once
    assert read_rows("consents") == asked
    assert scene.models.heard_elsewhere() == ""
    scene.assert_nothing_opened()


def test_a_checkpoint_is_made_for_a_leaf_once_and_for_none_that_is_not_there(worker: Scene) -> None:
    """Else each message would add to the log of statements."""
    leaves = len(read_rows("log_leaves"))
    for index in (leaves, leaves + 1, -1, 10**12):
        send("tasks.statements.cover", (index, NOBODY))
    assert len(read_rows("log_leaves")) == leaves
    send("tasks.statements.cover", (0, NOBODY))
    made = len(read_rows("log_leaves"))
    assert made > leaves
    for index in range(leaves):
        send("tasks.statements.cover", (index, NOBODY))
    assert len(read_rows("log_leaves")) == made
