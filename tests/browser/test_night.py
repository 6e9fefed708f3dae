"""A night: on Monday at four 200 agents are due, the model server fails for five, and a phone puts it right.

`python -m benchmarks.night` has 2,000 agents due, of which 50 fail.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import pytest
from flask import Flask
from playwright.sync_api import Browser, Page, expect
from sqlalchemy import func, select

from app.extensions import db
from app.models import BEAT, Action, AuditLog, Refinement, Status, Trigger, User
from app.models.user import ADMIN
from tests.browser.desk import PHONE, browsing
from tests.support.clock import MONDAY, FakeClock
from tests.support.factories import make_user
from tests.support.model_server import ModelServer
from tests.support.night import BROKEN, Night, agree
from tests.support.pages import Site, serving
from tests.support.receivers import MailReceiver
from tests.views.conftest import PASSWORD, hashed_password

pytestmark = pytest.mark.once

AGENTS, FAILING = 200, 5
MOST_KEYS = 15


@pytest.fixture
def ann(web: Flask) -> User:
    with web.app_context():
        hashed = hashed_password()
    return make_user("ann@example.org", ADMIN, password=hashed)


@pytest.fixture
def site(web: Flask) -> Iterator[Site]:
    with serving(web, keep_alive=15) as made:
        yield made


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer().always(BROKEN) as server:
        yield server


@pytest.fixture
def night(app: Flask, clock: FakeClock, model: ModelServer, site: Site) -> Night:
    """Its messages lead to this site."""
    app.extensions["settings"] = app.extensions["settings"].model_copy(update={"base_url": site.url})
    return Night(app, clock, model)


@pytest.fixture
def morning(night: Night) -> Night:
    """All that were due failed, and the model server answers again."""
    night.make_agents(FAILING, failing=FAILING)
    night.carry(night.begin())
    assert outcomes() == {Status.FAILED: FAILING}
    night.model.always(agree)
    return night


def outcomes() -> dict[Status, int]:
    db.session.rollback()
    counted = select(Refinement.status, func.count()).group_by(Refinement.status)
    return dict(db.session.execute(counted).tuples().all())


def who_started() -> dict[tuple[str, str], int]:
    """Of all refinements, by the audit log: how many each actor started, and how they came to it."""
    entries = db.session.scalars(select(AuditLog).where(AuditLog.action == Action.REFINEMENT_START))
    return Counter((entry.actor, entry.data["trigger"]) for entry in entries)


def sign_in(page: Page, user: User) -> None:
    page.get_by_label("E-mail").fill(user.email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").tap()


def test_a_monday_night_is_put_right_from_a_phone(
    night: Night, site: Site, ann: User, clock: FakeClock, chromium: Browser
) -> None:
    with MailReceiver() as mail:
        night.make_agents(AGENTS, failing=FAILING)
        night.add_channel(mail, ann.email)
        assert clock.now() == MONDAY
        started = night.begin()
        night.carry(started)
        night.tell()
        assert len(started) == AGENTS
        assert outcomes() == {Status.COMPLETED: AGENTS - FAILING, Status.FAILED: FAILING}
        assert [each.to for each in mail.mails] == [[ann.email]]
    told = mail.mails[0]
    assert told.message["Subject"] == f"[Whetstone] {FAILING} refinements failed since 04:00 UTC"
    assert f"HTTP 500) ({FAILING})" in told.text
    link = re.search(r"Open: (\S+)", told.text)
    assert link is not None

    night.model.always(agree)
    with browsing(chromium, site, None, PHONE, is_mobile=True, has_touch=True) as page:
        page.goto(link[1])
        sign_in(page, ann)
        expect(page.locator("#many tbody tr")).to_have_count(FAILING)
        expect(page.locator("#many tbody tr .reason").first).to_contain_text("HTTP 500")
        page.get_by_label(f"All {FAILING} matching").tap()
        page.get_by_role("button", name="Retry").tap()
        expect(page.locator("#toasts")).to_contain_text(f"{FAILING} queued")

        night.carry_waiting()
        assert outcomes() == {Status.COMPLETED: AGENTS, Status.FAILED: FAILING}
        page.goto("/")
        expect(page.locator("#work-failed")).to_contain_text("none")
        page.goto("/refinements?status=completed&trigger=admin")
        expect(page.locator("#many tbody tr")).to_have_count(FAILING)

    assert clock.now() < MONDAY + timedelta(hours=1)
    assert outcomes() == {Status.COMPLETED: AGENTS, Status.FAILED: FAILING}
    assert who_started() == {(str(BEAT), Trigger.WEEKLY): AGENTS, (str(ann.actor), Trigger.ADMIN): FAILING}


class Keys:
    """A keyboard that counts."""

    def __init__(self, page: Page) -> None:
        self._page, self.pressed = page, 0

    def press(self, *keys: str) -> None:
        for key in keys:
            self._page.keyboard.press(key)
        self.pressed += len(keys)

    def reach(self, key: str, words: str) -> None:
        """Press it until what has the focus is called so."""
        while self._page.evaluate("document.activeElement.textContent.trim()") != words:
            self.press(key)
            assert self.pressed <= MOST_KEYS, f"{words!r} is not reached"


def test_failed_refinements_are_worked_off_with_few_keys(
    morning: Night, site: Site, ann: User, chromium: Browser
) -> None:
    with browsing(chromium, site, ann) as page:
        keys = Keys(page)
        page.goto("/")
        page.locator("#stream-state[data-state=live]").wait_for()
        keys.reach("j", f"{FAILING} failed")
        keys.press("Tab", "Enter")
        expect(page.locator("#work-failed .work-panel")).to_contain_text("HTTP 500")
        keys.reach("Tab", "Retry")
        keys.press("Enter")
        expect(page.locator("#toasts")).to_contain_text(f"{FAILING} queued")
        morning.carry_waiting()
        keys.press("g", "r")
        expect(page.locator("#many tbody [data-status=completed]")).to_have_count(FAILING)
        assert keys.pressed <= MOST_KEYS, keys.pressed
    assert outcomes() == {Status.COMPLETED: FAILING, Status.FAILED: FAILING}


def test_failed_refinements_are_worked_off_without_scripts(
    morning: Night, site: Site, ann: User, chromium: Browser
) -> None:
    with browsing(chromium, site, ann, java_script_enabled=False) as page:
        page.goto("/")
        page.get_by_role("link", name=f"{FAILING} failed").click()
        expect(page.locator("#many tbody tr .reason")).to_have_count(FAILING)
        page.get_by_label(f"All {FAILING} matching").check()
        page.get_by_role("button", name="Retry").click()
        expect(page.locator("#toasts")).to_contain_text(f"{FAILING} queued")
        morning.carry_waiting()
        page.get_by_role("link", name="Refinements", exact=True).click()
        expect(page.locator("#many tbody [data-status=completed]")).to_have_count(FAILING)
        page.get_by_role("link", name="Overview", exact=True).click()
        expect(page.locator("#work-failed")).to_contain_text("none")
