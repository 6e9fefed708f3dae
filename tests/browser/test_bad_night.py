"""A bad night: fifty refinements fail while the overview is open, and nothing on it moves."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from app import security
from app.cli.common import open_installation
from app.extensions import db, now, writing
from app.models import COMMAND_LINE, WORKER, Account, Agent, Refinement, Status, Trigger
from app.models.user import ADMIN
from tests.browser.conftest import House
from tests.support.factories import Running, begin, make_agent, remember
from tests.support.processes import wait_for

FAILURES = 50
AT_ONCE = 10
"""More than the overview has rows for."""

LIMIT = 0.05
REASON = "The model openai/big failed (HTTP 500)"
PASSWORD = "a night's own password"

WATCH = """() => {
  window.shifts = [];
  new PerformanceObserver((list) => {
    const place = ({ y, height }) => `${Math.round(y)}+${Math.round(height)}`;
    const named = ({ node, previousRect, currentRect }) =>
      `${node?.id || node?.className || node?.nodeName}: ${place(previousRect)} to ${place(currentRect)}`;
    list.getEntries().forEach(({ value, sources }) => window.shifts.push({ value, of: sources.map(named) }));
  }).observe({ type: "layout-shift", buffered: true });
}"""
MOVED = "window.shifts.reduce((sum, shift) => sum + shift.value, 0)"


@pytest.fixture
def night(house: House, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Agent]]:
    """Agents of an account of their own, in the house that runs."""
    monkeypatch.setenv("WHETSTONE_DATA_DIR", str(house.data))
    with open_installation() as app:
        security.init_app(app, views=False)
        with writing():
            account = Account.create(f"Night {secrets.token_hex(3)}")
            email = f"night-{account.id}@example.org"
            security.create_user(account, email, PASSWORD, roles=(ADMIN,), by=COMMAND_LINE)
        agents = [make_agent(f"night {number:02}", account_id=account.id) for number in range(FAILURES)]
        for agent in agents:
            remember(agent, "Ann likes tea with milk.", "Bob likes rum.")
        begin(agents[0]).tool.execute("complete", summary="Done.", note_to_admins="Good night.")
        yield agents


def start(agent: Agent) -> Running:
    """With a sign of life: else the house's own worker takes this one for dead."""
    run = begin(agent)
    with writing():
        Refinement.lock(run.refinement.id).heartbeat_at = now()
    return run


def fail(run: Running) -> None:
    with writing():
        row = Refinement.lock(run.refinement.id)
        row.end(Agent.lock(run.agent.id), Status.FAILED, reason=f"{REASON}.", failure=REASON, by=WORKER)


def email_of(night: list[Agent]) -> str:
    """The admin's of the account of these agents: each test has its own in the one house."""
    return f"night-{night[0].account_id}@example.org"


def open_overview(chromium: Browser, house: House, email: str, width: int, height: int) -> Page:
    page = chromium.new_context(base_url=house.address, viewport={"width": width, "height": height}).new_page()
    page.goto("/sign-in")
    page.get_by_label("E-mail").fill(email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.locator("#stream-state[data-state=live]").wait_for(state="attached")
    page.evaluate(WATCH)
    return page


def moved(page: Page) -> float:
    return float(page.evaluate(MOVED))


def test_nothing_moves_on_an_open_overview_while_fifty_refinements_fail(
    house: House, chromium: Browser, night: list[Agent]
) -> None:
    pages = [open_overview(chromium, house, email_of(night), *size) for size in ((1280, 800), (390, 844))]
    for first in range(0, FAILURES, AT_ONCE):
        running = [start(agent) for agent in night[first : first + AT_ONCE]]
        for page in pages:
            expect(page.locator("#overview-running")).to_contain_text(running[-2].agent.name)
        for run in running:
            fail(run)
    db.session.rollback()

    for page in pages:
        expect(page.locator("#work-failed")).to_contain_text(f"{FAILURES} failed")
        expect(page.locator("#work-failed")).to_contain_text(REASON)
        expect(page.locator("#overview-recent [data-status=failed]").first).to_be_attached()
        assert moved(page) <= LIMIT, page.evaluate("window.shifts.map(JSON.stringify).join(`\\n`)")

    page = pages[0]
    page.locator("#overview-figures").evaluate("(figures) => { figures.style.marginTop = '200px'; }")
    wait_for(lambda: moved(pages[0]) > LIMIT)  # the page itself may not evaluate what Playwright would poll there
    for page in pages:
        page.context.close()


def test_fifty_failures_are_found_and_retried_with_two_clicks_and_marked_as_seen_with_one(
    house: House, chromium: Browser, night: list[Agent]
) -> None:
    """By an admin on a phone. The overview says what failed and why; the clicks are counted from there."""
    for agent in night:
        fail(start(agent))
    db.session.rollback()
    page = open_overview(chromium, house, email_of(night), 390, 844)
    clicks: list[str] = []

    def click(name: str) -> None:
        page.locator("#work-failed").get_by_role("button", name=name).click()
        clicks.append(name)

    click("Mark as seen")
    toast = page.locator("#toasts")
    expect(toast).to_contain_text(f"{FAILURES} items marked as seen.")
    expect(page.locator("#work-failed")).to_contain_text("none")
    toast.get_by_role("button", name="Undo").click()
    expect(page.locator("#work-failed")).to_contain_text(f"{FAILURES} failed")
    expect(page.locator("#work-failed")).to_contain_text(REASON)

    clicks.clear()
    page.goto("/")
    click("Retry")
    expect(page.locator("#toasts")).to_contain_text(f"{FAILURES} queued.")
    assert len(clicks) <= 2
    db.session.rollback()
    started = db.select(Refinement.id).where(Refinement.trigger == Trigger.ADMIN, Refinement.failure.is_(None))
    mine = started.where(Refinement.agent_id.in_([agent.id for agent in night]))
    assert len(set(db.session.scalars(mine.where(Refinement.started_by == f"user:{email_of(night)}")))) == FAILURES
    page.context.close()
