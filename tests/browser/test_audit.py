"""The audit log in front of somebody: new entries come by themselves, folds stay open, filtered pages keep still."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import House


@pytest.fixture
def wren(page: Page, demo: None) -> Iterator[Page]:
    """The page of one of the demo's agents, in a tab of its own: things are done there."""
    tab = page.context.new_page()
    tab.goto("/agents")
    tab.get_by_role("link", name="Wren").click()
    tab.locator("#agent-state").wait_for()
    yield tab
    if tab.get_by_role("button", name="Resume").count():
        tab.get_by_role("button", name="Resume").click()
        tab.get_by_role("button", name="Pause").wait_for()


def pause(tab: Page) -> None:
    tab.locator("#agent-state").get_by_role("button", name="Pause").click()
    tab.locator("#agent-state").get_by_role("button", name="Resume").wait_for()


def resume(tab: Page) -> None:
    tab.locator("#agent-state").get_by_role("button", name="Resume").click()
    tab.locator("#agent-state").get_by_role("button", name="Pause").wait_for()


def watch(page: Page, path: str) -> None:
    page.goto(path)
    expect(page.locator("#stream-state")).to_have_attribute("data-state", "live", timeout=30_000)
    page.evaluate("window.notReloaded = true")


@pytest.mark.parametrize("path", ["/audit", "the agent's"])
def test_new_entries_appear_at_the_head_and_an_open_fold_stays_open(page: Page, wren: Page, path: str) -> None:
    watch(page, f"{wren.url}/audit" if path == "the agent's" else path)
    fold = page.locator("#audit-live details.fold").last
    fold.locator("summary").click()
    expect(fold.locator("ol.timeline > li").first).to_contain_text("The refinement ended")
    entries = fold.locator("ol.timeline > li").count()

    pause(wren)

    head = page.locator("#audit-live ol.timeline > li").first
    expect(head).to_contain_text("Paused the agent", timeout=20_000)
    resume(wren)
    expect(head).to_contain_text("Resumed the agent", timeout=20_000)
    expect(fold).to_have_attribute("open", "")
    expect(fold.locator("ol.timeline > li")).to_have_count(entries)
    expect(fold.locator("ol.timeline > li").first).to_be_visible()
    assert page.evaluate("window.notReloaded") is True
    assert entries > 3


def test_a_filter_holds_in_the_address_and_the_page_says_what_is_newer(page: Page, wren: Page) -> None:
    page.goto("/audit")
    page.get_by_label("Who").select_option("People")
    page.get_by_label("Agent").fill("Wren")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url(re.compile(r"/audit\?agent=Wren&actor=user"))
    watch(page, page.url)
    expect(page.locator("#audit-log details.fold")).to_have_count(0)
    before = page.locator("#audit-log").inner_text()

    pause(wren)

    newer = page.locator("#audit-newer")
    expect(newer).to_contain_text("1 newer entry.", timeout=20_000)
    resume(wren)
    expect(newer).to_contain_text("2 newer entries.", timeout=20_000)
    assert page.locator("#audit-log").inner_text() == before
    assert page.evaluate("window.notReloaded") is True
    newer.get_by_role("link", name="Show the newest").click()
    expect(page.locator("#audit-log li").first).to_contain_text("Resumed the agent")
    expect(page.get_by_label("Who")).to_have_value("user")
    page.get_by_role("link", name="Clear").click()
    page.wait_for_url(re.compile(r"/audit$"))


def test_a_phone_reads_it_without_scrolling_sideways(page: Page, wren: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 780})
    watch(page, "/audit")
    fold = page.locator("details.fold").last
    fold.locator("summary").click()
    expect(fold.locator("ol.timeline > li").first).to_be_visible()

    assert page.evaluate("document.documentElement.scrollWidth") == 360
    for name in ("Agent", "Who", "What", "From day", "To day", "Refinement"):
        box = page.get_by_label(name, exact=True).bounding_box()
        assert box is not None
        assert box["x"] >= 0, name
        assert box["x"] + box["width"] <= 360, name
        assert box["height"] >= 32, name


def test_files_are_downloaded_with_the_filters(page: Page, wren: Page) -> None:
    page.goto("/audit?action=agent_create&agent=Wren")
    for name, suffix in (("CSV", "csv"), ("JSON Lines", "jsonl")):
        with page.expect_download() as download:
            page.get_by_role("link", name=name).click()
        assert download.value.suggested_filename == f"audit.{suffix}"
        said = download.value.path().read_text()
        assert said.count("agent_create") == 1
        assert "Wren" in said
        assert "Crumb" not in said


def test_it_is_read_without_scripts_too(page: Page, wren: Page, house: House) -> None:
    browser = page.context.browser
    assert browser is not None
    plain = browser.new_context(
        base_url=house.address, storage_state=page.context.storage_state(), java_script_enabled=False
    )
    bare = plain.new_page()
    bare.goto("/audit")
    bare.get_by_label("What").select_option("Created the agent")
    bare.get_by_role("button", name="Filter").click()
    expect(bare.locator("#audit-log li strong", has_text="Created the agent").first).to_be_visible()
    bare.get_by_role("link", name="Clear").click()
    bare.locator("details.fold summary").last.click()
    bare.get_by_role("link", name="Show them on a page of their own").last.click()
    expect(bare.locator("#audit-log")).to_contain_text("Asked for a refinement")
    plain.close()
