"""A web process in a thread of the test, by the test's own clock, and browsers that are signed in to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page

from app.models import User
from tests.support.pages import Site

Size = tuple[int, int]
DESK: Size = (1280, 800)
PHONE: Size = (390, 844)
NARROW: Size = (360, 800)
"""The narrowest phone that pages are made for."""


@contextmanager
def browsing(chromium: Browser, site: Site, user: User | None, size: Size = DESK, **more: Any) -> Iterator[Page]:
    """A page of a browser of its own; of somebody who is signed in, if that is a user."""
    context = chromium.new_context(base_url=site.url, viewport={"width": size[0], "height": size[1]}, **more)
    if user is not None:
        sign_in_as(context, site, user)
    try:
        yield context.new_page()
    finally:
        context.close()


def sign_in_as(context: BrowserContext, site: Site, user: User) -> None:
    name, _, value = site.cookie_of(user).partition("=")
    context.add_cookies([{"name": name, "value": value, "url": site.url}])
