"""A whole life over real processes, web, worker, broker and model: content is where a live exception shows it, and in
no file, log, message or stream; and the process that faces the network never has the private master key.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from flask import Flask
from redis import Redis
from redis.exceptions import ConnectionError as Gone
from sqlalchemy import select

from app.config import Settings
from app.extensions import db
from app.grants import opening
from app.models import AccessGrant, AccessView, Agent, GrantStatus, Intake, Memory, Refinement, User
from app.models.intake import IntakeStatus
from app.processes.broker import EmbeddedBroker
from tasks import grants as queue
from tasks.echo import worker_answers
from tests.silo.holding import bytes_on_disk
from tests.support.canary import assert_nowhere, assert_nowhere_at_rest, canary, places_in
from tests.support.clock import FakeClock
from tests.support.databases import Template
from tests.support.factories import make_agent
from tests.support.life import places_by_column, receive
from tests.support.model_server import ModelServer, ServedRequest, ServerReply, recorded, text, tool_call
from tests.support.processes import read, wait_for
from tests.support.watched import keys_held
from tests.support.workers import Worker, broker_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

LOUD = {"WHETSTONE_LOG_LEVEL": "DEBUG", "LITELLM_LOG": "DEBUG", "OPENAI_LOG": "debug", "PYTHONASYNCIODEBUG": "1"}
"""Everything that an operator might switch on to see more."""


@pytest.fixture
def clock() -> FakeClock:
    """Other processes go by the system's clock; so does the test."""
    return FakeClock(datetime.now(UTC))


@dataclass
class Site:
    """What runs, and a person at a browser."""

    settings: Settings
    broker: EmbeddedBroker
    model: ModelServer
    web: Worker
    client: httpx.Client
    report: Path
    passed: list[bytes] = field(default_factory=list)
    """What went through the broker, and what streams brought."""

    def page(self, path: str) -> str:
        answer = self.client.get(path)
        assert answer.status_code == 200, (path, answer.status_code)
        return answer.text

    def press(self, path: str, *, on: str = "/", **data: Any) -> httpx.Response:
        """Send a form of a page."""
        token = re.search(r'"X-CSRFToken": "([^"]+)"', self.page(on))
        assert token is not None
        files = data.pop("files", None)
        headers = {"X-CSRFToken": token[1], "Referer": f"{self.client.base_url}{on}"}
        answer = self.client.post(path, data=data, files=files, headers=headers)
        assert answer.status_code in (200, 302, 303), (path, answer.status_code, answer.text)
        return answer

    def watched(self) -> dict[str, Any]:
        """What the web process opened and holds, by its own report of this moment."""
        self.report.unlink(missing_ok=True)
        self.web.process.send_signal(signal.SIGUSR1)
        wait_for(self.report.exists)
        found: dict[str, Any] = json.loads(self.report.read_text())
        return found


@pytest.fixture
def site(app: Flask, settings: Settings, template: Template, tmp_path: Path) -> Iterator[Site]:
    """The private key lies elsewhere, for the worker; where the web process would look, nothing can be read."""
    elsewhere = tmp_path / "elsewhere.key"
    shutil.move(settings.master_key_path, elsewhere)
    settings.master_key_path.mkdir(mode=0o000)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    report, key = tmp_path / "report.json", {"WHETSTONE_MASTER_KEY_FILE": str(elsewhere)}
    watched = ("tests.support.watched", str(report))
    with (
        broker_of(settings) as broker,
        ModelServer() as model,
        Worker(settings, ("--concurrency", "4"), LOUD | key),
        Worker(settings, ("--port", str(port)), LOUD, name="web", part="web", module=watched) as web,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client,
    ):
        made = Site(settings, broker, model, web, client, report)
        wait_for(lambda: "Uvicorn running" in read(web.log), seconds=60)
        wait_for(lambda: worker_answers(1), seconds=90)
        with listening(made):
            first = template.first
            made.press("/sign-in", on="/sign-in", email=first.first_email, password=first.first_password)
            yield made
    settings.master_key_path.chmod(0o700)


