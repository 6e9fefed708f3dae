"""Every main page: no accessibility violation in either theme, nothing wider than the screen, no policy broken."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import cycle
from typing import Literal

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import House, create_agent
from tests.browser.desk import DESK, NARROW, Size
from tests.support.model_server import ModelServer

TABLET: Size = (768, 800)
Look = tuple[Literal["light", "dark"], Size]
LOOKS: tuple[Look, ...] = (("light", DESK), ("dark", NARROW))
IN_TURN = [LOOKS] if os.environ.get("WHETSTONE_LONG") else [(look,) for look in LOOKS]
"""Of pages that another test asks for in all of them: what one after the other is asked for."""

RULES = {
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    "resultTypes": ["violations"],
    "preload": False,
    "selectors": False,
}
"""By their tags. What is all right is not told of, nor where an element is found again; no style sheet is fetched once
more, since none of them reads it."""

FIND_VIOLATIONS = """async (rules) =>
  (await axe.run(rules)).violations.map(({ id, nodes }) => [id, nodes[0].html.slice(0, 160)])"""


DEAD = "http://127.0.0.1:9/v1"
"""Nobody listens there."""


@pytest.fixture(scope="package")
def addresses(house: House, chromium: Browser, signed_in: dict[str, object], safety_model: ModelServer) -> list[str]:
    """The pages that show it, of an installation with one agent that was refined and two that need attention."""
    context = chromium.new_context(base_url=house.address, storage_state=signed_in)  # type: ignore[arg-type]
    page = context.new_page()
    agent, refinement = has_refined(page)
    held, failed = has_a_held_prompt_and_said_no(page, safety_model), has_failed(page)
    context.close()
    tabs = [f"{agent}/{tab}" for tab in ("ledger", "refinements", "imports", "tokens", "audit")]
    audits = ["/audit", "/audit?actor=agent"]
    troubles = [f"{held}/settings", "/attention", "/refinements", failed]
    return ["/", "/agents", agent, *tabs, refinement, *audits, *troubles, "/settings/models", "/settings/health"]


def has_refined(page: Page) -> tuple[str, str]:
    """An agent that found an exact duplicate and one more memory to delete; its address and its refinement's."""
    token = make_agent(page, "Refined", model_id="whetstone/offline")
    for content in ("Ann likes tea.", "Ann likes tea.", "Ann likes tea. Bob likes rum.", "Ann hums at night."):
        remember(page, token, content)
    remember(page, token, "The sound of her voice.", "audio", "voice")
    ended(page, "completed")
    refinement = page.url
    page.get_by_role("navigation", name="Breadcrumbs").get_by_role("link", name="Refined").click()
    page.locator("#agent-figures").wait_for()
    return page.url, refinement


def has_a_held_prompt_and_said_no(page: Page, model: ModelServer) -> str:
    """An agent whose prompt the safety model does not let through, and that wrote to the admins; its address."""
    token = make_agent(page, "Held", model.base_url)
    remember(page, token, "Ann likes tea.")
    said = {"Authorization": f"Bearer {token}"}
    assert page.request.put("/api/v1/settings/system_prompt", headers=said, data={"value": "Say little."}).ok
    ended(page, "declined")
    page.get_by_role("navigation", name="Breadcrumbs").get_by_role("link", name="Held").click()
    page.locator("#agent-figures").wait_for()
    address = page.url
    page.goto(f"{address}/settings")
    expect(page.locator("#settings-waiting .said")).to_contain_text("It hides what it does.")
    return address


def has_failed(page: Page) -> str:
    """An agent whose model can't be reached; the address of its refinement."""
    remember(page, make_agent(page, "Unreachable", DEAD), "Ann likes tea.")
    ended(page, "failed")
    return page.url


def make_agent(page: Page, *named: str, **more: str) -> str:
    """Its token, once it has its keys; the page is its own."""
    token = create_agent(page, *named, **more)
    page.get_by_role("link", name="To the agent").click()
    page.locator("#agent-state").get_by_text("OK", exact=True).wait_for()
    return token


def remember(page: Page, token: str, content: str, *tags: str) -> None:
    """As the agent itself does it, over the API."""
    said = {"Authorization": f"Bearer {token}"}
    memory = {"content": content, "type": "core", "tags": tags}
    assert page.request.post("/api/v1/memories", headers=said, data=memory).ok


def ended(page: Page, status: str) -> None:
    """Refine the agent whose page this is, to this end."""
    page.get_by_role("button", name="Refine", exact=True).click()
    page.locator(f"#refinement-status [data-status={status}]").wait_for()


def test_every_page_is_accessible_fits_and_keeps_to_the_content_policy(page: Page, addresses: list[str]) -> None:
    """Accessible in one theme each, in turn: `test_every_page` asks for both of all kinds of pages."""
    looks = zip(addresses, cycle(IN_TURN), strict=False)
    assert [wrong for address, checked in looks for wrong in look_at(page, address, checked)] == []


@pytest.mark.usefixtures("addresses")
def test_a_phone_shows_of_every_failure_how_many_agents_it_is_about(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 800})
    page.goto("/")
    count = page.locator(".reasons li", has_text="could not be reached").get_by_text("1 agent")
    assert count.evaluate("each => each.getBoundingClientRect().right") <= 360


def test_the_sign_in_page_is_accessible(house: House, chromium: Browser) -> None:
    context = chromium.new_context(base_url=house.address)
    page = context.new_page()
    page.goto("/sign-in")
    check(page, "/sign-in")
    page.get_by_label("E-mail").fill("nobody@example.org")
    page.get_by_label("Password").fill("not the password")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("alert").wait_for()
    check(page, "/sign-in")
    context.close()


FAULTY = """<!doctype html><html lang="en"><head><title>Faulty</title></head><body><main><h1>Faulty</h1>
<p style="color: #999; background: #fff">Grey on white</p><img src="data:,"><input type="text"></main></body></html>"""


def test_a_page_with_faults_is_told_of_each_of_them(other_tab: Page) -> None:
    """Or nothing would be said of the pages that are looked at with the same words and options."""
    other_tab.set_content(FAULTY)
    assert sorted(rule for rule, _ in violations(other_tab)) == ["color-contrast", "image-alt", "label"]


def fits(page: Page, address: str, width: int) -> None:
    assert not is_wider(page, width), address


def is_wider(page: Page, width: int) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth") > width)


def check(page: Page, address: str) -> None:
    assert violations(page) == [], address


def look_at(page: Page, address: str, checked: Sequence[Look] = LOOKS) -> list[str]:
    """What is wrong with it, in both themes, as wide as a desk and as a phone; and whether it fits between them too.

    `checked`: in which of them accessibility is asked for.
    """
    page.goto(address)
    return look_at_this(page, checked)


def look_at_this(page: Page, checked: Sequence[Look] = LOOKS) -> list[str]:
    """The same of the page that is open."""
    wrong = []
    for theme, size in LOOKS:
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        wrong += widened(page, size)
        if (theme, size) in checked:
            wrong += [f"{page.url}, {theme}, {size[0]}: {each}" for each in violations(page)]
    return wrong + widened(page, TABLET)


def widened(page: Page, size: Size) -> list[str]:
    """Gives the page this size; what is wrong if it is wider then."""
    width, height = size
    page.set_viewport_size({"width": width, "height": height})
    return [f"{page.url}: wider than {width}"] if is_wider(page, width) else []


def violations(page: Page) -> list[tuple[str, str]]:
    """Of accessibility: the rule, and the element that broke it."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    return [(rule, element) for rule, element in page.evaluate(FIND_VIOLATIONS, RULES)]
