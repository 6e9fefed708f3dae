"""Takes the pictures of the documentation: `python -m benchmarks.pictures [--into docs/pictures] [--only NAME …]`.

Starts an installation of its own, to be thrown away, with a fleet whose refinements were really run, by a scripted
model (`pictured_fleet`), and takes each screen with Chromium. WebP, each below 200 kB; exit status 1 otherwise.
"""

from __future__ import annotations

import argparse
import base64
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

from app import Part, security
from app.config import ROOT, Settings, load_settings
from app.extensions import SystemClock, db
from app.setup import prepare_installation, ready_app
from benchmarks.pictured_fleet import LIVE, Fleet, make_fleet
from tests.browser.conftest import CHROMIUM
from tests.support.installation import free_port, read_until_ready
from tests.support.model_server import ModelServer, ServerReply, hang, text, tool_call
from tests.support.receivers import MailReceiver

LIMIT = 200_000
"""Bytes of one picture."""

WIDTH, HEIGHT = 1280, 860
QUALITY = 82
TURN_SECONDS = 1.7
ASKED_BEFORE = 3
"""Changes that a live refinement has made when its picture is taken."""


@dataclass(frozen=True)
class Screen:
    """`path` may name {refinement} and {agent}: those that are live. `height` in CSS pixels."""

    name: str
    path: str
    height: int = HEIGHT
    schemes: tuple[str, ...] = ("light",)


BOTH = ("light", "dark")
SCREENS = (
    Screen("overview", "/", 1000, BOTH),
    Screen("refinement-live", "/refinements/{refinement}", 1000, BOTH),
    Screen("refinements", "/refinements"),
    Screen("attention", "/attention"),
    Screen("agents", "/agents"),
    Screen("agent", "/agents/{agent}"),
    Screen("ledger", "/agents/{agent}/ledger"),
    Screen("rollback", "/refinements/{done}/rollback"),
    Screen("audit", "/audit"),
    Screen("users", "/settings/users"),
    Screen("schedule", "/settings/schedule"),
    Screen("limits", "/settings/limits"),
    Screen("models", "/settings/models"),
    Screen("health", "/settings/health"),
    Screen("notices", "/settings/notices"),
)


@dataclass(frozen=True)
class Site:
    address: str
    email: str
    password: str


def main() -> None:
    options = _options()
    wanted = [screen for screen in SCREENS if not options.only or screen.name in options.only]
    options.into.mkdir(parents=True, exist_ok=True)
    sizes: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder, ModelServer() as server, MailReceiver() as mail:
        about_mail = {"smtp_url": mail.url, "smtp_from": "whetstone@example.org"}
        settings = load_settings(data_dir=Path(folder) / "data", **about_mail)
        first = prepare_installation(settings)
        fleet = _fill(settings, server)
        with _running(settings.data, mail.url) as address, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            site = Site(address, first.first_email, first.first_password)
            page = _signed_in(browser, site)
            places = _make_busy(page, server, fleet)
            for screen in wanted:
                for scheme in screen.schemes:
                    name = f"{screen.name}-dark" if scheme == "dark" else screen.name
                    sizes[name] = _take(page, screen, scheme, places, options.into / f"{name}.webp")
            browser.close()
    for name, size in sizes.items():
        print(f"{size:>9,} bytes  {name}")
    sys.exit(0 if all(size <= LIMIT for size in sizes.values()) else 1)


def _fill(settings: Settings, server: ModelServer) -> Fleet:
    app = ready_app(Part.COMMAND_LINE, settings)
    security.init_app(app, views=False)
    with app.app_context():
        fleet = make_fleet(app, server.base_url)
        app.extensions["clock"] = SystemClock()
        db.session.remove()
        db.engine.dispose()
    return fleet


def _make_busy(page: Page, server: ModelServer, fleet: Fleet) -> dict[str, str]:
    """Refinements that run now, started in the browser; what the screens' paths may name."""
    places = {}
    for name in LIVE:
        server.script(*_live_script(fleet.pairs[name]))
        agents = page.request.get("/agents.json").json()["agents"]
        agent = next(each["id"] for each in agents if each["name"] == name)
        page.goto(f"/agents/{agent}")
        page.locator("#agent-state").get_by_role("button", name="Refine").click()
        page.wait_for_url(re.compile("/refinements/"))
        expect(page.locator("#refinement-figures")).to_contain_text(f"{ASKED_BEFORE} of at most", timeout=60_000)
        places |= {"agent": str(agent), "refinement": page.url.rpartition("/")[2]}
    done = page.request.get("/refinements.json?status=completed").json()
    return places | {"done": done["refinements"][0]["id"]}


def _live_script(pairs: list[tuple[int, int]]) -> list[ServerReply]:
    """A few changes, and then a model that thinks until the pictures are taken."""
    deletions = [tool_call("delete_memory", id=one, carried_by=carrier) for one, carrier in pairs[:ASKED_BEFORE]]
    return [replace(each, delay=TURN_SECONDS) for each in (text("YES"), *deletions)] + [hang(threading.Event())]


def _take(page: Page, screen: Screen, scheme: str, places: dict[str, str], into: Path) -> int:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.set_viewport_size({"width": WIDTH, "height": screen.height})
    page.goto(screen.path.format(**places))
    page.wait_for_load_state("load")
    expect(page.locator("main")).to_be_visible()
    page.evaluate("document.fonts.ready.then(() => document.activeElement?.blur())")
    page.wait_for_timeout(400)
    session = page.context.new_cdp_session(page)
    taken = session.send("Page.captureScreenshot", {"format": "webp", "quality": QUALITY})
    session.detach()
    into.write_bytes(base64.b64decode(taken["data"]))
    return into.stat().st_size


def _signed_in(browser: Browser, site: Site) -> Page:
    page = browser.new_context(base_url=site.address, device_scale_factor=1.5).new_page()
    page.goto("/sign-in")
    page.get_by_label("E-mail").fill(site.email)
    page.get_by_label("Password").fill(site.password)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{site.address}/")
    return page


@contextmanager
def _running(data: Path, mail_url: str) -> Iterator[str]:
    environment = {**os.environ, "A_KEY": "not-a-real-key"}
    environment |= {"WHETSTONE_SMTP_URL": mail_url, "WHETSTONE_SMTP_FROM": "whetstone@example.org"}
    for name in ("DATABASE_URL", "REDIS_URL"):
        environment.pop(name, None)
    port = free_port()
    command = [sys.executable, "-m", "app", "up", "--no-browser", "--port", str(port), "--data-dir", str(data)]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = read_until_ready(process.stdout)
        if "Whetstone is ready" not in said:
            raise RuntimeError(said)
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=ROOT / "docs" / "pictures")
    parser.add_argument("--only", nargs="*", choices=[screen.name for screen in SCREENS])
    return parser.parse_args()


if __name__ == "__main__":
    main()