@contextmanager
def listening(site: Site) -> Iterator[None]:
    """Keeps every command that the broker is given, also what is gone a moment later."""
    ears = Redis.from_url(site.broker.url)

    def hear() -> None:
        try:
            with ears.monitor() as monitor:
                ready.set()
                for command in monitor.listen():
                    site.passed.append(str(command["command"]).encode())
        except (Gone, ValueError, OSError):
            ready.set()

    ready = threading.Event()
    thread = threading.Thread(target=hear, name="ears", daemon=True)
    thread.start()
    ready.wait()
    try:
        yield
    finally:
        ears.connection_pool.disconnect()
        thread.join(5)


@contextmanager
def open_page(site: Site, topic: str) -> Iterator[None]:
    """A page that listens to its event stream until its user signs out."""

    def follow() -> None:
        url = f"{site.client.base_url}/events?topic={topic}"
        with httpx.stream("GET", url, cookies=site.client.cookies, timeout=None) as stream:
            site.passed.extend(stream.iter_bytes())

    thread = threading.Thread(target=follow, name=topic, daemon=True)
    thread.start()
    yield
    thread.join(20)
    assert not thread.is_alive()


def when(kind: type[Any], row_id: Any, ended: Any) -> Any:
    """The row, once it is so."""

    def look() -> Any:
        db.session.rollback()
        row = db.session.get_one(kind, row_id, populate_existing=True)
        return row if ended(row) else None

    return wait_for(look, seconds=60)


def echo(status: int) -> Any:
    """A provider that quotes the whole prompt in its complaint."""

    def answer(request: ServedRequest) -> ServerReply:
        quoted = json.dumps(request.messages, ensure_ascii=False)
        return recorded({"error": {"message": f"I can't work on: {quoted}", "type": quoted}}, status=status)

    return answer


def test_a_whole_life_leaves_content_nowhere_but_under_its_exception(app: Flask, site: Site) -> None:
    agent = make_agent("ezra", model_id="openai/scripted", api_base=site.model.base_url)
    with open_page(site, f"agent:{agent.id}"), open_page(site, "exceptions"), open_page(site, "audit"):
        remember_and_refine(site, agent)
        exception_id = look_through_an_exception(site, agent)
        fail(site, agent)
        leave_something_waiting(site, agent, exception_id)
        take_it_back(site, exception_id)
        site.press("/sign-out")

    places = set.union(*places_by_column().values())
    assert places == {"ledger", "edited", "edit", "yes", "summary", "reason", "declined", "waiting"}
    asked = json.dumps([request.body for request in site.model.requests], ensure_ascii=False)
    assert {"ledger", "edited"} <= places_in(asked), "the model was asked with the content"
    assert_the_web_process_had_no_key(site)
    assert_nothing_passed(site)
    assert_nowhere_at_rest(app)
    assert_nowhere(bytes_on_disk(site.settings), "the database's files")


def remember_and_refine(site: Site, agent: Agent) -> None:
    lines = "".join(json.dumps({"content": canary(place)}) + "\n" for place in ("ledger", "edited"))
    lines += json.dumps({"content": "It rained in Lisbon. " * 100, "constitutional": True})
    site.press(f"/agents/{agent.id}/imports", files={"file": ("memories.jsonl", lines.encode())})
    intake_id = db.session.scalars(select(Intake.id)).one()
    when(Intake, intake_id, lambda row: row.status == IntakeStatus.TAKEN)
    edited = db.session.scalars(select(Memory.id).where(Memory.agent_id == agent.id).order_by(Memory.id)).all()[1]
    site.model.script(
        text(f"YES. {canary('yes')}"),
        tool_call("search_memories", query=canary("query")[:20]),
        tool_call("update_memory", id=edited, content=canary("edit")),
        tool_call("update_memory", id=edited, content=canary("edit"), confirm_loss=True),
        tool_call(canary("said"), id=canary("said")),
        tool_call("complete_refinement", summary=canary("summary")),
    )
    done = refine(site, agent)
    assert (done.status, done.updated, done.confirmed_losses) == ("completed", 1, 1)


