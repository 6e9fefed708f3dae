"""The keyboard: Enter on a box or in a field never starts what costs something or can't be undone."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import House
from tests.support.model_server import ModelServer, text, tool_call


@pytest.fixture
def requests(page: Page) -> list[str]:
    """The paths of all POSTs of this browser."""
    sent: list[str] = []
    page.context.on("request", lambda each: sent.append(each.url) if each.method == "POST" else None)
    return sent


def test_the_main_job_needs_no_mouse(agent_page: Page, model: ModelServer) -> None:
    """Find an agent, start a refinement, see it end, and work off what its agent wrote."""
    page, name = agent_page, agent_page.locator("h1").inner_text()
    note = tool_call("complete_refinement", summary="Done.", note_to_admins="All is well.")
    model.script(text("YES\nTo admins: hello there"), note)
    page.goto("/agents")
    tab_to(page, "Name contains")
    page.keyboard.type(name)
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("query="))
    tab_to(page, name)
    page.keyboard.press("Enter")
    page.locator("#agent-state").wait_for()
    tab_to(page, "Refine")
    page.keyboard.press("Enter")
    page.locator("#refinement-status [data-status=completed]").wait_for()
    tab_to(page, name)
    page.keyboard.press("Enter")
    page.locator("#attention .notice").nth(1).wait_for()

    tab_to(page, "Mark as seen")
    page.keyboard.press("Enter")
    expect(page.locator("#attention .notice")).to_have_count(1)
    expect(page.locator("#attention").get_by_role("button", name="Mark as seen")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#attention")).to_be_hidden()
    expect(page.locator("#main")).to_be_focused()


def test_keys_of_one_letter_leave_alone_who_types_or_does_not_want_them(agent_page: Page) -> None:
    page, help_dialog = agent_page, agent_page.get_by_role("dialog", name="Keyboard")
    page.goto("/agents")
    page.keyboard.press("/")
    field = page.get_by_label("Name contains")
    expect(field).to_be_focused()
    page.keyboard.type("ga?/u")
    expect(field).to_have_value("ga?/u")
    expect(help_dialog).to_be_hidden()

    page.get_by_role("link", name="Audit", exact=True).focus()
    for chord in ("Control+g", "Alt+?", "Meta+/"):
        page.keyboard.press(chord)
    page.keyboard.press("e")
    page.keyboard.press("?")
    expect(help_dialog).to_contain_text("Search or filter this page")
    page.keyboard.press("g")
    page.keyboard.press("e")
    page.get_by_label("Use these keys in this browser").press("Space")
    page.keyboard.press("Escape")
    expect(help_dialog).to_be_hidden()
    for key in ("/", "?", "g", "e"):
        page.keyboard.press(key)
    expect(help_dialog).to_be_hidden()
    assert page.url.endswith("/agents")
    page.get_by_role("button", name="Keyboard").click()
    page.get_by_label("Use these keys in this browser").check()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("u")
    page.wait_for_url(re.compile("/audit$"))
    expect(page.locator("h1")).to_be_focused()


def tab_to(page: Page, words: str) -> None:
    """Press Tab until what has the focus is called so."""
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.evaluate("(document.activeElement.labels?.[0] ?? document.activeElement).textContent.trim()") == words:
            return
    raise AssertionError(f"Tab does not reach {words!r}")


def test_enter_on_a_box_does_nothing_and_space_selects(agent_page: Page, requests: list[str]) -> None:
    page = agent_page
    name = page.locator("h1").inner_text()
    page.goto(f"/agents?query={name}")
    bar, box = page.locator(".bulk"), page.get_by_role("checkbox", name=f"Select {name}")
    expect(bar).to_contain_text("Select agents to act on them")
    expect(bar.get_by_role("button")).to_have_count(0)

    box.focus()
    page.keyboard.press("Enter")
    expect(box).not_to_be_checked()
    page.keyboard.press("Space")
    expect(bar).to_contain_text("1 selected")
    expect(bar.get_by_role("button", name="Refine")).to_be_visible()
    page.set_viewport_size({"width": 360, "height": 300})
    page.locator("tbody tr td").last.evaluate("each => each.scrollIntoView()")
    expect(bar).to_be_in_viewport(ratio=1)  # on a phone too, however far down the list
    assert bar.evaluate("each => each.getBoundingClientRect().top > 0")
    page.keyboard.press("Enter")
    page.get_by_role("checkbox", name="Select all on this page").press("Enter")
    expect(bar).to_contain_text("1 selected")
    page.get_by_role("checkbox", name="Select all on this page").press("Space")
    expect(bar.get_by_role("button")).to_have_count(0)
    page.reload()
    assert requests == []


def test_without_scripts_enter_on_a_box_shows_the_selection_and_starts_nothing(agent_page: Page, house: House) -> None:
    name = agent_page.locator("h1").inner_text()
    browser = agent_page.context.browser
    assert browser is not None
    state = agent_page.context.storage_state()
    plain = browser.new_context(base_url=house.address, storage_state=state, java_script_enabled=False)
    page = plain.new_page()
    page.goto(f"/agents?query={name}")
    box = page.get_by_role("checkbox", name=f"Select {name}")
    box.press("Space")
    box.press("Enter")
    page.wait_for_url(re.compile("/agents/selection"))

    expect(page.locator(".bulk")).to_contain_text("1 selected")
    expect(box).to_be_checked()
    box.uncheck()
    page.get_by_role("button", name="Refine").click()
    expect(page.get_by_role("alert")).to_have_text("No agents selected. Select at least one.")
    box.check()
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#toasts")).to_contain_text("1 agent paused.")
    page.goto(f"/agents?query={name}")
    expect(page.locator("tbody tr")).to_contain_text("never")
    plain.close()


def test_enter_in_a_field_makes_no_token_and_forgets_no_agent(agent_page: Page, requests: list[str]) -> None:
    page, agent = agent_page, re.sub(r"[?#].*", "", agent_page.url)
    page.goto(f"{agent}/tokens")
    page.get_by_label("Name").fill("laptop")
    page.get_by_label("Name").press("Enter")
    page.get_by_label("author").press("Enter")
    page.goto(f"{agent}/forget")
    page.get_by_label("Type its name").fill(page.locator("h1").inner_text())
    page.get_by_label("Type its name").press("Enter")
    page.goto(f"{agent}/exceptions/new")
    page.locator("input:not([type=hidden])").first.press("Enter")
    page.reload()
    assert requests == []
