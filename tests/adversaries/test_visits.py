"""Entering an account without being let in: rows that say so, a role that is gone, and what an operator may not see."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.extensions import db, now, writing
from app.history.verify import verify
from app.models import Account, Action, AuditLog, User
from app.models.user import ADMIN, OWNER, SITE_ADMIN
from tests.adversaries.forging import all_rows, change_rows, read_rows
from tests.adversaries.scene import SECRET, Scene
from tests.support.factories import HOME, role_named
from tests.views.conftest import PASSWORD, Browser, browser
from tests.views.site import PUBLIC, SIGN_IN, make_subject, routes


@pytest.fixture
def elsewhere(scene: Scene) -> int:
    """The account of who wants to get in."""
    with writing():
        return Account.create("Elsewhere").id


def forge_visit(visitor: Browser, **columns: Any) -> None:
    """The row says that its session is inside the victim's account."""
    assert visitor.user is not None
    until = now() + timedelta(minutes=30)
    change_rows(
        "user_sessions", {"entered_account_id": HOME, "entered_until": until} | columns, user_id=visitor.user.id
    )


def is_outside(scene: Scene, visitor: Browser) -> bool:
    page = visitor.get(f"/agents/{scene.victim.id}")
    return page.status_code in (302, 403, 404) and "wren" not in page.text and 'id="visit"' not in page.text


def left() -> list[str]:
    db.session.rollback()
    entries = select_entries(Action.ACCOUNT_LEAVE)
    return [entry.data["why"] for entry in entries]


def select_entries(*actions: Action) -> list[AuditLog]:
    db.session.rollback()
    query = db.select(AuditLog).where(AuditLog.account_id == HOME, AuditLog.action.in_(actions))
    return list(db.session.scalars(query.order_by(AuditLog.id)))


@pytest.mark.parametrize("role", [ADMIN, OWNER])
def test_a_forged_row_lets_nobody_in_who_is_no_operator(scene: Scene, elsewhere: int, role: str) -> None:
    visitor = browser(scene.web, role, account_id=elsewhere)
    forge_visit(visitor)
    assert is_outside(scene, visitor)
    visitor.get("/agents")
    assert visitor.post(f"/agents/{scene.victim.id}/pause").status_code == 404
    assert visitor.get("/events/poll", query_string={"topic": f"agent:{scene.victim.id}"}).status_code == 404


@pytest.mark.parametrize("minutes", [-1, 62, 60 * 24 * 365])
def test_a_forged_row_lets_no_operator_in_for_longer_than_an_hour(scene: Scene, elsewhere: int, minutes: int) -> None:
    visitor = browser(scene.web, OWNER, SITE_ADMIN, account_id=elsewhere)
    forge_visit(visitor, entered_until=now() + timedelta(minutes=minutes))
    assert is_outside(scene, visitor)


def test_a_session_that_ended_or_is_another_s_is_inside_nothing(scene: Scene, elsewhere: int) -> None:
    visitor = browser(scene.web, OWNER, SITE_ADMIN, account_id=elsewhere)
    forge_visit(visitor, ended_at=now())
    assert is_outside(scene, visitor)
    other = browser(scene.web, ADMIN, account_id=elsewhere)
    forge_visit(visitor, ended_at=None)
    assert is_outside(scene, other)
    assert not is_outside(scene, visitor)


@pytest.fixture
def inside(scene: Scene, elsewhere: int) -> Browser:
    """An operator who was let in."""
    visitor = browser(scene.web, OWNER, SITE_ADMIN, account_id=elsewhere)
    form = {"reason": "Wren waits for long.", "my_password": PASSWORD}
    assert visitor.post(f"/settings/accounts/{HOME}/enter", form).status_code == 303
    assert visitor.get(f"/agents/{scene.victim.id}").status_code == 200
    return visitor


def test_a_role_that_was_taken_and_given_back_does_not_lead_in_again(scene: Scene, inside: Browser) -> None:
    assert inside.user is not None
    for roles in ([OWNER], [OWNER, SITE_ADMIN]):
        with writing():
            db.session.get_one(User, inside.user.id).roles = [role_named(name) for name in roles]
        assert is_outside(scene, inside)
    assert left() == ["role lost"]


def test_no_page_shows_a_memory_to_an_operator_who_is_inside(scene: Scene, inside: Browser) -> None:
    """Not even with another admin's live exception, nor with a row that says that it is theirs."""
    assert inside.user is not None
    subject = make_subject()
    subject.values |= {"agent_id": str(scene.victim.id), "exception_id": scene.grant(scene.ann)}
    for rule in routes(scene.web, "GET", without=PUBLIC | SIGN_IN):
        assert SECRET not in inside.get(subject.path(rule), buffered=True).text, rule
    change_rows("access_grants", {"user_id": inside.user.id}, id=subject.values["exception_id"])
    for part in ("ledger", "ledger.json", "pulse.json"):
        answer = inside.get(f"/exceptions/{subject.values['exception_id']}/{part}")
        assert SECRET not in answer.text
        assert answer.status_code in (403, 404, 409) or answer.json == {"live": False, "milliseconds_left": 0}
    assert read_rows("access_views") == []


def test_whatever_they_do_there_verifies_and_is_the_operator_s(scene: Scene, inside: Browser) -> None:
    before = all_rows()
    assert inside.post(f"/agents/{scene.victim.id}/pause").status_code == 303
    assert inside.post("/settings/accounts/leave").status_code == 303
    done = [entry for entry in select_entries(*Action) if (entry.id,) not in before["audit_log"]]
    assert {entry.actor for entry in done} == {"user:owner-" + str(inside.user.account_id) + "@example.org"}  # type: ignore[union-attr]
    assert [entry.action for entry in done] == ["agent_pause", "account_leave"]
    db.session.rollback()
    assert verify().ok
