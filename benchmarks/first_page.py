"""What pages weigh on the wire, in a real Chromium: bytes and requests of the first page and of later ones.

`python -m benchmarks.first_page [--agents N]`. A fresh browser opens each page first, then all of them in one window.
Bytes are those that arrive, heads included; an open event stream is one request. Exit status 1 above the limits.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from app import Part, create_app
from app.models import User
from app.models.user import ADMIN
from tests.browser.conftest import CHROMIUM
from tests.support.databases import Template
from tests.support.factories import begin, make_agent, make_user, remember
from tests.support.pages import Site, serving

FIRST_BYTES, FIRST_REQUESTS = 60_000, 5
LATER_BYTES = 15_000
REFINED = 60
"""Agents with a refinement behind them, so that lists and the log are full."""


@dataclass
class Wire:
    """What one page load brought. `asked_again` are files that the browser had and asked for all the same."""

    bytes: int = 0
    requests: list[str] = field(default_factory=list)
    cached: int = 0
    asked_again: list[str] = field(default_factory=list)


def main() -> None:
    agents = _options().agents
    with _site(agents) as (site, user), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        print(f"{agents} agents, {REFINED} refinements")
        print(f"{'page':<34}{'bytes':>9}{'requests':>10}{'from cache':>12}{'asked again':>13}")
        good = [_report_first(browser, site, user, path) for path in ("/sign-in", *_pages(site))]
        with _context(browser, site, user) as context:
            page = context.new_page()
            _load(page, f"{site.url}/exceptions")
            good += [_report_later(page, site, path) for path in _pages(site)]
        browser.close()
    sys.exit(0 if all(good) else 1)


def _pages(site: Site) -> list[str]:
    return ["/", "/agents", "/agents/1", "/audit", "/exceptions"]


def _report_first(browser: Browser, site: Site, user: User, path: str) -> bool:
    with _context(browser, site, None if path == "/sign-in" else user) as context:
        wire = _load(context.new_page(), site.url + path)
    _print(f"first, {path}", wire)
    return wire.bytes <= FIRST_BYTES and len(wire.requests) <= FIRST_REQUESTS


def _report_later(page: Page, site: Site, path: str) -> bool:
    wire = _load(page, site.url + path)
    _print(f"later, {path}", wire)
    return wire.bytes <= LATER_BYTES and not wire.asked_again


def _print(name: str, wire: Wire) -> None:
    print(f"{name:<34}{wire.bytes:>9,}{len(wire.requests):>10}{wire.cached:>12}{len(wire.asked_again):>13}", flush=True)


def _load(page: Page, url: str) -> Wire:
    """Until nothing but the event stream is under way."""
    wire = Wire()
    wanted: dict[str, str] = {}
    session = page.context.new_cdp_session(page)

    def on_request(event: Any) -> None:
        wanted[event["requestId"]] = event["request"]["url"]
        wire.requests.append(event["request"]["url"])

    def on_cached(event: Any) -> None:
        wire.cached += 1
        wire.requests.remove(wanted[event["requestId"]])

    def on_answer(event: Any) -> None:
        if event["response"]["status"] == 304:
            wire.asked_again.append(event["response"]["url"])

    def on_end(event: Any) -> None:
        wire.bytes += int(event["encodedDataLength"])

    session.on("Network.requestWillBeSent", on_request)
    session.on("Network.requestServedFromCache", on_cached)
    session.on("Network.responseReceived", on_answer)
    session.on("Network.loadingFinished", on_end)
    session.send("Network.enable")
    page.goto(url)
    page.wait_for_function("performance.getEntriesByType('navigation')[0].loadEventEnd > 0")
    page.wait_for_timeout(500)
    session.detach()
    return wire


@contextmanager
def _context(browser: Browser, site: Site, user: User | None) -> Iterator[BrowserContext]:
    context = browser.new_context(base_url=site.url)
    if user is not None:
        name, _, value = site.cookie_of(user).partition("=")
        context.add_cookies([{"name": name, "value": value, "url": site.url}])
    try:
        yield context
    finally:
        context.close()


@contextmanager
def _site(agents: int) -> Iterator[tuple[Site, User]]:
    with tempfile.TemporaryDirectory() as folder:
        template = Template(Path(folder) / "template")
        copy = Path(folder) / "data"
        copy.mkdir()
        with template.copy(copy) as settings:
            app = create_app(settings)
            app.extensions["master_key"] = template.master_key
            with app.app_context():
                user = make_user("admin@example.org", ADMIN)
                _fill(agents)
                quiet = settings.model_copy(update={"log_level": "WARNING"})
                with serving(create_app(quiet, part=Part.WEB), keep_alive=15) as site:
                    yield site, user
        template.drop()


def _fill(agents: int) -> None:
    for n in range(agents):
        agent = make_agent(f"agent {n:04}")
        if n < REFINED:
            remember(agent, "Ann likes tea.", "Ann likes tea, and milk.")
            run = begin(agent)
            run.tool.execute("complete", summary="Nothing to do.", note_to_admins="All is well." if n < 5 else None)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=60)
    return parser.parse_args()


if __name__ == "__main__":
    main()