def refine(site: Site, agent: Agent) -> Refinement:
    answer = site.press(f"/agents/{agent.id}/refinements", on=f"/agents/{agent.id}")
    refinement_id = answer.headers["Location"].rpartition("/")[2]
    refinement: Refinement = when(Refinement, refinement_id, lambda row: not row.is_open)
    return refinement


def look_through_an_exception(site: Site, agent: Agent) -> str:
    site.model.script(text(f"YES. {canary('reason')}"))
    form = {"category": "debugging", "purpose": "It repeats itself.", "scope": "ledger", "minutes": "15"}
    where = f"/agents/{agent.id}/exceptions"
    exception_id = site.press(where, on=f"{where}/new", **form).headers["Location"].rpartition("/")[2]
    when(AccessGrant, exception_id, lambda row: row.status == GrantStatus.GRANTED)
    for path in (f"/exceptions/{exception_id}/ledger", f"/exceptions/{exception_id}/ledger.json"):
        said = site.page(path)
        said = json.dumps(json.loads(said), ensure_ascii=False) if path.endswith("json") else said
        assert places_in(re.sub(r"<[^>]+>", "", said)) == {"ledger", "edit"}
    return exception_id


def fail(site: Site, agent: Agent) -> None:
    """The model's server complains, and quotes what it was sent; then the agent declines, in its own words."""
    site.model.script(echo(400))
    assert refine(site, agent).status == "failed"
    site.model.script(text("YES"), *[echo(500)] * 3)
    assert refine(site, agent).status == "failed"
    site.model.script(text(f"NO. {canary('declined')}"))
    assert refine(site, agent).status == "declined"


def leave_something_waiting(site: Site, agent: Agent, exception_id: str) -> None:
    """An import that nobody took in yet, and an answer that nobody fetched."""
    receive(agent, {"content": canary("waiting")})
    grant = db.session.get_one(AccessGrant, exception_id)
    look = opening.look(grant, db.session.get_one(User, grant.user_id))
    assert queue.wait_for_answer(look.view_id)
    assert when(AccessView, look.view_id, lambda row: row.answered_at).sealed


def take_it_back(site: Site, exception_id: str) -> None:
    site.press(f"/exceptions/{exception_id}/revoke", on=f"/exceptions/{exception_id}")
    when(AccessGrant, exception_id, lambda row: row.told_at is not None)
    answer = site.client.get(f"/exceptions/{exception_id}/ledger")
    assert answer.status_code == 403
    assert_nowhere(answer.content, "a page after its exception")


def assert_the_web_process_had_no_key(site: Site) -> None:
    """After all that it did: it holds none, and has never tried to read one."""
    assert "MasterKey" in keys_held(), "this process holds one, and finds it"
    found = site.watched()
    its_own = {site.settings.data / "keys" / "session.key", site.settings.data / "web.key"}
    assert {path for path in found["opened"] if path.endswith(".key")} == set(map(str, its_own))
    assert found["keys"] == []


def assert_nothing_passed(site: Site) -> None:
    """Messages, wake-ups and streams as they went by, and what the broker still holds, however it keeps it."""
    said = b"\n".join(site.passed)
    assert b"tasks.refinement.refine" in said
    assert b"hx-partial" in said
    assert_nowhere(said, "what passed")
    with Redis.from_url(site.broker.url) as broker:
        broker.bgrewriteaof()
        wait_for(lambda: not broker.info("persistence")["aof_rewrite_in_progress"])
        for key in broker.scan_iter():
            assert_nowhere(bytes(key) + (broker.dump(key) or b""), "the broker's dump")
