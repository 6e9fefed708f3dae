"""Every main page: no accessibility violation in either theme, nothing wider than the screen, no policy broken."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from tests.browser.conftest import House

TAGS = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}}


@pytest.fixture(scope="package")
def addresses(house: House, chromium: Browser, signed_in: dict[str, object]) -> list[str]:
    """The pages of an installation with one agent that was refined."""
    context = chromium.new_context(base_url=house.address, storage_state=signed_in)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto("/")
    if page.get_by_role("button", name="Try the demo").count():
        page.get_by_role("button", name="Try the demo").click()
    page.locator("#overview-recent [data-status=completed]").nth(1).wait_for(timeout=60_000)
    page.goto("/agents")
    page.get_by_role("link", name="Wren").click()
    agent = page.url
    page.locator("#agent-recent a").last.click()
    page.wait_for_url(re.compile("/refinements/"))
    refinement = page.url
    context.close()
    tabs = [f"{agent}/{tab}" for tab in ("refinements", "imports", "settings", "tokens", "audit")]
    audits = ["/audit", "/audit?actor=agent", "/audit?agent=nobody&from=never"]
    return ["/", "/agents", "/agents?query=nobody", "/agents/new", agent, *tabs, refinement, *audits, "/agents/987654"]


@pytest.fixture
def unguarded(house: House, chromium: Browser, signed_in: dict[str, object]) -> Iterator[Page]:
    """A page without the content policy, which the checker's own inline styles would break."""
    context = chromium.new_context(base_url=house.address, storage_state=signed_in, bypass_csp=True)  # type: ignore[arg-type]
    yield context.new_page()
    context.close()


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 360)])
def test_every_page_is_accessible(
    unguarded: Page, addresses: list[str], theme: Literal["light", "dark"], width: int
) -> None:
    unguarded.emulate_media(color_scheme=theme)
    unguarded.set_viewport_size({"width": width, "height": 800})
    for address in addresses:
        unguarded.goto(address)
        check(unguarded, address)


@pytest.mark.parametrize("width", [1280, 768, 360])
def test_every_page_fits_and_keeps_to_the_content_policy(page: Page, addresses: list[str], width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    for address in addresses:
        page.goto(address)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, address


def test_the_sign_in_page_is_accessible(house: House, chromium: Browser) -> None:
    context = chromium.new_context(base_url=house.address, bypass_csp=True)
    page = context.new_page()
    page.goto("/sign-in")
    check(page, "/sign-in")
    page.get_by_label("E-mail").fill("nobody@example.org")
    page.get_by_label("Password").fill("not the password")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("alert").wait_for()
    check(page, "/sign-in")
    context.close()


def check(page: Page, address: str) -> None:
    found = Axe().run(page, options=TAGS).response["violations"]
    said = [(each["id"], each["nodes"][0]["html"][:160]) for each in found]
    assert said == [], address
