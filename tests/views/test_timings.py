"""Where the time of a page went: told to its admins, in sums, and to nobody else."""

from __future__ import annotations

import re

import pytest
from flask import Flask

from tests.api.conftest import Door, client, door
from tests.views.conftest import Browser, browser

__all__ = ["client", "door"]

TOLD = re.compile(r'db;dur=\d+\.\d;desc="(\d+) statements", render;dur=\d+\.\d, total;dur=\d+\.\d')


@pytest.mark.parametrize("path", ["/", "/agents", "/audit", "/agents.json", "/settings/account"])
@pytest.mark.parametrize("role", ["owner", "admin"])
def test_admins_are_told_sums_only(web: Flask, role: str, path: str) -> None:
    told = TOLD.fullmatch(browser(web, role).get(path).headers["Server-Timing"])
    assert told is not None
    assert int(told[1]) > 1


@pytest.mark.parametrize("path", ["/", "/agents", "/audit"])
def test_auditors_are_told_nothing(web: Flask, path: str) -> None:
    answer = browser(web, "auditor").get(path)
    assert answer.status_code == 200
    assert "Server-Timing" not in answer.headers


@pytest.mark.parametrize("path", ["/", "/sign-in", "/healthz", "/metrics", "/agents/1", "/nothing-here"])
def test_strangers_are_told_nothing(web: Flask, path: str) -> None:
    assert "Server-Timing" not in web.test_client().get(path).headers


def test_agents_are_told_nothing(door: Door) -> None:
    for method, path, sent in (("GET", "/context", None), ("POST", "/memories", {"content": "Ann likes tea."})):
        answer = door(method, path, sent)
        assert answer.status_code in (200, 201)
        assert "Server-Timing" not in answer.headers


def test_a_statement_more_is_counted(admin: Browser) -> None:
    counts = [TOLD.fullmatch(admin.get(path).headers["Server-Timing"]) for path in ("/settings/limits", "/audit")]
    few, many = (int(found[1]) if found else 0 for found in counts)
    assert 0 < few < many
