"""What an agent's calls left behind: every row of every table, and the audit log's entries."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from werkzeug.test import TestResponse

from app.extensions import db
from tests.support.everything import everything

NOBODY = "00000000-0000-4000-8000-000000000000"
"""A UUID that names nothing."""


def all_but_uses() -> str:
    """All rows of all tables, as one checksum; but for when a token was used last."""
    db.session.rollback()
    return everything("last_used_at")


def unchanged(act: Callable[[], TestResponse]) -> TestResponse:
    """Do it, and see that no table knows of it."""
    before = all_but_uses()
    answer = act()
    assert all_but_uses() == before, f"{answer.request.method} {answer.request.path} changed something"
    return answer


def assert_refused(answer: TestResponse, status: int, code: str, *words: str) -> None:
    """A problem document with a sentence that says so, and a code for programs."""
    assert answer.status_code == status, answer.text
    assert answer.content_type == "application/problem+json"
    said: dict[str, Any] = json.loads(answer.text)
    assert (said["status"], said["code"]) == (status, code)
    for word in words:
        assert word in said["detail"]
