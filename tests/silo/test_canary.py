"""A canary in every place where content can be: no file, log, table, message or traceback holds it."""

from __future__ import annotations

import inspect
import logging
import shutil
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Task
from flask import Flask
from redis import Redis
from sqlalchemy import text

import tasks.celery
from app.config import Settings
from app.events.broker import broker_namespace
from app.extensions import db, writing
from app.keys.agent_keys import open_keys
from app.models import Intake, Memory, User
from app.processes.broker import EmbeddedBroker
from app.silo import SealBroken
from tasks.celery import TaskFailed, task
from tasks.queue import send_task
from tests.grants.conftest import put
from tests.refinement.driving import say
from tests.support.canary import (
    PLAIN,
    STRANGE,
    assert_nowhere,
    assert_nowhere_at_rest,
    canary,
    exact_forms,
    find,
    folded_forms,
)
from tests.support.databases import SERVER
from tests.support.factories import make_agent, remember
from tests.support.life import SEALED, Life, live, places_by_column
from tests.support.processes import wait_for
from tests.support.workers import everything_in


@pytest.fixture
def life(app: Flask) -> Life:
    return live()


def test_no_log_no_file_and_no_table_holds_it(
    app: Flask, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.DEBUG):
        live()
    said = caplog.text + "".join(capfd.readouterr())

    assert set.union(*places_by_column().values()) == SEALED
    assert_nowhere(said.encode(), "what was logged and printed")
    files = {path.name for path, _ in everything_in(app.extensions["settings"].data)}
    assert SERVER or {"whetstone.db", "whetstone.db-wal"} <= files
    assert_nowhere_at_rest(app)


def test_what_an_import_or_an_exception_leaves_open_says_nothing_of_it(life: Life) -> None:
    """Purposes and the sentences of failures are open: none of them quotes."""
    errors = list(db.session.scalars(db.select(Intake.error)))
    assert any("line 1" in (error or "") for error in errors)
    assert_nowhere(repr(errors).encode(), "the errors of imports")


def test_no_error_of_the_database_or_the_silo_quotes_it(app: Flask) -> None:
    agent = make_agent()
    (number,) = remember(agent, canary("ledger"))
    memory = db.session.get_one(Memory, number)
    with pytest.raises(Exception, match="append-only") as refused, writing():
        db.session.execute(text("UPDATE audit_log SET subject = :subject"), {"subject": canary("subject")})
    db.session.rollback()
    with pytest.raises(SealBroken) as broken:
        open_keys(agent).reveal_memory(number + 1, memory.content)
    for error in (refused.value, broken.value):
        assert_nowhere(f"{error!r} {error}".encode(), "the error")
        assert_nowhere("".join(traceback.format_exception(error)).encode(), "its traceback")


def test_a_task_that_breaks_tells_a_kind_and_a_place(
    app: Flask, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(refinement_id: str) -> None:
        raise ValueError(canary("raised")) from KeyError(canary("raised"))

    monkeypatch.setattr(tasks.celery, "flask_app", lambda: app)
    with caplog.at_level(logging.DEBUG):
        result = task(breaks).apply(args=("an id",))

    assert isinstance(result.result, TaskFailed)
    assert "ValueError" in str(result.result)
    whole = f"{result.result!r} {result.traceback} {''.join(traceback.format_exception(result.result))} {caplog.text}"
    assert_nowhere(whole.encode(), "what is left of it")


@pytest.fixture(params=["valkey", "redis"])
def broker(request: pytest.FixtureRequest, settings: Settings) -> Iterator[EmbeddedBroker]:
    made = EmbeddedBroker(settings)
    if request.param == "redis":
        program = shutil.which("redis-server")
        if program is None:
            pytest.skip("there is no redis-server here to look into")
        made._program = Path(program)
    made.start()
    yield made
    made.stop()


def test_what_waits_in_a_broker_is_ids(app: Flask, life: Life, broker: EmbeddedBroker) -> None:
    """Every task there is with what it is given, looked at as the broker keeps it: by type, dumped, in its file."""
    sent = [send_task(each, *arguments) for each, arguments in _work(life)]
    assert len(sent) > 12
    assert all(sent)
    with Redis.from_url(broker.url) as client:
        held = {bytes(key): _content(client, bytes(key)) for key in client.scan_iter()}
        waiting = sum(client.llen(broker_namespace() + queue) for queue in ("refine", "upkeep", "interactive"))
        client.bgrewriteaof()
        wait_for(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
    assert waiting == len(sent)
    assert life.refinement.id.encode() in b"".join(held.values())
    for key, content in held.items():
        assert_nowhere(key + b"\n" + content, f"the broker's {key!r}")
        assert not key.startswith(b"celery-task-meta"), "no result is kept"
    for path, content in everything_in(app.extensions["settings"].data / "broker"):
        assert_nowhere(content, path)


def _work(life: Life) -> Iterator[tuple[Task, list[int | str]]]:
    """Each task with ids of its own kind."""
    agent, user = life.agent, db.session.get_one(User, 1)
    grant, _ = put(agent, user, say(f"YES. {canary('reason')}"))
    ids: dict[str, int | str] = {
        "agent_id": agent.id,
        "refinement_id": life.refinement.id,
        "grant_id": grant.id,
        "view_id": grant.id,
        "intake_id": db.session.scalars(db.select(Intake.id)).all()[0],
        "proposal_id": grant.id,
        "request_id": grant.id,
        "nonce": "0123456789abcdef",
        "index": 7,
        "reply": "0123456789abcdef",
    }
    tasks.celery.app.loader.import_default_modules()
    for name, each in tasks.celery.app.tasks.items():
        if name.startswith("tasks."):
            yield each, [ids[parameter] for parameter in inspect.signature(inspect.unwrap(each.run)).parameters]


def _content(client: Redis, key: bytes) -> bytes:
    """What a key holds, whatever it is, and as the server would save it."""
    read: dict[bytes, Any] = {
        b"string": lambda: [client.get(key)],
        b"list": lambda: client.lrange(key, 0, -1),
        b"set": lambda: client.smembers(key),
        b"hash": lambda: [part for pair in client.hgetall(key).items() for part in pair],
        b"zset": lambda: client.zrange(key, 0, -1),
        b"stream": lambda: [repr(client.xrange(key)).encode()],
    }
    return b"\n".join([*read[client.type(key)](), client.dump(key) or b""])


def test_the_search_for_it_finds_it_in_every_form() -> None:
    forms = [*exact_forms(), *folded_forms()]
    assert len(forms) > 80
    for form in forms:
        with pytest.raises(AssertionError, match="stands in here"):
            assert_nowhere(b"before " + form + b" after", "here")


def test_the_search_finds_it_in_any_case_at_any_place_and_nothing_else() -> None:
    whole = canary("ledger")
    for said in (whole, whole.upper(), whole[:20], whole[-16:], f"...{STRANGE}..."):
        for encoding in ("utf-8", "utf-16", "utf-32"):
            assert find(b"\x00" * 3 + said.encode(encoding)), (said, encoding)
    assert not find(f"{PLAIN[:7]} {STRANGE[:2]} and whatever else".encode())
    assert not find(bytes(range(256)) * 100)
