"""Every page that answers GET, as `tests/views/site.py` names them: accessible in both themes, as wide as the screen.

And within the content policy. A new page is met here by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

import pytest
from flask import Flask
from playwright.sync_api import Browser, Page

from app.extensions import writing
from app.models import Account, OneTimeLink, User
from app.models.user import ADMIN, OWNER
from tests.browser.conftest import Seen
from tests.browser.desk import browsing
from tests.browser.test_pages import IN_TURN, LOOKS, look_at
from tests.support.factories import HOME, make_user
from tests.support.pages import Site, serving
from tests.views.site import CONTENT, PUBLIC, SIGN_IN, Subject, make_subject, routes

pytestmark = pytest.mark.once

WITHOUT = CONTENT | PUBLIC | SIGN_IN
"""test_exception.py opens pages with content, the last test here those of strangers."""

FILTERED = (
    "/agents?query=nobody",
    "/audit?agent=nobody&from=never",
    "/refinements?status=failed",
    "/refinements?from=never&agent=nobody",
    "/attention?kind=nothing",
    "/settings/schedule?crontab=30+22+*+*+1-5",
    "/settings/schedule?crontab=nonsense",
    "/nowhere",
)


@pytest.fixture
def site(web: Flask) -> Iterator[Site]:
    with serving(web, keep_alive=15) as made:
        yield made


@pytest.fixture
def owner(app: Flask) -> User:
    return make_user("owner@example.org", OWNER)


@pytest.fixture
def subject(owner: User) -> Subject:
    return make_subject()


WAYS_ON = range(300, 400)


def addresses_of(site: Site, subject: Subject | None) -> list[str]:
    """All that answer GET; without a subject, what an installation has in which nothing happened yet."""
    rules = routes(site.flask, "GET", without=WITHOUT)
    if subject is None:
        return [rule.rule for rule in rules if not rule.arguments]
    chosen = f"/refinements/rollback?refinement={subject.values['refinement_id']}"
    return [*(subject.path(rule) for rule in rules), *FILTERED, chosen]


def pages_among(addresses: list[str], page: Page) -> list[str]:
    """Without files, JSON twins, partials and ways on to another page."""
    answers = {address: page.request.get(address, max_redirects=0) for address in addresses}
    return [each for each, answer in answers.items() if answer.status not in WAYS_ON and "<html" in answer.text()[:200]]


def look_at_all(chromium: Browser, site: Site, user: User, addresses: list[str], *, in_turn: bool = False) -> list[str]:
    """Returns the pages. `in_turn`: accessible in one theme each, where another test asks for both."""
    seen = Seen()
    with browsing(chromium, site, user) as page:
        seen.watch(page.context)
        pages = pages_among(addresses, page)
        looks = cycle(IN_TURN if in_turn else [LOOKS])
        wrong = [
            each for address, checked in zip(pages, looks, strict=False) for each in look_at(page, address, checked)
        ]
    assert wrong + seen.problems == []
    return pages


def test_every_page_is_accessible_and_fits(site: Site, owner: User, subject: Subject, chromium: Browser) -> None:
    pages = look_at_all(chromium, site, owner, addresses_of(site, subject))
    named = {"/", "/refinements", "/attention", "/settings/users", "/settings/health", "/exceptions"}
    assert named <= set(pages)
    assert len(pages) > 40


def test_every_page_of_an_empty_house_is_accessible_and_fits(site: Site, owner: User, chromium: Browser) -> None:
    assert len(look_at_all(chromium, site, owner, addresses_of(site, None), in_turn=True)) > 10


def test_the_pages_of_strangers_are_accessible_and_fit(site: Site, owner: User, chromium: Browser) -> None:
    with writing():
        _, secret = OneTimeLink.invite(Account.lock(HOME), "guest@example.org", ADMIN, by=owner.actor)
    with browsing(chromium, site, None) as page:
        for address in ("/sign-in", f"/welcome/{secret}", "/welcome/nothing"):
            assert look_at(page, address) == []
