"""A mechanic's exception in a real browser: asked for, granted live, read, and cleared in time in every open tab."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.conftest import CHROMIUM, MEMORIES, House
from tests.browser.test_live_refinement import held, ids_of
from tests.browser.test_pages import look_at, look_at_this
from tests.support.model_server import ModelServer, text, tool_call

SEEN = "Memory 3 of this agent"
CLEARED = 5_000
"""Milliseconds within which content is gone from every open tab."""


def ask(page: Page, *, scope: str = "ledger") -> str:
    """Fill the form on the agent's page; the address of the exception."""
    page.get_by_role("navigation", name="Agent", exact=True).get_by_role("link", name="Exceptions").click()
    page.locator("#main").get_by_role("link", name=re.compile("^Ask ")).click()
    page.get_by_label("What you want to read").select_option(scope)
    page.get_by_label("In your own words").fill("It repeats itself.")
    expect(page.locator("#f-purpose-hint")).to_contain_text("18 of 500 characters.")
    page.get_by_role("button", name=re.compile("^Ask ")).click()
    page.wait_for_url(re.compile("/exceptions/[0-9a-f-]{36}$"))
    return page.url


def granted(page: Page, model: ModelServer, *, scope: str = "ledger") -> str:
    model.script(text("YES.\nTo admins: be quick"))
    address = ask(page, scope=scope)
    expect(page.locator("#exception-state [data-status]")).to_have_attribute("data-status", "granted", timeout=60_000)
    return address


def opened(page: Page) -> Page:
    page.locator("#my-exceptions").get_by_role("link", name=re.compile("^Read (memories|the history)")).click()
    expect(page.locator("#content")).to_be_visible()
    return page


@pytest.fixture(autouse=True)
def none_live_from_before(house: House) -> None:
    expire_in(house, 0)


def expire_in(house: House, seconds: int) -> None:
    """All that are live."""
    moment = f"strftime('%Y-%m-%d %H:%M:%f000', 'now', '+{seconds} seconds')"
    with closing(sqlite3.connect(house.data / "whetstone.db", timeout=15)) as database, database:
        database.execute(f"UPDATE access_grants SET expires_at = {moment} WHERE status = 'granted'")


def kept_by(page: Page) -> str:
    """Everything that a page leaves behind in the browser for later ones."""
    return str(page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, history.state])"))


def test_it_is_asked_granted_and_read_and_revoked_in_one_tab_it_is_gone_in_both(
    agent_page: Page, model: ModelServer
) -> None:
    page = agent_page
    yes, answer = held(text("YES.\nTo admins: be quick"))
    model.script(yes)
    ask(page)
    page.evaluate("window.notReloaded = true")
    expect(page.locator("#exception-state")).to_contain_text("is being asked")
    expect(page.locator(".live-exception")).to_have_count(0)
    answer.set()

    expect(page.locator("#exception-state [data-status]")).to_have_attribute("data-status", "granted", timeout=60_000)
    expect(page.locator("#exception-state")).to_contain_text("be quick")
    expect(page.locator(".live-exception")).to_contain_text("29 min left", timeout=20_000)
    assert page.evaluate("window.notReloaded") is True

    other = page.context.new_page()
    other.goto(page.url)
    opened(page)
    expect(page.locator("#content article")).to_have_count(MEMORIES)
    expect(page.locator("#content")).to_contain_text(SEEN)
    expect(page.locator(".live-exception")).to_contain_text("29 min left")
    expect(other.locator("#exception-views")).to_contain_text(f"{MEMORIES} memories of the ledger")
    opened(other)

    other.locator("#my-exceptions").get_by_role("button", name="Revoke").click()
    for tab in (page, other):
        expect(tab.locator("#content")).to_have_count(0, timeout=CLEARED)
        expect(tab.locator("#content-gone")).to_contain_text("The exception has ended")
        expect(tab.locator(".live-exception")).to_have_count(0, timeout=CLEARED)
        assert SEEN not in tab.content()
    expect(other.locator("#toasts")).to_contain_text("may be asked again")


