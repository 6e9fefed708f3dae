"""A refinement watched live, step by step: a scripted model over HTTP waits for the test before each answer."""

from __future__ import annotations

import re
import threading
from dataclasses import replace

from playwright.sync_api import Page, ViewportSize, expect

from tests.browser.conftest import MEMORIES, House
from tests.support.model_server import ModelServer, ServerReply, text, tool_call


def held(reply: ServerReply) -> tuple[ServerReply, threading.Event]:
    go = threading.Event()
    return replace(reply, hold=go), go


def ids_of(page: Page) -> list[int]:
    ids = [row["id"] for row in page.request.get(f"{page.url}.json").json()["ledger"]]
    assert len(ids) == MEMORIES
    return ids


def refine(page: Page) -> None:
    page.locator("#agent-state").get_by_role("button", name="Refine").click()
    page.wait_for_url(re.compile("/refinements/"))
    page.evaluate("window.notReloaded = true")


SHIFTS = """
window.shifts = [];
new PerformanceObserver((list) => list.getEntries().forEach((entry) => {
  const place = ({ y, height }) => `${Math.round(y)}+${Math.round(height)}`;
  const names = entry.sources.map(({ node, previousRect, currentRect }) =>
    `${node?.id || node?.className || node?.nodeName}: ${place(previousRect)} to ${place(currentRect)}`);
  if (!entry.hadRecentInput) window.shifts.push([entry.value, ...names]);
})).observe({ type: "layout-shift", buffered: true });
"""
"""What moves on its own, with what it was."""

MOST_SHIFT = 0.05
PHONE: ViewportSize = {"width": 390, "height": 844}


def assert_still(page: Page) -> None:
    """Nothing on the page has moved that one would notice, all movements taken together."""
    shifts = page.evaluate("window.shifts")
    assert sum(shift[0] for shift in shifts) <= MOST_SHIFT, "\n".join(map(str, shifts))


def test_operations_appear_as_they_happen_and_survive_a_lost_stream(
    agent_page: Page, house: House, model: ModelServer
) -> None:
    page, ids = agent_page, ids_of(agent_page)
    page.add_init_script(SHIFTS)
    yes, consent = held(text("YES. To admins: hello there"))
    first, delete = held(tool_call("delete_memory", id=ids[0], carried_by=ids[-1]))
    second, protect = held(tool_call("protect_memory", id=ids[1]))
    third, change = held(tool_call("delete_memory", id=ids[2], carried_by=ids[-1]))
    fourth, complete = held(tool_call("complete_refinement", summary="Done.", note_to_admins="All is well."))
    model.script(yes, first, second, third, fourth)

    refine(page)
    timeline = page.locator("#refinement-timeline")
    expect(timeline).to_contain_text("The agent is asked for its consent", timeout=30_000)
    now = timeline.locator(".is-now")
    expect(now).to_contain_text("Waiting for its answer")
    seconds = now.locator(".step-tokens .running")
    early = seconds.inner_text()
    expect(seconds).not_to_have_text(early)  # it counts on while nothing arrives
    consent.set()
    expect(timeline).to_contain_text("The agent said YES", timeout=30_000)
    expect(now).to_contain_text("Turn 1: the model is thinking")
    expect(now).to_be_in_viewport()
    expect(page.locator("#refinement-status")).to_contain_text("running")
    page.evaluate("window.scrollTo(0, 0)")
    expect(now).not_to_be_in_viewport()
    delete.set()
    expect(timeline).to_contain_text(f"Deleted memory {ids[0]}")
    expect(now).not_to_be_in_viewport()  # whoever scrolled away is left alone
    expect(page.locator("#refinement-figures")).to_contain_text("1 of at most 10")

    resumed: list[str] = []
    page.on("request", lambda request: resumed.append(request.headers.get("last-event-id", "")))
    house.kill_web()
    protect.set()
    expect(timeline).to_contain_text(f"Made constitutional memory {ids[1]}", timeout=45_000)
    assert [number for number in resumed if number], "the stream was never lost"

    page.context.set_offline(True)
    expect(page.locator("#stream-state")).to_have_attribute("data-state", "offline", timeout=30_000)
    change.set()
    page.context.set_offline(False)
    expect(timeline).to_contain_text(f"Deleted memory {ids[2]}", timeout=45_000)
    expect(page.locator("#stream-state")).to_have_attribute("data-state", "live", timeout=30_000)

    complete.set()
    expect(page.locator("#refinement-outcome")).to_contain_text("Completed.", timeout=30_000)
    expect(page.locator("#refinement-outcome")).to_contain_text("All is well.")
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    assert page.evaluate("window.notReloaded") is True
    assert timeline.locator("li").filter(has_text="Deleted").count() == 2
    assert_still(page)


def test_nothing_moves_on_a_phone_while_rows_are_followed(agent_page: Page, model: ModelServer) -> None:
    page, ids = agent_page, ids_of(agent_page)
    page.set_viewport_size(PHONE)
    page.add_init_script(SHIFTS)
    yes, consent = held(text("YES."))
    work = [held(tool_call("protect_memory", id=number)) for number in ids[:4]]
    complete, last = held(tool_call("complete_refinement", summary="Done.", note_to_admins="All is well."))
    model.script(yes, *(reply for reply, _ in work), complete)

    refine(page)
    timeline = page.locator("#refinement-timeline")
    expect(timeline.locator(".is-now")).to_contain_text("Waiting for its answer", timeout=30_000)
    consent.set()
    for number, (_, go) in zip(ids, work, strict=False):
        expect(timeline.locator(".is-now")).to_contain_text("the model is thinking", timeout=30_000)
        expect(timeline.locator(".is-now")).to_be_in_viewport()
        go.set()
        expect(timeline).to_contain_text(f"Made constitutional memory {number}")
    last.set()
    expect(page.locator("#refinement-outcome")).to_contain_text("Completed.", timeout=30_000)
    assert_still(page)


def test_stop_ends_it_before_the_next_change(agent_page: Page, model: ModelServer) -> None:
    page, ids = agent_page, ids_of(agent_page)
    late, answer = held(tool_call("delete_memory", id=ids[0], carried_by=ids[-1]))
    model.script(text("YES"), late)

    refine(page)
    expect(page.locator("#refinement-status")).to_contain_text("running", timeout=30_000)
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#toasts")).to_contain_text("Stopping: it ends before its next change.")
    expect(page.locator("#refinement-status")).to_contain_text("stopping")
    answer.set()
    expect(page.locator("#refinement-outcome")).to_contain_text("Stopped.", timeout=30_000)
    expect(page.locator("#refinement-figures")).to_contain_text("0 of at most 10")


def test_a_second_start_leads_to_the_open_one(agent_page: Page, model: ModelServer) -> None:
    page = agent_page
    agent_address = page.url
    no, answer = held(text("NO, thank you."))
    model.script(no)

    other = page.context.new_page()
    other.goto(agent_address)
    refine(page)
    other.locator("#agent-state").get_by_role("link", name="Watch it").wait_for()
    other.locator("#agent-state").get_by_role("link", name="Watch it").click()
    expect(other).to_have_url(page.url)
    answer.set()
    expect(page.locator("#refinement-outcome")).to_contain_text("The agent said NO.", timeout=30_000)
    page.goto(agent_address)
    page.locator("#agent-state").get_by_role("button", name="Refine").click()
    expect(page.locator("#toasts")).to_contain_text("You can ask again after")
    assert page.url == agent_address
