"""What every page does in a browser: few requests, local times, hints, and no page lost offline."""

from __future__ import annotations

import re
from contextlib import ExitStack

import pytest
from flask import Flask
from playwright.sync_api import Browser, Page, expect

from app.extensions import writing
from app.models.presence import note_beat
from app.models.user import ADMIN
from app.vocabulary import HINTS
from tests.browser.conftest import House
from tests.browser.desk import PHONE, browsing
from tests.support.clock import FakeClock
from tests.support.factories import begin, make_agent, make_user, remember
from tests.support.pages import serving

pytestmark = pytest.mark.once


def test_the_bar_is_as_high_before_scripts_run_as_afterwards(
    house: House, chromium: Browser, signed_in: dict[str, object]
) -> None:
    bars = []
    for scripts in (False, True):
        context = chromium.new_context(base_url=house.address, storage_state=signed_in, java_script_enabled=scripts)  # type: ignore[arg-type]
        page = context.new_page()
        page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
        page.goto("/")
        if scripts:
            page.locator("[data-theme-toggle]:not([hidden])").wait_for()
        bars.append(page.locator(".topbar-end").bounding_box())
        context.close()

    before, after = bars
    assert before and after
    assert before["height"] == after["height"]


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
    assert not [url for url in asked if "/healthz" in url], "a healthy click on a live page asks nothing first"
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


def test_a_server_that_dies_does_not_take_the_page_with_it(app: Flask, web: Flask, chromium: Browser) -> None:
    user = make_user("ann@example.org", ADMIN)
    with ExitStack() as stack:
        with serving(web, keep_alive=15) as site:
            page = stack.enter_context(browsing(chromium, site, user))
            page.goto("/agents")
            page.locator("#stream-state[data-state=live]").wait_for()
            page.get_by_label("Name contains").fill("half a word")
        page.locator("#stream-state[data-state=reconnecting], #stream-state[data-state=offline]").wait_for()
        page.get_by_role("link", name="Audit", exact=True).click()
        expect(page.get_by_role("alert").filter(has_text="You are still on this page")).to_have_count(1)
        expect(page.get_by_label("Name contains")).to_have_value("half a word")
        assert page.url == f"{site.url}/agents"


def test_pages_that_are_not_live_stay_too_when_the_server_is_dead(app: Flask, web: Flask, chromium: Browser) -> None:
    user = make_user("ann@example.org", ADMIN)
    with ExitStack() as stack:
        with serving(web, keep_alive=15) as site:
            settings = stack.enter_context(browsing(chromium, site, user))
            refinements = stack.enter_context(browsing(chromium, site, user))
            for page, path in ((settings, "/settings/account"), (refinements, "/refinements")):
                page.clock.install()
                page.goto(path)
            settings.get_by_label("Time zone").fill("half a word")
            refinements.get_by_label("Agent").fill("half a name")
        for page, label, value, leave in (
            (settings, "Time zone", "half a word", settings.get_by_role("link", name="Refinements", exact=True)),
            (refinements, "Agent", "half a name", refinements.get_by_role("link", name="Settings", exact=True)),
            (refinements, "Agent", "half a name", refinements.get_by_role("button", name="Filter")),
        ):
            address = page.url
            page.clock.fast_forward(1_500)
            leave.click()
            expect(page.get_by_role("alert").filter(has_text="You are still on this page")).to_have_count(1)
            expect(page.get_by_label(label)).to_have_value(value)
            assert page.url == address


def test_the_list_of_refinements_comes_first_on_a_phone_and_its_filters_always_show_on_a_desk(
    app: Flask, web: Flask, chromium: Browser
) -> None:
    agent = make_agent()
    remember(agent, "Ann likes tea.", "Bob likes rum.")
    begin(agent)
    user = make_user("ann@example.org", ADMIN)
    with serving(web, keep_alive=15) as site:
        with browsing(chromium, site, user, java_script_enabled=False) as page:
            page.goto("/refinements")
            page.get_by_label("Trigger").select_option(label="by schedule")
            expect(page.locator("#fleet")).to_be_visible()
        with browsing(chromium, site, user, PHONE) as page:
            page.goto("/refinements")
            expect(page.get_by_role("row", name="ezra")).to_be_in_viewport()
            expect(page.get_by_label("Trigger")).to_be_hidden()
            page.locator("summary", has_text="Filters").click()
            page.get_by_label("Trigger").select_option(label="by schedule")
            page.get_by_role("button", name="Filter").click()
            expect(page.get_by_text("No refinements match")).to_be_in_viewport()


def test_health_looks_again_by_itself(app: Flask, web: Flask, clock: FakeClock, chromium: Browser) -> None:
    user = make_user("ann@example.org", ADMIN)
    with serving(web, keep_alive=15) as site, browsing(chromium, site, user) as page:
        page.clock.install()
        page.goto("/settings/health")
        beat = page.locator("#part-beat")
        expect(beat).to_contain_text("No beat has run yet")
        with writing():
            note_beat()
        page.clock.fast_forward(16_000)
        expect(beat).not_to_contain_text("No beat has run yet")
        expect(page.locator("#health")).to_have_count(1)


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


def test_a_word_of_ours_opens_its_meaning(agent_page: Page) -> None:
    page, agent = agent_page, agent_page.url.partition("?")[0]
    for address, words in (
        ("/exceptions", ["exception"]),
        ("/refinements", ["refinement"]),
        (agent, ["exception"]),
        (f"{agent}/ledger", ["constitutional"]),
    ):
        page.goto(address)
        for word in words:
            page.locator(f"[popovertarget=hint-{word}]").press("Enter")
            expect(page.locator(f"#hint-{word}")).to_have_text(HINTS[word])
            page.keyboard.press("Escape")
            expect(page.locator(f"#hint-{word}")).to_be_hidden()