def test_at_its_minute_it_is_gone_from_every_tab(agent_page: Page, model: ModelServer, house: House) -> None:
    page = agent_page
    address = granted(page, model)
    other = page.context.new_page()
    other.goto(address)
    for tab in (page, other):
        opened(tab)
    expire_in(house, 6)

    for tab in (page, other):
        expect(tab.locator("#content")).to_be_visible()
    for tab in (page, other):
        expect(tab.locator("#content")).to_have_count(0, timeout=6_000 + CLEARED)
        expect(tab.locator("#content-gone")).to_contain_text("The exception has ended")
        assert SEEN not in tab.content()
    page.reload()
    expect(page.get_by_role("heading", name="Nothing is shown")).to_be_visible()
    expect(page.locator(".live-exception")).to_have_count(0)


def test_a_page_that_lost_the_server_clears_itself_and_only_a_reload_brings_content_back(
    agent_page: Page, model: ModelServer
) -> None:
    page = agent_page
    granted(page, model)
    opened(page)
    page.context.set_offline(True)
    expect(page.locator("#content")).to_have_count(0, timeout=CLEARED)
    expect(page.locator("#content-gone")).to_contain_text("Connection lost.")
    page.context.set_offline(False)
    expect(page.locator("#stream-state")).to_have_attribute("data-state", "live", timeout=60_000)
    assert SEEN not in page.content()
    page.reload()
    expect(page.locator("#content")).to_contain_text(SEEN)


