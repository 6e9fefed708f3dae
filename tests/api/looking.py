"""What an agent's calls left behind: every row of every table, and the audit log's entries."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from sqlalchemy import inspect, text
from werkzeug.test import TestResponse

from app.extensions import db

NOBODY = "00000000-0000-4000-8000-000000000000"
"""A UUID that names nothing."""


def everything() -> str:
    """All rows of all tables, as one checksum; but for when a token was used last."""
    db.session.rollback()
    digest = hashlib.sha256()
    with db.engine.connect() as connection:
        for table in sorted(inspect(connection).get_table_names()):
            found = connection.execute(text(f'SELECT * FROM "{table}"')).mappings()
            rows = sorted(repr([value for name, value in row.items() if name != "last_used_at"]) for row in found)
            digest.update(repr((table, rows)).encode())
    return digest.hexdigest()


def unchanged(act: Callable[[], TestResponse]) -> TestResponse:
    """Do it, and see that no table knows of it."""
    before = everything()
    answer = act()
    assert everything() == before, f"{answer.request.method} {answer.request.path} changed something"
    return answer


def assert_refused(answer: TestResponse, status: int, code: str, *words: str) -> None:
    """A problem document with a sentence that says so, and a code for programs."""
    assert answer.status_code == status, answer.text
    assert answer.content_type == "application/problem+json"
    said: dict[str, Any] = json.loads(answer.text)
    assert (said["status"], said["code"]) == (status, code)
    for word in words:
        assert word in said["detail"]
