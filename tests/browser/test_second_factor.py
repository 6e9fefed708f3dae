"""The second factor in a real browser: set up, asked for, taken off by an owner; by keyboard, and without scripts."""

from __future__ import annotations

import base64
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP
from playwright.sync_api import Browser, Page, expect

from app.config import ROOT
from tests.browser.conftest import House, Seen
from tests.browser.test_pages import check, fits


@pytest.fixture
def somebody(house: House) -> tuple[str, str]:
    """A new user of the house, with a password."""
    email = f"guest-{secrets.token_hex(3)}@example.org"
    command = (sys.executable, "-m", "app", "users", "create", email, "--role", "auditor", "--json")
    environment = {**os.environ, "WHETSTONE_DATA_DIR": str(house.data)}
    made = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    return email, json.loads(made.stdout)["password"]


@pytest.fixture(params=["without scripts", "checked"])
def visitor(house: House, chromium: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """On a phone, within the content policy."""
    context = chromium.new_context(
        base_url=house.address,
        java_script_enabled=request.param != "without scripts",
        viewport={"width": 390, "height": 800},
    )
    seen = Seen()
    seen.watch(context)
    yield context.new_page()
    context.close()
    assert seen.problems == []


def show_password(page: Page, email: str, password: str) -> None:
    page.goto("/sign-in")
    page.get_by_label("E-mail").fill(email)
    page.get_by_label("Password").fill(password)
    page.get_by_label("Password").press("Enter")


def look(page: Page, request: pytest.FixtureRequest) -> None:
    """Nothing wider than the phone, and nothing that the checker complains of."""
    fits(page, page.url, 390)
    if request.node.callspec.params["visitor"] == "checked":
        check(page, page.url)


def test_an_app_is_set_up_asked_for_and_taken_off(
    page: Page, visitor: Page, somebody: tuple[str, str], house: House, request: pytest.FixtureRequest
) -> None:
    email, password = somebody
    show_password(visitor, email, password)
    expect(visitor).to_have_url(f"{house.address}/")
    visitor.goto("/settings/account")
    look(visitor, request)
    visitor.get_by_label("Your password", exact=False).last.fill(password)
    visitor.get_by_role("button", name="Set up an authenticator app").press("Enter")
    secret = base64.b32decode(visitor.locator("#totp-secret").inner_text().replace(" ", ""))
    expect(visitor.get_by_role("img", name="QR code")).to_be_visible()
    look(visitor, request)

    code_field = visitor.get_by_role("textbox", name="Code")

    def code(ahead: int = 0) -> str:
        return TOTP(secret, 6, SHA1(), 30).generate(int(time.time()) + ahead).decode()

    code_field.fill("1234")
    code_field.press("Enter")
    expect(visitor.get_by_text("This is not the code of this moment.")).to_be_visible()
    code_field.fill(code())
    code_field.press("Enter")
    codes = visitor.locator("#recovery-codes code")
    expect(codes).to_have_count(10)
    look(visitor, request)
    kept = codes.first.inner_text()

    for right in (code(30), kept):
        visitor.context.clear_cookies()
        show_password(visitor, email, password)
        expect(visitor.get_by_role("heading", name="One more step")).to_be_visible()
        look(visitor, request)
        code_field.fill(right)
        code_field.press("Enter")
        expect(visitor).to_have_url(f"{house.address}/")

    page.goto("/settings/users")
    page.get_by_role("link", name=email).click()
    page.get_by_label("Your own password").fill(house.password)
    page.get_by_role("button", name="Take off second factor").click()
    expect(page.get_by_text(f"The second factor of {email} is off")).to_be_visible()
    visitor.context.clear_cookies()
    show_password(visitor, email, password)
    expect(visitor).to_have_url(f"{house.address}/")
