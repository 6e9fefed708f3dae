"""The Time Machine in a browser: taken back by one press, given back by the toast, and a conflict that offers more."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.test_live_refinement import ids_of
from tests.browser.test_pages import look_at
from tests.support.model_server import ModelServer, ServerReply, text, tool_call


def refine(page: Page, model: ModelServer, *calls: ServerReply) -> str:
    """Refine from the agent's page, and wait for the end; its address."""
    model.script(text("YES"), *calls, tool_call("complete_refinement", summary="Done.", note_to_admins=""))
    page.locator("#agent-state").get_by_role("button", name="Refine").click()
    page.wait_for_url(re.compile("/refinements/"))
    expect(page.locator("#refinement-outcome")).to_contain_text("Completed.", timeout=30_000)
    return page.url


def shorten(number: int, words: str) -> ServerReply:
    return tool_call("update_memory", id=number, content=words)


def conflicting(page: Page, model: ModelServer) -> tuple[str, str]:
    """Two refinements, the second of which changed again what the first had changed."""
    agent, ids = page.url, ids_of(page)
    first = refine(page, model, shorten(ids[0], "Memory 0 of this agent."), shorten(ids[1], "Memory 1 of this agent."))
    page.goto(agent)
    second = refine(page, model, shorten(ids[0], "Memory 0."))
    return first, second


def test_a_refinement_is_rolled_back_and_the_toast_takes_that_back(agent_page: Page, model: ModelServer) -> None:
    page, agent, ids = agent_page, agent_page.url, ids_of(agent_page)
    refinement = refine(page, model, tool_call("delete_memory", id=ids[0], carried_by=ids[-1]))
    page.evaluate("window.notReloaded = true")
    panel, toasts = page.locator("#refinement-rollback"), page.locator("#toasts .toast")

    expect(panel).to_contain_text("Restores 2 memories, removes 1 journal note, 77 → 88 tokens")
    panel.get_by_role("button", name="Roll back").click()
    toast = toasts.filter(has_text="Rolled back: restored 2 memories")
    expect(toast).to_be_visible()
    expect(panel).to_contain_text("by admin@whetstone.local on ")
    expect(page.locator("#refinement-status")).to_contain_text("undone")
    expect(page.locator("#refinement-timeline li.is-reversed")).to_contain_text("Deleted")
    toast.get_by_role("button", name="Undo").click()

    expect(toasts.filter(has_text="The rollback is undone")).to_be_visible()
    expect(panel.get_by_role("button", name="Roll back")).to_be_visible()
    expect(page.locator("#refinement-status")).not_to_contain_text("undone")
    assert page.evaluate("window.notReloaded") is True

    page.goto(f"{agent}/ledger")
    expect(page.locator(f"#memory-{ids[-1]}")).to_be_visible()
    expect(page.locator(f"#memory-{ids[0]}")).to_have_count(0)
    page.goto(agent)
    marks = page.locator("#agent-mass .chart-mark")
    expect(marks).to_have_count(3)
    marks.nth(0).click()
    page.wait_for_url(refinement)


def test_an_open_agent_page_shows_a_rollback_that_happens_elsewhere(agent_page: Page, model: ModelServer) -> None:
    page, agent, ids = agent_page, agent_page.url, ids_of(agent_page)
    refine(page, model, tool_call("delete_memory", id=ids[0], carried_by=ids[-1]))
    other, ledger = page.context.new_page(), page.context.new_page()
    for opened, address in ((other, agent), (ledger, f"{agent}/ledger")):
        opened.goto(address)
        expect(opened.locator("#stream-state")).to_have_attribute("data-state", "live")
    expect(ledger.locator(f"#memory-{ids[0]}")).to_have_count(0)
    expect(other.locator("#agent-mass .chart-mark")).to_have_count(1)
    page.locator("#refinement-rollback").get_by_role("button", name="Roll back").click()

    expect(other.locator("#agent-mass .chart-mark")).to_have_count(2, timeout=20_000)
    expect(ledger.locator(f"#memory-{ids[0]}")).to_be_visible(timeout=20_000)
    expect(other.locator("#agent-recent")).to_contain_text("undone")


