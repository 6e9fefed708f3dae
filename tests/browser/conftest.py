"""A whole installation in its own processes, started by `up`, and a real Chromium in front of it."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, FilePayload, Page, expect, sync_playwright

from app.config import ROOT
from tests.support.installation import free_port, read_until_ready
from tests.support.model_server import ModelServer, text
from tests.support.processes import wait_for
from tests.support.workers import NO_TICK

CHROMIUM = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium-headless-shell", "chromium"))), "/usr/bin/chromium"
)
"""The one without windows takes half the processor time; both show pages alike."""
expect.set_options(timeout=20_000)
UP = (sys.executable, "-m", "app", "up", "--no-browser")
DEMO = (sys.executable, "-m", "app", "demo")
EMAIL = "admin@whetstone.local"
MEMORIES = 8
"""In the ledger of an agent that a test makes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """An admin's first minutes come first: they need a house that is still empty."""
    items.sort(key=lambda item: item.path.name != "test_demo.py")
    missing = pytest.mark.skip(reason=f"no browser: {CHROMIUM} is not there; install Chromium or set CHROMIUM")
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.timeout(300))
            if not Path(CHROMIUM).exists():
                item.add_marker(missing)


@dataclass(frozen=True)
class House:
    """A running installation; `data` is its data dir."""

    address: str
    password: str
    process: subprocess.Popen[str]
    data: Path

    def kill_web(self) -> None:
        """As a crash would: the supervisor starts it again."""
        os.kill(self._child("web"), signal.SIGKILL)

    def _child(self, name: str) -> int:
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue  # it ended meanwhile
            if parent == self.process.pid and words[1:4] == [b"-m", b"app", name.encode()]:
                return int(entry.name)
        raise AssertionError(f"{name} does not run")


@dataclass
class Seen:
    """What the browser complained of while a test ran."""

    problems: list[str] = field(default_factory=list)

    def watch(self, context: BrowserContext) -> None:
        context.on("console", lambda message: self._note(message.type, message.text))
        context.on("weberror", lambda error: self._note("exception", str(error.error)))

    def _note(self, kind: str, text: str) -> None:
        if kind == "exception" or "Content Security Policy" in text or "Content-Security-Policy" in text:
            self.problems.append(f"{kind}: {text}")


UNSAFE = "UNSAFE. It hides what it does.\nTo admins: Please read this first."
"""What the safety model says of every prompt; and whoever speaks by it to what it is asked, which then is a NO."""


@pytest.fixture(scope="package")
def safety_model() -> Iterator[ModelServer]:
    with ModelServer().always(text(UNSAFE)) as server:
        yield server


