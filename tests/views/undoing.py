"""What the tests of the Time Machine's pages share: refinements with a past, and buttons pressed on a page."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from sqlalchemy import func, select

from app.extensions import db
from app.models import Action, Agent, AuditLog, Refinement, Rollback
from tests.support.factories import begin
from tests.views.conftest import Browser


def refine(agent: Agent, *operations: tuple[str, dict[str, Any]]) -> str:
    """A refinement that did this and completed; its id."""
    run = begin(agent)
    for action, arguments in operations:
        run.tool.execute(action, **arguments)
    run.tool.execute("complete", summary="Done.")
    return run.refinement.id


def merge_and_delete(agent: Agent) -> str:
    return refine(agent, ("consolidate", {"ids": [1, 2], "content": "Both of them."}), ("delete", {"id": 3}))


def update(number: int, content: str = "Shorter.") -> tuple[str, dict[str, Any]]:
    return "update", {"id": number, "content": content}


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


def entries() -> int:
    db.session.rollback()
    return db.session.scalar(select(func.count()).select_from(AuditLog)) or 0


def rollbacks() -> list[Rollback]:
    db.session.rollback()
    return list(db.session.scalars(select(Rollback).order_by(Rollback.entry_id)))


def undone_by(refinement_id: str) -> str | None:
    db.session.rollback()
    return db.session.get_one(Refinement, refinement_id, populate_existing=True).undone_by


def newest_entry(action: Action) -> int:
    return db.session.scalars(select(func.max(AuditLog.id)).where(AuditLog.action == action)).one()
