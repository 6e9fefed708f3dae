"""A passkey in a real browser, whose device is Chromium's own virtual one: added, asked for alone, and cancelled."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import House, Seen
from tests.browser.test_pages import fits
from tests.browser.test_second_factor import show_password, somebody

__all__ = ["somebody"]

DEVICE = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}


@pytest.fixture
def visitor(house: House, chromium: Browser) -> Iterator[Page]:
    """On a phone, by a host name: browsers bind no passkey to a number."""
    address = house.address.replace("127.0.0.1", "localhost")
    context = chromium.new_context(base_url=address, viewport={"width": 390, "height": 800})
    seen = Seen()
    seen.watch(context)
    yield context.new_page()
    context.close()
    assert seen.problems == []


def test_a_passkey_is_added_signs_in_alone_and_after_the_password(
    visitor: Page, somebody: tuple[str, str], house: House
) -> None:
    email, password = somebody
    device = visitor.context.new_cdp_session(visitor)
    device.send("WebAuthn.enable")
    number = device.send("WebAuthn.addVirtualAuthenticator", {"options": DEVICE})["authenticatorId"]
    show_password(visitor, email, password)
    visitor.goto("/settings/account")
    section = visitor.locator("#passkeys")
    add = section.get_by_role("button", name="Add a passkey")
    section.get_by_label("Name of a new passkey").fill("My phone")
    section.get_by_label("Your password").fill("not the password")
    add.press("Enter")
    expect(section.get_by_text("That is not your password.")).to_be_visible()
    section.get_by_label("Your password").fill(password)
    add.press("Enter")
    expect(visitor.locator("#recovery-codes code")).to_have_count(10)
    visitor.get_by_role("link", name="I have kept them").click()
    expect(section.get_by_role("rowheader", name="My phone")).to_be_visible()
    fits(visitor, visitor.url, 390)

    visitor.context.clear_cookies()
    visitor.goto("/sign-in?next=/agents")
    button = visitor.get_by_role("button", name="Sign in with a passkey")
    button.click()
    expect(visitor.get_by_role("heading", name="Agents")).to_be_visible()

    visitor.context.clear_cookies()
    show_password(visitor, email, password)
    expect(visitor.get_by_role("heading", name="One more step")).to_be_visible()
    fits(visitor, visitor.url, 390)
    button.click()
    expect(visitor.get_by_role("heading", name="Overview")).to_be_visible()

    visitor.context.clear_cookies()
    visitor.goto("/sign-in")
    device.send("WebAuthn.setUserVerified", {"authenticatorId": number, "isUserVerified": False})
    button.click()
    expect(visitor.get_by_text("Cancelled, or no passkey fits. Nothing was sent.")).to_be_visible()
    expect(button).to_be_enabled()

    visitor.goto(f"{house.address}/sign-in")
    expect(visitor.get_by_text("Passkeys need a host name, not a number: open http://localhost:")).to_be_visible()
    expect(button).to_have_count(0)
