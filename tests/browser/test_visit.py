"""An operator enters an account on a phone: the banner stands on every page, fits it, and leads out again."""

from __future__ import annotations

import pytest
from flask import Flask
from playwright.sync_api import Browser, expect

from app.extensions import writing
from app.models import Account
from app.models.user import OWNER, SITE_ADMIN
from tests.browser.desk import PHONE, browsing
from tests.browser.test_pages import check, fits
from tests.support.factories import HOME, make_agent, make_user
from tests.support.pages import serving
from tests.views.conftest import PASSWORD, hashed_password

pytestmark = pytest.mark.once

PAGES = ("/", "/agents", "/refinements", "/attention", "/exceptions", "/audit", "/settings/users")


@pytest.mark.parametrize("kind", ["without scripts", "checked", "checked, dark"])
def test_on_every_page_inside_an_account_a_banner_says_so_and_leads_out(
    app: Flask, web: Flask, chromium: Browser, kind: str
) -> None:
    make_agent("wren")
    with writing():
        home = Account.create("Next door").id
    with web.app_context():
        hashed = hashed_password()
    sam = make_user("sam@example.org", OWNER, SITE_ADMIN, account_id=home, password=hashed)
    more = {"java_script_enabled": kind != "without scripts"}
    scheme = "dark" if kind.endswith("dark") else "light"
    with serving(web, keep_alive=15) as site, browsing(chromium, site, sam, PHONE, color_scheme=scheme, **more) as page:
        banner = page.locator("#visit")
        page.goto(f"/settings/accounts/{HOME}")
        expect(banner).to_have_count(0)
        page.get_by_label("Reason").fill("They asked why wren waits.")
        page.get_by_label("Your own password").fill(PASSWORD)
        page.get_by_role("button", name="Enter Home").click()
        expect(page).to_have_url(f"{site.url}/")
        for path in PAGES:
            page.goto(path)
            expect(banner).to_contain_text("You are in account Home as its admin until")
            expect(banner.get_by_role("button", name="Leave")).to_be_in_viewport()
            fits(page, path, PHONE[0])
            if kind.startswith("checked"):
                check(page, path)
        page.goto("/settings/account")
        expect(page.get_by_role("heading", name="You are inside another account")).to_be_visible()
        fits(page, "/settings/account", PHONE[0])
        banner.get_by_role("button", name="Leave").click()
        expect(page).to_have_url(f"{site.url}/settings/accounts/{HOME}")
        expect(banner).to_have_count(0)