@pytest.fixture(scope="package")
def house(tmp_path_factory: pytest.TempPathFactory, safety_model: ModelServer) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("house")
    environment = {
        **os.environ,
        "WHETSTONE_SCHEDULE": NO_TICK,
        "WHETSTONE_RETRY_BASE_SECONDS": "0.1",
        "WHETSTONE_DEMO_PACE_SECONDS": "0",
        "A_KEY": "not-a-real-key",
        "WHETSTONE_SAFETY_MODEL": "openai/safety",
        "WHETSTONE_SAFETY_API_BASE": safety_model.base_url,
        "WHETSTONE_SAFETY_API_KEY_ENV": "A_KEY",
    }
    for name in ("PYTHONDONTWRITEBYTECODE", "DATABASE_URL", "REDIS_URL"):
        environment.pop(name, None)
    port = free_port()
    with (folder / "errors.txt").open("w") as errors:
        process = subprocess.Popen(
            [*UP, "--port", str(port), "--data-dir", str(folder / "data")],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdout is not None
    said = read_until_ready(process.stdout)
    password = re.search(r"Password:\s+(\S+)", said)
    assert password, said + (folder / "errors.txt").read_text()
    yield House(f"http://127.0.0.1:{port}", password[1], process, folder / "data")
    process.terminate()
    process.communicate(timeout=60)


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


@pytest.fixture(scope="package")
def signed_in(house: House, chromium: Browser) -> dict[str, object]:
    """The cookies of the first admin, from one real sign-in."""
    context = chromium.new_context(base_url=house.address)
    page = context.new_page()
    sign_in(page, house)
    state = context.storage_state()
    context.close()
    return dict(state)


@pytest.fixture
def page(house: House, chromium: Browser, signed_in: dict[str, object]) -> Iterator[Page]:
    """A signed-in page. The test fails for any violation of the content policy and any uncaught exception."""
    context = chromium.new_context(base_url=house.address, storage_state=signed_in)  # type: ignore[arg-type]
    seen = Seen()
    seen.watch(context)
    yield context.new_page()
    context.close()
    assert seen.problems == []


@pytest.fixture
def other_tab(page: Page) -> Page:
    """Of the same browser, watched for the content policy like the first."""
    return page.context.new_page()


@pytest.fixture
def demo(page: Page, house: House) -> None:
    """The demo's two agents, whoever made them, and whatever other agents there are: tests come in any order."""
    page.goto("/")
    button = page.get_by_role("button", name="Try the demo")
    if button.count():
        button.click()
        expect(page.locator("#overview-recent [data-status=completed]")).to_have_count(2, timeout=60_000)
    elif not page.request.get("/agents.json?query=Wren").json()["agents"]:
        subprocess.run(DEMO, cwd=ROOT, env={**os.environ, "WHETSTONE_DATA_DIR": str(house.data)}, check=True)


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def agent_page(page: Page, house: House, model: ModelServer, request: pytest.FixtureRequest) -> Page:
    """The page of a new agent that speaks through the scripted model, with a small ledger.

    It is made by the requests that a browser would send: others click through the forms for it.
    """
    texts = [f"Memory {n} of this agent, as long as others." for n in range(MEMORIES - 1)]
    texts.append("Memory 0, 1, 2, 7, agent: as long as others.")  # says all of the first three
    lines = "".join(f'{{"content": "{each}"}}\n' for each in texts)
    address = send_agent(page, f"{str(request.node.name)[5:50]} {secrets.token_hex(3)}", model.base_url)
    file: FilePayload = {"name": "memories.jsonl", "mimeType": "application/jsonl", "buffer": lines.encode()}
    assert page.request.post(f"{address}/imports", multipart={"csrf_token": csrf_token(page), "file": file}).ok
    wait_for(lambda: page.request.get(f"{address}.json").json()["ledger"][MEMORIES - 1 :], seconds=30)
    page.goto(address)
    page.locator("#agent-figures").wait_for()
    return page


def send_agent(page: Page, name: str, api_base: str) -> str:
    """Make an agent; the address of its page."""
    named = {"name": name, "model_id": "openai/scripted", "api_base": api_base, "api_key_env": "A_KEY"}
    made = page.request.post("/agents", form={"csrf_token": csrf_token(page), "core_token_budget": "5000", **named})
    assert made.ok, made.text()
    found = re.search(r'href="(/agents/\d+)"', made.text())
    assert found, made.text()
    return found[1]


def csrf_token(page: Page) -> str:
    """What the forms of this session carry."""
    found = re.search(r'name="csrf_token" value="([^"]+)"', page.request.get("/agents/new").text())
    assert found
    return found[1]


def create_agent(page: Page, name: str, api_base: str = "", model_id: str = "openai/scripted") -> str:
    """Its token. It speaks by the model server at this address, if its model is one of a server."""
    page.goto("/agents/new")
    page.get_by_label("Name", exact=False).first.fill(name)
    page.get_by_label("Model").fill(model_id)
    if api_base:
        page.get_by_label("API base").fill(api_base)
        page.get_by_label("API key variable").fill("A_KEY")
    page.get_by_role("button", name="Create the agent").click()
    return page.locator("#token").inner_text()


def sign_in(page: Page, house: House) -> None:
    page.goto("/sign-in")
    page.get_by_label("E-mail").fill(EMAIL)
    page.get_by_label("Password").fill(house.password)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{house.address}/")
