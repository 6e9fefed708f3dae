"""The first minutes of an admin: sign in, try the demo, watch it work, read what it did."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import House


def test_an_admin_signs_in_tries_the_demo_and_sees_its_outcome_without_a_reload(page: Page, house: House) -> None:
    page.goto("/")
    page.get_by_role("button", name="Try the demo").click()
    expect(page.locator("#overview-running")).to_contain_text("Wren")
    page.evaluate("window.notReloaded = true")

    expect(page.locator("#overview-recent [data-status=completed]")).to_have_count(2, timeout=60_000)
    expect(page.locator("#overview-running")).to_contain_text("Nothing is running.")
    assert page.evaluate("window.notReloaded") is True

    page.locator("#overview-recent").get_by_role("link", name="Wren").click()
    expect(page.locator("#refinement-outcome")).to_contain_text("every change passed the guards")
    expect(page.locator("#refinement-timeline")).to_contain_text("exact duplicates removed")
    expect(page.locator("#refinement-timeline")).to_contain_text(re.compile(r"Deleted memory \d+"))


@pytest.mark.usefixtures("demo")
def test_a_memory_is_made_constitutional_and_released_by_its_undo(page: Page, house: House) -> None:
    page.goto("/agents")
    page.get_by_role("link", name="Crumb").click()
    page.get_by_role("navigation", name="Agent", exact=True).get_by_role("link", name="Ledger").click()
    row = page.locator("#ledger tbody tr").filter(has_text="Make constitutional").first
    row_id = row.get_attribute("id")
    row.get_by_role("button", name="Make constitutional").click()

    expect(page.locator(f"#{row_id}")).to_contain_text("constitutional")
    toast = page.locator("#toasts .toast").filter(has_text="no refinement touches it")
    toast.get_by_role("button", name="Undo").click()
    expect(page.locator(f"#{row_id}").get_by_role("button", name="Make constitutional")).to_be_visible()


@pytest.mark.usefixtures("demo")
def test_a_checked_row_stays_checked_when_the_stream_brings_a_new_one(page: Page, house: House) -> None:
    page.goto("/agents")
    box = page.get_by_role("checkbox", name="Select Crumb")
    box.check()
    expect(page.locator("#stream-state")).to_have_attribute("data-state", "live")
    other = page.context.new_page()
    other.goto("/agents")
    other.get_by_role("link", name="Crumb").click()
    other.get_by_role("button", name="Exact duplicates only").click()
    other.wait_for_url(re.compile("/refinements/"))

    expect(page.locator("tr", has_text="Crumb").locator("time[data-ago]")).to_have_text(
        re.compile("just now|s ago"), timeout=20_000
    )
    expect(box).to_be_checked()


@pytest.mark.usefixtures("demo")
def test_pausing_shows_at_once_and_a_second_press_takes_it_back(page: Page, house: House) -> None:
    page.goto("/agents")
    page.get_by_role("link", name="Wren").click()
    page.locator("#agent-state").get_by_role("button", name="Pause").click()

    expect(page.locator("#agent-state")).to_contain_text("Paused: nothing starts by itself")
    page.locator("#agent-state").get_by_role("button", name="Resume").click()
    expect(page.locator("#agent-state")).to_contain_text("Next run")


@pytest.mark.usefixtures("demo")
def test_the_pages_work_without_scripts(house: House, page: Page) -> None:
    browser = page.context.browser
    assert browser is not None
    plain = browser.new_context(
        base_url=house.address, storage_state=page.context.storage_state(), java_script_enabled=False
    )
    bare = plain.new_page()
    bare.goto("/agents")
    bare.get_by_role("link", name="Wren").click()
    bare.locator("#agent-state").get_by_role("button", name="Pause").click()
    expect(bare.locator("#toasts")).to_contain_text("Wren is paused")
    bare.locator("#toasts").get_by_role("button", name="Undo").click()
    expect(bare.locator("#toasts")).to_contain_text("Wren is resumed")
    plain.close()