def test_no_script_no_content(house: House, chromium: Browser, agent_page: Page, model: ModelServer) -> None:
    address = granted(agent_page, model)
    state = agent_page.context.storage_state()
    context = chromium.new_context(base_url=house.address, storage_state=state, java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{address}/ledger")
    expect(page.locator("#content")).to_be_hidden()
    expect(page.locator("#content-waiting")).to_contain_text("without it nothing is shown")
    context.close()


@pytest.fixture
def remembering(chromium: Browser, house: House, signed_in: dict[str, object]) -> Iterator[BrowserContext]:
    """A browser that keeps whole pages for its back button, as people's browsers do and driven ones do not."""
    browser = chromium.browser_type.launch(
        executable_path=CHROMIUM, args=["--no-sandbox"], ignore_default_args=["--disable-back-forward-cache"]
    )
    context = browser.new_context(base_url=house.address, storage_state=signed_in)  # type: ignore[arg-type]
    context.add_init_script(
        "addEventListener('pageshow', (event) => { if (event.persisted) "
        "sessionStorage.setItem('brought back', document.documentElement.textContent.includes('of this agent')); });"
    )
    yield context
    browser.close()


def test_the_back_button_brings_no_content_back(
    remembering: BrowserContext, agent_page: Page, model: ModelServer
) -> None:
    address = granted(agent_page, model)
    page = remembering.new_page()
    page.goto(address)
    opened(page)
    page.goto("/agents")
    assert "of this agent" not in kept_by(page)
    page.go_back()
    expect(page.locator("#content")).to_contain_text(SEEN)
    page.goto("/agents")
    agent_page.locator("#exception-state").get_by_role("button", name="Revoke").click()
    expect(agent_page.locator("#exception-state")).to_contain_text("looked 2 times")
    page.go_back()

    expect(page.get_by_role("heading", name="Nothing is shown")).to_be_visible()
    assert SEEN not in page.content()
    assert "of this agent" not in kept_by(page)
    assert '"brought back":"true"' not in kept_by(page)


def test_a_page_that_is_left_takes_its_content_with_it_even_if_the_browser_keeps_it(
    agent_page: Page, model: ModelServer
) -> None:
    page = agent_page
    address = granted(page, model)
    opened(page)
    page.evaluate("dispatchEvent(new PageTransitionEvent('pagehide', { persisted: true }))")
    expect(page.locator("#content")).to_have_count(0)
    assert SEEN not in page.content()
    with page.expect_navigation():
        page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
    expect(page.locator("#content")).to_contain_text(SEEN)
    page.goto(address)
    expect(page.locator("#exception-views li")).to_have_count(2)


def test_the_history_of_a_refinement_shows_what_changed_word_by_word(agent_page: Page, model: ModelServer) -> None:
    page, agent, ids = agent_page, agent_page.url, ids_of(agent_page)
    short = {"id": ids[0], "content": "Memory 0 of this agent, as short as others."}
    model.script(
        text("YES"),
        tool_call("update_memory", **short),
        tool_call("update_memory", **short, confirm_loss=True),
        tool_call("delete_memory", id=ids[1], carried_by=ids[-1]),
        tool_call("complete_refinement", summary="I shortened one.", note_to_admins=""),
    )
    page.locator("#agent-state").get_by_role("button", name="Refine").click()
    expect(page.locator("#refinement-outcome")).to_contain_text("Completed.", timeout=60_000)
    refinement = page.url[-36:]
    page.goto(agent)
    granted(page, model, scope=refinement)
    opened(page)

    content = page.locator("#content")
    expect(content.locator("del")).to_contain_text("long")
    expect(content.locator("ins")).to_contain_text("short")
    expect(content).to_contain_text("removed")
    expect(content).to_contain_text("I shortened one.")
    assert SEEN not in page.content()


HOSTILE = (
    "<img src=//elsewhere.example/x onerror='window.hacked = 1'><script>window.hacked = 2</script>"
    "<div hx-get='/agents' hx-trigger='load' hx-target='body'></div><a href='javascript:window.hacked = 3'>press</a>"
    "</bdi></article></div><meta http-equiv=refresh content='0;url=/agents'>"
    "\u202ebackwards\u202c z\u0335\u0321\u0322a\u200bb"
)


def test_hostile_content_stays_text(agent_page: Page, model: ModelServer, house: House, tmp_path: Path) -> None:
    page, agent = agent_page, agent_page.url
    file = tmp_path / "hostile.jsonl"
    file.write_text(json.dumps({"content": HOSTILE, "tags": ["<b>"]}) + "\n" + json.dumps({"content": "W" * 10_000}))
    page.get_by_role("link", name="Import").click()
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("button", name="Check and import").click()
    expect(page.locator("#agent-intakes")).to_contain_text("2 imported", timeout=60_000)
    page.goto(agent)
    granted(page, model)
    strangers: list[str] = []
    page.on("request", lambda request: strangers.append(request.url) if house.address not in request.url else None)
    page.set_viewport_size({"width": 360, "height": 800})
    opened(page)

    expect(page.locator("#content article")).to_have_count(MEMORIES + 2)
    expect(page.locator("#content")).to_contain_text("<img src=//elsewhere.example/x onerror='window.hacked = 1'>")
    expect(page.locator("#content .unseen")).to_have_text(["RLO", "PDF", "ZWSP"])
    assert page.locator("#content").locator("img, script, a[href^=javascript], [hx-get], meta").count() == 0
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert strangers == []


def test_what_is_read_can_be_made_constitutional_there_and_back(agent_page: Page, model: ModelServer) -> None:
    page = agent_page
    granted(page, model)
    opened(page)
    text = page.locator("#content article", has_text=SEEN)
    looks = page.request.get(f"{page.url.removesuffix('/ledger')}.json").json()["views"]
    text.get_by_role("button", name="Make constitutional").click()

    expect(text.locator(".chip")).to_have_text(["constitutional"])
    expect(text).to_contain_text(SEEN)
    page.locator("#toasts .toast").get_by_role("button", name="Undo").click()
    expect(text.locator(".chip")).to_have_count(0)
    expect(text.get_by_role("button", name="Make constitutional")).to_be_visible()
    expect(page.locator("#content")).to_contain_text(SEEN)
    assert page.request.get(f"{page.url.removesuffix('/ledger')}.json").json()["views"] == looks


def test_its_pages_are_accessible_and_fit(agent_page: Page, model: ModelServer, other_tab: Page) -> None:
    agent = agent_page.url
    address = granted(agent_page, model)
    pages = ["/exceptions", f"{agent}/exceptions", f"{agent}/exceptions/new", address, agent]
    wrong = [each for page in pages for each in look_at(other_tab, page)]
    other_tab.goto(f"{address}/ledger")
    expect(other_tab.locator("#content")).to_be_visible()
    assert wrong + look_at_this(other_tab) == []
