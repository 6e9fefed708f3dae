"""Tokens and settings in a real browser: shown once, asked about before they end, live in every tab."""

from __future__ import annotations

import re
import secrets

import httpx
from playwright.sync_api import Page, expect

from tests.browser.conftest import House, create_agent
from tests.support.model_server import ModelServer, text


def ask(page: Page, name: str = "laptop") -> str:
    """Press the button; returns the token."""
    page.get_by_role("navigation", name="Agent", exact=True).get_by_role("link", name="Tokens").click()
    page.get_by_label("Name").fill(name)
    page.get_by_label("author").uncheck()
    page.get_by_role("button", name=re.compile("^Ask ")).click()
    return page.locator("#token").inner_text()


def status_of(token: str, house: House) -> int:
    """What the agents' door answers to it."""
    return httpx.get(f"{house.address}/api/v1/me", headers={"Authorization": f"Bearer {token}"}).status_code


def test_a_token_is_asked_for_rotated_and_revoked_and_other_tabs_follow(
    agent_page: Page, house: House, model: ModelServer
) -> None:
    page = agent_page
    model.script(text("YES"), text("YES"))
    first = ask(page)
    expect(page.locator("#curl")).to_contain_text(f"Bearer {first}' {house.address}/api/v1/me")
    expect(page.locator("#token-requests [data-status]")).to_have_attribute("data-status", "granted", timeout=60_000)
    expect(page.locator("#agent-tokens tr", has_text="laptop")).to_have_count(1)
    expect(page.locator("#token")).to_have_text(first)
    assert status_of(first, house) in (200, 503)

    other = page.context.new_page()
    other.goto(page.url)
    expect(other.locator("body")).not_to_contain_text(first)
    laptop = other.locator("#agent-tokens tbody tr:not(.is-gone)", has_text="laptop")
    laptop.get_by_role("button", name="Rotate").click()
    expect(other.locator("#confirm-text")).to_contain_text("With its YES this one ends")
    other.get_by_role("button", name="Cancel").click()
    expect(laptop).to_have_count(1)
    laptop.get_by_role("button", name="Rotate").click()
    other.get_by_role("button", name="Go on").click()
    expect(other.locator("#token-made")).to_contain_text("which ends with the YES")
    second = other.locator("#token").inner_text()
    assert second != first
    assert other.url == page.url
    expect(page.locator("tr.is-gone", has_text=first.split("_")[1])).to_have_count(1, timeout=60_000)
    expect(page.locator("#token")).to_have_text(first)
    assert status_of(first, house) == 401

    laptop.get_by_role("button", name="Revoke").click()
    other.get_by_role("button", name="Go on").click()
    expect(other.locator(".toast")).to_contain_text("The token laptop is revoked.")
    expect(page.locator("tr.is-gone", has_text="laptop")).to_have_count(2, timeout=15_000)
    assert status_of(second, house) == 401


def test_a_no_is_seen_where_it_was_asked_and_the_token_never_works(
    agent_page: Page, house: House, model: ModelServer
) -> None:
    page = agent_page
    model.script(text("NO"))
    token = ask(page)
    expect(page.locator("#token-requests [data-status]")).to_have_attribute("data-status", "denied", timeout=60_000)
    assert status_of(token, house) == 401
    page.reload()
    expect(page.locator("#token-command")).to_contain_text("./whetstone agents token create")


def test_two_clicks_ask_once_and_show_the_token_that_is_asked_for(agent_page: Page, model: ModelServer) -> None:
    page = agent_page
    model.script(text("YES"))
    page.get_by_role("navigation", name="Agent", exact=True).get_by_role("link", name="Tokens").click()
    page.get_by_label("Name").fill("laptop")
    page.get_by_role("button", name=re.compile("^Ask ")).dblclick()
    token = page.locator("#token").inner_text()
    expect(page.locator("#token-requests li")).to_have_count(1)
    expect(page.locator("#token-requests li")).to_contain_text(token.split("_")[1])


def test_a_change_is_compared_reverted_and_undone(page: Page, house: House, model: ModelServer) -> None:
    """Of an agent that never had a memory: others are asked first."""
    create_agent(page, f"compared {secrets.token_hex(3)}", model.base_url)
    page.get_by_role("link", name="To the agent").click()
    page.get_by_role("navigation", name="Agent").get_by_role("link", name="Settings").click()
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
