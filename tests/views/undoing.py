"""What the tests of the Time Machine's pages share: refinements with a past, and buttons pressed on a page."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from sqlalchemy import select

from app.extensions import db
from app.models import Agent, Refinement, Rollback
from tests.history.going_back import consolidate, delete, refined
from tests.refinement.driving import alike
from tests.views.conftest import Browser

SOME = alike(12, "Memory number, of which there are some, ")
"""Texts of eleven tokens each; one that is deleted is carried by each other."""


def merge_and_delete(agent: Agent) -> str:
    return refined(agent, consolidate(1, 2, content="Both of them."), delete(3, carried_by=12))


def twin(person: Browser, path: str) -> dict[str, Any]:
    answer = person.get(f"{path}.json")
    assert answer.status_code == 200, path
    return dict(answer.json or {})


def page(person: Browser, path: str) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", person.get(path).text)))


def press(person: Browser, path: str, *, on: str) -> Any:
    """Press a button on a page, as htmx does."""
    headers = {"HX-Request": "true", "HX-Current-URL": f"http://127.0.0.1:8000{on}"}
    return person.post(path, headers=headers)


def undo_in(toast: str) -> str:
    found = re.search(r'action="([^"]+)"', toast)
    assert found is not None
    return found[1]


def rollbacks() -> list[Rollback]:
    db.session.rollback()
    return list(db.session.scalars(select(Rollback).order_by(Rollback.entry_id)))


def undone_by(refinement_id: str) -> str | None:
    db.session.rollback()
    return db.session.get_one(Refinement, refinement_id, populate_existing=True).undone_by
