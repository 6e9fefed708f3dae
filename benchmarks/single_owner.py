"""What an owner on their own machine does, in a real browser: clicks and seconds of each, against another checkout.

`python -m benchmarks.single_owner [--against FOLDER]` starts `up` in an empty folder, with a model server that says YES
to everything, and makes an agent, takes its first token, refines it, asks for an exception, edits its prompt and
changes its model. Clicks are presses of buttons and links from the agent's page on; typing is none. Seconds are those
from the last click until the page says that it is done; the first that asks a model waits for its library, too. It
needs Chromium.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from playwright.sync_api import Locator, Page, expect, sync_playwright

from tests.browser.conftest import CHROMIUM, EMAIL
from tests.support.installation import free_port, read_until_ready
from tests.support.model_server import ModelServer, ServedRequest, ServerReply, text, tool_call

Done = dict[str, tuple[int, float]]
"""By what was done, its clicks and seconds."""

WAIT = 90_000
"""Milliseconds."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--against", type=Path, help="another checkout")
    options.add_argument("--measure", action="store_true", help="print one measurement as JSON")
    chosen = options.parse_args()
    if chosen.measure:
        print(json.dumps(_measure()))
        return
    now = _measure_in(Path(__file__).resolve().parent.parent)
    before = _measure_in(chosen.against.resolve()) if chosen.against else {}
    for name, (clicks, seconds) in now.items():
        line = f"{name:>22}: {clicks} clicks, {seconds:5.1f} s"
        if name in before:
            line += f"; before {before[name][0]} clicks, {before[name][1]:5.1f} s"
        print(line)


def _measure_in(folder: Path) -> Done:
    command = [sys.executable, "-P", str(Path(__file__).resolve()), "--measure"]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return {name: (int(clicks), float(seconds)) for name, (clicks, seconds) in found.items()}


@dataclass
class Owner:
    """Somebody at a browser. `done` is what they have done so far."""

    page: Page
    done: Done = field(default_factory=dict)
    clicks: int = 0
    clicked_at: float = 0.0

    def click(self, what: Locator) -> None:
        self.clicks += 1
        self.clicked_at = time.perf_counter()
        what.click()

    def has(self, name: str) -> None:
        """The page says that it is done."""
        self.done[name] = self.clicks, time.perf_counter() - self.clicked_at
        self.clicks = 0

    def press(self, name: str | re.Pattern[str]) -> None:
        self.click(self.page.locator("#main").get_by_role("button", name=name).first)

    def follow(self, tab: str) -> None:
        self.click(
            self.page.get_by_role("navigation", name="Agent", exact=True).get_by_role("link", name=tab, exact=True)
        )


def _measure() -> Done:
    with ModelServer().always(_answer) as model, _house() as (address, password), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(base_url=address)
        page.set_default_timeout(WAIT)
        expect.set_options(timeout=WAIT)
        _sign_in(page, password)
        owner = Owner(page)
        _make_agent(owner, model, address)
        agent_url = page.url
        _refine(owner)
        page.goto(agent_url)
        _ask_for_exception(owner)
        page.goto(agent_url)
        _change(owner, "edit of a prompt", "system_prompt", "You are Wren, and you listen.")
        page.goto(agent_url)
        _change(owner, "change of model", "model_id", "openai/scripted-2")
        page.goto(agent_url)
        _change(owner, "a second such change", "system_prompt", "You are Wren, and you listen well.")
        browser.close()
        return owner.done


@contextmanager
def _house() -> Iterator[tuple[str, str]]:
    """A new installation: its address, and the first owner's password."""
    environment = {**os.environ, "A_KEY": "not-a-real-key"}
    for name in ("DATABASE_URL", "REDIS_URL", "PYTHONDONTWRITEBYTECODE"):
        environment.pop(name, None)
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        command = [sys.executable, "-m", "app", "up", "--no-browser", "--port", str(port), "--data-dir", folder]
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            if process.stdout is None:
                raise RuntimeError
            said = re.search(r"Password:\s+(\S+)", read_until_ready(process.stdout))
            if said is None:
                raise RuntimeError("it did not start")
            yield f"http://127.0.0.1:{port}", said[1]
        finally:
            process.terminate()
            process.communicate(timeout=60)


def _answer(request: ServedRequest) -> ServerReply:
    """YES to every question; a refinement is closed at once; a word where tools aren't offered."""
    if request.body.get("tools"):
        return tool_call("complete_refinement", summary="All is well.")
    return text("YES")


def _sign_in(page: Page, password: str) -> None:
    page.goto("/sign-in")
    page.get_by_label("E-mail").fill(EMAIL)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/")


def _make_agent(owner: Owner, model: ModelServer, address: str) -> None:
    page = owner.page
    page.goto("/agents")
    owner.click(page.locator("#main").get_by_role("link", name=re.compile("^New agent|^Create")).first)
    page.get_by_label("Name", exact=False).first.fill("wren")
    page.get_by_label("Model").fill("openai/scripted")
    page.get_by_label("API base").fill(model.base_url)
    page.get_by_label("API key variable").fill("A_KEY")
    owner.press("Create the agent")
    token = page.locator("#token").inner_text()
    owner.has("new agent, with its token")
    _save_by_token(address, token)
    owner.has("first token works")
    page.get_by_role("link", name="To the agent").click()


def _save_by_token(address: str, token: str) -> None:
    """Ask as the agent until its keys are there."""
    headers, started = {"Authorization": f"Bearer {token}"}, time.monotonic()
    body = {"content": "Ann likes tea, and Bob moved to Oslo.", "type": "core"}
    while httpx.post(f"{address}/api/v1/memories", json=body, headers=headers).status_code != 201:
        if time.monotonic() - started > WAIT / 1000:
            raise RuntimeError("the token does not work")


def _refine(owner: Owner) -> None:
    owner.click(owner.page.locator("#agent-state").get_by_role("button", name="Refine"))
    expect(owner.page.locator("[data-status=completed]").first).to_be_visible()
    owner.has("refinement")


def _ask_for_exception(owner: Owner) -> None:
    page = owner.page
    owner.follow("Exceptions")
    owner.click(page.locator("#main").get_by_role("link", name=re.compile("^Ask ")))
    page.get_by_label("In your own words").fill("It repeats itself.")
    owner.press(re.compile("^Ask "))
    expect(page.locator("#exception-state [data-status]")).to_have_attribute("data-status", "granted")
    owner.has("exception")


def _change(owner: Owner, name: str, field: str, value: str) -> None:
    page = owner.page
    owner.follow("Settings")
    changes = page.locator("#settings-history li[id^=change-]")
    page.locator(f"#main [name={field}]").fill(value)
    before = changes.count()
    owner.press("Save")
    expect(changes).to_have_count(before + 1)
    owner.has(name)


if __name__ == "__main__":
    main()
