"""Who has the database during a live exception gets what its human could see, by signing in as them, and no more."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from flask_security import hash_password

import tasks.grants
from app.errors import WhetstoneError
from app.extensions import db
from app.grants import opening
from app.history.verify import verify
from app.models import AccessGrant, User
from app.models.user import OWNER
from tests.adversaries.forging import change_rows, read_rows
from tests.adversaries.scene import SECRET, KnownUser, Scene
from tests.adversaries.test_exceptions import forged_view, real_look
from tests.views.conftest import Browser
from tests.views.site import CONTENT, make_subject, routes

CHOSEN = "a password that the operator chose"


@pytest.fixture(autouse=True)
def worker(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers each look at once."""

    def answered(view_id: str, timeout: float = 5.0) -> bool:
        with scene.app.app_context():
            opening.answer_view(view_id)
        return True

    monkeypatch.setattr(tasks.grants, "wait_for_answer", answered)


def with_a_password(scene: Scene, user: KnownUser) -> None:
    with scene.web.app_context():
        change_rows("users", {"password": hash_password(CHOSEN)}, id=user.id)


def signed_in(scene: Scene, email: str) -> Browser:
    visitor = Browser(scene.web, None)
    assert visitor.post("/sign-in", {"email": email, "password": CHOSEN}).status_code == 302
    return visitor


def test_signed_in_as_its_human_they_see_what_it_covers_and_the_receipt_names_that_human(scene: Scene) -> None:
    grant_id, other = scene.grant(scene.ann), scene.grant_of(scene.attacker.agent, scene.mallory)
    with_a_password(scene, scene.ann)
    visitor = signed_in(scene, "ann@example.org")
    assert SECRET in visitor.get(f"/exceptions/{grant_id}/ledger.json").text
    (receipt,) = read_rows("audit_log", action="access_viewed")
    assert (receipt["actor"], receipt["agent_id"]) == ("user:ann@example.org", scene.victim.id)
    assert read_rows("audit_log", action="sign_in")[-1]["actor"] == "user:ann@example.org"
    assert not verify().ok, "nobody changed that password by the product"

    subject = make_subject()
    subject.values |= {"agent_id": str(scene.victim.id), "exception_id": grant_id}
    for rule in routes(scene.web, "GET"):
        if rule.endpoint not in {"exceptions.ledger", "exceptions.ledger_json"}:
            assert SECRET not in visitor.get(subject.path(rule), buffered=True).text, rule
    for rule in routes(scene.web, "GET"):
        if rule.endpoint in CONTENT:
            answer = visitor.get(subject.path(rule, exception_id=other))
            assert answer.status_code == 403, rule
    assert len(read_rows("audit_log", action="access_viewed")) == 1


def test_signed_in_as_anybody_else_they_see_nothing(scene: Scene) -> None:
    """Of whatever role they write into the row, too."""
    grant_id = scene.grant(scene.ann)
    with_a_password(scene, scene.mallory)
    make_owner(scene, scene.mallory)
    visitor = signed_in(scene, "mallory@example.org")
    for part in ("ledger", "ledger.json", "history", "history.json"):
        answer = visitor.get(f"/exceptions/{grant_id}/{part}")
        assert (answer.status_code, SECRET in answer.text) == (403, False)
    assert read_rows("audit_log", action="access_viewed") == []


def make_owner(scene: Scene, user: KnownUser) -> None:
    (role,) = read_rows("roles", name=OWNER)
    change_rows("roles_users", {"role_id": role["id"]}, user_id=user.id)


# Without signing in


def unfetched_look(scene: Scene) -> str:
    """Ann's: answered by the worker, and not fetched by her browser yet."""
    number = real_look(scene, scene.grant(scene.ann), scene.ann)
    opening.answer_view(number)
    return number


def fetch_as_mallory(scene: Scene, own: opening.RequestedView) -> str:
    with scene.web.app_context():
        try:
            return json.dumps(opening.fetch_view(own))
        except WhetstoneError as error:
            return error.sentence


@pytest.mark.parametrize("swaps_ids", [False, True], ids=["copied", "swapped"])
def test_an_answer_that_is_put_into_another_look_is_opened_by_nobody(scene: Scene, swaps_ids: bool) -> None:
    """Mallory has a look of their own, at the attacker's agent, with its key."""
    of_ann = unfetched_look(scene)
    (answered,) = read_rows("access_views", id=of_ann)
    mine = scene.grant_of(scene.attacker.agent, scene.mallory)
    with scene.web.app_context():
        own = opening.look(db.session.get_one(AccessGrant, mine), db.session.get_one(User, scene.mallory.id))
    opening.answer_view(own.view_id)
    change_rows("access_views", {"sealed": answered["sealed"]}, id=own.view_id)
    if swaps_ids:
        change_rows("access_views", {"id": "aside"}, id=of_ann)
        change_rows("access_views", {"id": of_ann}, id=own.view_id)
        own = opening.RequestedView(of_ann, own.key)
    assert SECRET not in fetch_as_mallory(scene, own)
    scene.assert_nothing_opened()


def a_grant_of_another_agent(scene: Scene) -> str:
    """To one that its own agent granted, the victim's number is written."""
    own = scene.grant_of(scene.attacker.agent, scene.mallory)
    change_rows("access_grants", {"agent_id": scene.victim.id}, id=own)
    return own


def a_grant_with_a_live_one_s_id(scene: Scene) -> str:
    """Mallory's own takes the id of the one that the victim granted to Ann."""
    own, real = scene.grant_of(scene.attacker.agent, scene.mallory), scene.grant(scene.ann)
    change_rows("access_grants", {"id": "aside"}, id=real)
    change_rows("access_grants", {"id": real, "agent_id": scene.victim.id}, id=own)
    return real


def a_grant_that_began_later(scene: Scene) -> str:
    """It has ended by the statement; each of its row's times says another thing."""
    real = scene.grant(scene.mallory)
    scene.clock.advance(minutes=16)
    change_rows("access_grants", {"decided_at": read_rows("access_grants", id=real)[0]["expires_at"]}, id=real)
    change_rows("access_grants", {"expires_at": datetime(2099, 1, 1, tzinfo=UTC), "minutes": 480}, id=real)
    return real


FORGED: list[Callable[[Scene], str]] = [
    a_grant_of_another_agent,
    a_grant_with_a_live_one_s_id,
    a_grant_that_began_later,
]


@pytest.mark.parametrize("forge", FORGED, ids=lambda forge: forge.__name__)
def test_no_row_of_an_exception_shows_more_than_was_granted(scene: Scene, forge: Callable[[Scene], str]) -> None:
    grant_id = forge(scene)
    assert not verify().ok
    assert SECRET not in scene.look_at(grant_id, scene.mallory)
    forged_view(scene, grant_id, scene.mallory)
    scene.work()
    scene.assert_nothing_opened()
