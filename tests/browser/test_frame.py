"""What every page does in a browser: few requests, local times, hints, and no page lost offline."""

from __future__ import annotations

import re

from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import House


def test_files_are_asked_for_once_and_a_page_needs_few_requests(
    house: House, chromium: Browser, signed_in: dict[str, object]
) -> None:
    context = chromium.new_context(base_url=house.address, storage_state=signed_in)  # type: ignore[arg-type]
    page = context.new_page()
    session = context.new_cdp_session(page)
    asked: list[str] = []
    session.on("Network.requestWillBeSent", lambda each: asked.append(each["request"]["url"]))
    kept: list[str] = []
    session.on("Network.requestServedFromCache", lambda each: kept.append(each["requestId"]))
    session.send("Network.enable")
    page.goto("/")
    page.locator("#stream-state[data-state=live]").wait_for()
    assert len(asked) <= 5, asked
    assert kept == []
    first = len(asked)
    page.get_by_role("link", name="Agents", exact=True).click()
    page.locator("#stream-state[data-state=live]").wait_for()
    files = [url for url in asked[first:] if "/assets/" in url]
    assert len(kept) == len(files) >= 2, asked
    context.close()


def test_a_page_that_cannot_be_reached_does_not_take_the_place_of_this_one(agent_page: Page) -> None:
    page = agent_page
    page.goto("/agents")
    page.get_by_label("Name contains").fill("half a word")
    page.context.set_offline(True)
    page.get_by_role("link", name="Audit", exact=True).click()
    unreachable = page.get_by_role("alert").filter(has_text="You are still on this page")
    expect(unreachable).to_have_count(1)
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_label("Name contains")).to_have_value("half a word")
    expect(unreachable).to_have_count(1)
    page.context.set_offline(False)
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url(re.compile("query=half"))


def test_times_are_those_of_the_reader_and_keep_utc_in_the_title(
    house: House, chromium: Browser, signed_in: dict[str, object], agent_page: Page
) -> None:
    agent_page.goto("/audit")
    there = chromium.new_context(base_url=house.address, storage_state=signed_in, timezone_id="Asia/Kolkata")  # type: ignore[arg-type]
    page = there.new_page()
    page.goto("/audit")
    time = page.locator("main time[data-at=clock]").first
    said = time.get_attribute("datetime") or ""
    hours, minutes = int(said[11:13]), int(said[14:16])
    local = (hours * 60 + minutes + 330) % 1440
    expect(time).to_contain_text(f"{local // 60:02}:{local % 60:02}:{said[17:19]}")
    assert time.get_attribute("title") == f"{said[:10]} {said[11:19]} UTC"
    there.close()


def test_a_word_of_ours_opens_its_meaning(page: Page) -> None:
    page.goto("/exceptions")
    page.get_by_role("button", name="exception", exact=False).first.press("Enter")
    expect(page.locator("#hint-exception")).to_contain_text("Only the agent can give it")
    page.keyboard.press("Escape")
    expect(page.locator("#hint-exception")).to_be_hidden()