def test_ended_pages_show_what_another_tab_takes_back_and_gives_back(agent_page: Page, model: ModelServer) -> None:
    page, ids = agent_page, ids_of(agent_page)
    refinement = refine(page, model, tool_call("delete_memory", id=ids[0], carried_by=ids[-1]))
    other, third = page.context.new_page(), page.context.new_page()
    for tab in (other, third):
        tab.goto(refinement)
        expect(tab.locator("#stream-state")).to_have_attribute("data-state", "live")
    page.locator("#refinement-rollback").get_by_role("button", name="Roll back").click()

    for tab in (other, third):
        expect(tab.locator("#refinement-status")).to_contain_text("undone", timeout=20_000)
    third.locator("#refinement-rollback").get_by_role("link", name="Details").click()
    expect(third.locator("#rollback-state")).to_contain_text("stands")
    other.locator("#refinement-rollback").get_by_role("button", name="Undo the rollback").click()
    expect(third.locator("#rollback-state")).to_contain_text("Undone.", timeout=20_000)
    expect(page.locator("#refinement-rollback").get_by_role("button", name="Roll back")).to_be_visible(timeout=20_000)


def test_a_mark_is_reached_by_the_keyboard_and_names_what_it_is(agent_page: Page, model: ModelServer) -> None:
    page, agent, ids = agent_page, agent_page.url, ids_of(agent_page)
    refinement = refine(page, model, tool_call("delete_memory", id=ids[0], carried_by=ids[-1]))
    page.goto(agent)
    mark = page.locator("#agent-mass").get_by_role("link", name="refinement completed, 88 → 77 tokens").first
    mark.focus()
    expect(mark).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url(refinement)


def test_a_conflict_changes_nothing_and_offers_the_rewind(agent_page: Page, model: ModelServer) -> None:
    page, agent, ids = agent_page, agent_page.url, ids_of(agent_page)
    first, second = conflicting(page, model)
    page.goto(first)
    page.get_by_role("link", name="See what is in the way").click()

    expect(page.get_by_text("Nothing is applied.")).to_be_visible()
    expect(page.locator("#conflicts")).to_contain_text(str(ids[0]))
    expect(page.locator("#conflicts a")).to_have_attribute("href", re.compile(second[-36:]))
    expect(page.locator("#rewind-instead")).to_contain_text("It reverses 2 refinements")
    page.get_by_role("button", name="Rewind instead").click()
    page.wait_for_url(first)
    expect(page.locator("#toasts")).to_contain_text("Rewound: restored 2 memories")
    page.goto(agent)
    expect(page.locator("#agent-recent .chip", has_text="undone")).to_have_count(2)


def test_its_pages_are_accessible_and_fit(agent_page: Page, model: ModelServer, other_tab: Page) -> None:
    agent = agent_page.url
    first, second = conflicting(agent_page, model)
    before = [agent, first, f"{first}/rewind", f"{first}/rollback", second, f"{second}/rollback"]
    assert [wrong for address in before for wrong in look_at(other_tab, address)] == []
    rollback = roll_back(agent_page)
    after = [agent, second, f"{second}/rollback", rollback, f"{rollback}/rollback", f"{agent}/refinements"]
    assert [wrong for address in after for wrong in look_at(other_tab, address)] == []


def roll_back(page: Page) -> str:
    """Press the button on a refinement's page; the address of what it made."""
    panel = page.locator("#refinement-rollback")
    panel.get_by_role("button", name="Roll back").click()
    expect(panel).to_contain_text("by admin@whetstone.local on ")
    panel.get_by_role("link", name="Details").click()
    page.wait_for_url(re.compile("/rollbacks/"))
    return page.url
