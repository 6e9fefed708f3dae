"""Tokens and settings in a real browser: shown once, asked about before they end, live in every tab."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.conftest import House


def test_a_token_is_made_rotated_and_revoked_and_other_tabs_follow(agent_page: Page, house: House) -> None:
    page = agent_page
    page.get_by_role("link", name="Tokens").click()
    page.get_by_label("Name").fill("laptop")
    page.get_by_label("author").uncheck()
    page.get_by_role("button", name="Create token").click()
    first = page.locator("#token").inner_text()
    expect(page.locator("#curl")).to_contain_text(f"Bearer {first}' {house.address}/api/v1/me")

    other = page.context.new_page()
    other.goto(page.url)
    expect(other.locator("body")).not_to_contain_text(first)
    laptop = other.locator("#agent-tokens tbody tr:not(.is-gone)", has_text="laptop")
    laptop.get_by_role("button", name="Rotate").click()
    expect(other.locator("#confirm-text")).to_contain_text("revoke this one")
    other.get_by_role("button", name="Cancel").click()
    expect(laptop).to_have_count(1)
    laptop.get_by_role("button", name="Rotate").click()
    other.get_by_role("button", name="Go on").click()
    expect(other.locator("#token-made")).to_contain_text("which is revoked")
    second = other.locator("#token").inner_text()
    assert second != first
    assert other.url == page.url
    expect(page.locator("tr.is-gone", has_text=first.split("_")[1])).to_have_count(1, timeout=15_000)
    expect(page.locator("#token")).to_have_text(first)

    laptop.get_by_role("button", name="Revoke").click()
    other.get_by_role("button", name="Go on").click()
    expect(other.locator(".toast")).to_contain_text("The token laptop is revoked.")
    expect(page.locator("tr.is-gone", has_text="laptop")).to_have_count(2, timeout=15_000)


def test_a_change_is_compared_reverted_and_undone(agent_page: Page) -> None:
    page = agent_page
    page.get_by_role("link", name="Settings").click()
    page.get_by_role("textbox", name="System prompt").fill("You are Wren, and you listen.")
    page.get_by_role("button", name="Save").click()
    page.locator("#settings-history summary").first.click()
    expect(page.locator("#settings-history ins").first).to_contain_text("You are Wren")

    page.get_by_role("button", name="Revert").first.click()
    expect(page.locator(".toast")).to_contain_text("The system prompt is what it was before that.")
    expect(page.get_by_role("textbox", name="System prompt")).to_have_value("")
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.get_by_role("textbox", name="System prompt")).to_have_value("You are Wren, and you listen.")
    expect(page.locator("#settings-history li", has_text="Reverted a change")).to_have_count(2)
