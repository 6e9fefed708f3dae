"""Rows of exceptions and of looks: only what the agent agreed to, for whom, and as long as it said, shows anything."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.asking.human_questions import earlier_answers, resting_until
from app.asking.replies import ConsentAnswer
from app.extensions import db, now
from app.grants import asking, opening
from app.grants.request import WantedException, decide_grant, request_access, revoke_grant
from app.llm.client import Message, Reply
from app.models import COMMAND_LINE, AccessGrant, AccessView, GrantCategory, GrantStatus, User
from app.models.statement_errors import AgentStopped
from app.silo.notes import SigningKey, sign_note, web_name
from app.silo.statements import compose_text
from tests.adversaries.forging import change_rows, insert_row, read_rows, remove_rows, without_statements
from tests.adversaries.scene import SECRET, WISH, KnownUser, Scene
from tests.support.factories import begin
from tests.support.scripted import say

LIVE_UNTIL = datetime.now(UTC) + timedelta(hours=8)
"""By the database's clock, which no test turns."""


def forged_grant(scene: Scene, user: KnownUser, **others: Any) -> str:
    """A row that says that the victim agreed; its id."""
    number = str(uuid.uuid4())
    said = {"category": "debugging", "purpose": "To see.", "minutes": 480, "refinement_id": None, "views": 0}
    asked = {"requested_by": "user:mallory@example.org", "requested_at": now(), "note": b""}
    decided = {"status": "granted", "decided_at": datetime.now(UTC), "expires_at": LIVE_UNTIL}
    whose = {"account_id": 1, "agent_id": scene.victim.id, "user_id": user.id}
    insert_row("access_grants", id=number, **whose, **said, **asked, **(decided | others))
    return number


def forged_view(scene: Scene, grant_id: str, user: KnownUser, **others: Any) -> str:
    """A look that nobody's browser asked for, of which the attacker has the key."""
    number = str(uuid.uuid4())
    said = {"reader": scene.attacker.look.public.raw, "wanted": {}, "note": b"", "requested_at": now()}
    insert_row("access_views", id=number, grant_id=grant_id, user_id=user.id, **(said | others))
    return number


def probe(scene: Scene, grant_id: str, user: KnownUser) -> None:
    """The user looks, by the web process, which knows nothing of the attack."""
    scene.probes.append(lambda: scene.look_at(grant_id, user))


def test_an_exception_that_nobody_granted_shows_nothing(scene: Scene) -> None:
    with scene.attacked():
        grant_id = forged_grant(scene, scene.mallory)
        forged_view(scene, grant_id, scene.mallory)
        probe(scene, grant_id, scene.mallory)


def test_nor_does_one_that_the_audit_log_explains(scene: Scene) -> None:
    with scene.attacked():
        grant = ask(scene, scene.mallory)
        with without_statements():
            decide_grant(grant, ConsentAnswer(granted=True), agent_id=scene.victim.id, by=COMMAND_LINE, keys=None)
        probe(scene, grant, scene.mallory)


def ask(scene: Scene, user: KnownUser, wish: WantedException = WISH) -> str:
    """By the page: nobody has answered yet."""
    with scene.web.app_context():
        asker = db.session.get_one(User, user.id)
        return request_access(scene.victim.id, wish, for_user=asker, by=user.actor).id


GRANTED = {"status": "granted", "decided_at": datetime.now(UTC), "expires_at": LIVE_UNTIL, "ended_at": None}


def test_a_pending_one_that_is_granted_by_hand_shows_nothing(scene: Scene) -> None:
    grant_id = ask(scene, scene.mallory)
    with scene.attacked():
        change_rows("access_grants", GRANTED, id=grant_id)
        probe(scene, grant_id, scene.mallory)


def test_a_no_that_is_turned_into_a_yes_shows_nothing(scene: Scene) -> None:
    grant_id = scene.grant(scene.mallory, answer="NO")
    with scene.attacked():
        change_rows("access_grants", GRANTED | {"ended_by": None, "told_at": None}, id=grant_id)
        change_rows("consents", {"granted": True}, grant_id=grant_id)
        with pytest.raises(AgentStopped):
            scene.open_as_worker()
        probe(scene, grant_id, scene.mallory)


@pytest.mark.parametrize("how", ["turned into a YES", "gone"])
def test_a_no_goes_on_to_keep_humans_from_asking(scene: Scene, how: str) -> None:
    grant_id = scene.grant(scene.mallory, answer="NO")
    if how == "gone":
        remove_rows("consents", grant_id=grant_id)
        remove_rows("access_grants", id=grant_id)
    else:
        change_rows("consents", {"granted": True}, grant_id=grant_id)
        change_rows("access_grants", GRANTED, id=grant_id)
    with scene.web.app_context():
        assert resting_until(scene.victim.id) is not None
        (answer,) = earlier_answers(scene.victim.id)
        assert (answer.answer, answer.asked_by) == ("NO", "mallory@example.org")
        db.session.remove()


def test_one_that_was_taken_back_stays_so(scene: Scene) -> None:
    grant_id = scene.grant(scene.mallory)
    revoke_grant(grant_id, by=scene.ann.actor)
    with scene.attacked():
        change_rows("access_grants", GRANTED, id=grant_id)
        probe(scene, grant_id, scene.mallory)


WIDENED: list[tuple[str, Any]] = [
    ("minutes", 480),
    ("purpose", "Everything."),
    ("category", "legal"),
    ("user_id", None),
    ("by_token", "0123456789abcdef"),
]


@pytest.mark.parametrize(("column", "value"), WIDENED, ids=[column for column, _ in WIDENED])
def test_nothing_of_a_live_one_can_be_another(scene: Scene, column: str, value: Any) -> None:
    grant_id = scene.grant(scene.ann)
    with scene.attacked():
        change_rows("access_grants", {column: scene.mallory.id if column == "user_id" else value}, id=grant_id)
        with pytest.raises(AgentStopped):
            scene.open_as_worker()
        probe(scene, grant_id, scene.mallory)
        probe(scene, grant_id, scene.ann)


def test_the_history_of_one_refinement_can_not_become_the_ledger(scene: Scene) -> None:
    run = begin(scene.victim_now())
    run.tool.execute("complete", summary="Done.")
    wish = WantedException(GrantCategory.SAFETY, "Was it right?", 15, run.refinement.id)
    grant_id = scene.grant(scene.mallory, wish)
    with scene.attacked():
        change_rows("access_grants", {"refinement_id": None}, id=grant_id)
        probe(scene, grant_id, scene.mallory)


def test_its_end_is_the_statement_s_whatever_the_row_says(scene: Scene) -> None:
    """By the worker's clock: a quarter of an hour is over."""
    grant_id = scene.grant(scene.mallory)
    with scene.attacked():
        change_rows("access_grants", {"expires_at": LIVE_UNTIL}, id=grant_id)
        scene.clock.advance(minutes=16)
        probe(scene, grant_id, scene.mallory)


def test_an_email_that_is_swapped_ends_what_was_granted_to_it(scene: Scene) -> None:
    """Mallory takes Ann's address, so that the agent agrees to her; and gives it back."""
    change_rows("users", {"email": "else@example.org"}, id=scene.ann.id)
    change_rows("users", {"email": "ann@example.org"}, id=scene.mallory.id)
    grant_id = scene.grant(scene.mallory)
    with scene.attacked():
        change_rows("users", {"email": "mallory@example.org"}, id=scene.mallory.id)
        probe(scene, grant_id, scene.mallory)


# What is asked is what is agreed to


@pytest.mark.parametrize("change", [{"minutes": 480}, {"user_id": 0}, {"purpose": "Everything."}], ids=str)
def test_a_yes_is_one_to_what_was_asked_even_where_the_row_changes_while_the_model_thinks(
    scene: Scene, change: dict[str, Any]
) -> None:
    grant_id = ask(scene, scene.ann)
    change = {name: value or scene.mallory.id for name, value in change.items()}

    def agree(_: Sequence[Message]) -> Reply:
        change_rows("access_grants", change, id=grant_id)
        return say("YES")

    scene.models.answer = agree
    asking.ask_agent(grant_id, scene.models.dependencies)
    (row,) = read_rows("access_grants", id=grant_id)
    assert row["status"] == GrantStatus.FAILED
    assert SECRET not in scene.look_at(grant_id, scene.mallory) + scene.look_at(grant_id, scene.ann)


@pytest.mark.parametrize("change", [{"minutes": 480}, {"user_id": 0}, {"purpose": "To help you."}], ids=str)
@pytest.mark.parametrize("door", ["its model", "its token"])
def test_an_agent_is_asked_only_what_a_web_process_signed(scene: Scene, change: dict[str, Any], door: str) -> None:
    grant_id = ask(scene, scene.ann)
    change = {name: value or scene.mallory.id for name, value in change.items()}
    scene.models.answer = lambda _: say("YES")
    with scene.attacked(named=False):
        change_rows("access_grants", change, id=grant_id)
        if door == "its token":
            scene.call(scene.home, "POST", f"/access-requests/{grant_id}/decision", {"decision": "grant"})
        probe(scene, grant_id, scene.mallory)
        probe(scene, grant_id, scene.ann)


# Looks


def test_a_look_that_no_web_process_signed_is_answered_with_nothing(scene: Scene) -> None:
    grant_id = scene.grant(scene.ann)
    with scene.attacked(named=False):
        forged_view(scene, grant_id, scene.ann)


def test_nor_is_one_that_an_unknown_web_process_signed(scene: Scene) -> None:
    grant_id = scene.grant(scene.ann)
    stranger = unknown_key()
    with scene.attacked(named=False):
        number = forged_view(scene, grant_id, scene.ann)
        resign(number, lambda said: sign_note(compose_text(opening.LOOK, said), stranger))


def unknown_key() -> SigningKey:
    """A web process's key that nobody enrolled."""
    seed = b"s" * 32
    public = SigningKey("any", seed).verifier.public
    return SigningKey(web_name(public), seed)


def resign(view_id: str, sign: Callable[[dict[str, Any]], bytes]) -> None:
    db.session.rollback()
    said = db.session.get_one(AccessView, view_id).signed_fields()
    change_rows("access_views", {"note": sign(said)}, id=view_id)


def real_look(scene: Scene, grant_id: str, user: KnownUser) -> str:
    """One that a browser asked for, and nobody answered yet."""
    with scene.web.app_context():
        grant, looker = db.session.get_one(AccessGrant, grant_id), db.session.get_one(User, user.id)
        return opening.look(grant, looker).view_id


def test_the_signature_of_another_look_is_none_of_this(scene: Scene) -> None:
    grant_id = scene.grant(scene.ann)
    real = real_look(scene, grant_id, scene.ann)
    with scene.attacked(named=False):
        forged_view(scene, grant_id, scene.ann, note=read_rows("access_views", id=real)[0]["note"])


@pytest.mark.parametrize("column", ["reader", "wanted", "user_id", "requested_at", "grant_id"])
def test_a_look_that_was_changed_after_it_was_signed_is_answered_with_nothing(scene: Scene, column: str) -> None:
    grant_id = scene.grant(scene.ann)
    others = {
        "reader": scene.attacker.look.public.raw,
        "wanted": {"after": 1},
        "user_id": scene.mallory.id,
        "requested_at": now() + timedelta(seconds=1),
        "grant_id": scene.grant(scene.mallory),
    }
    real = real_look(scene, grant_id, scene.ann)
    with scene.attacked(named=False):
        change_rows("access_views", {column: others[column], "reader": scene.attacker.look.public.raw}, id=real)
        opening.answer_view(real)
        assert read_rows("access_views", id=real)[0]["sealed"] is None


def test_a_look_that_was_answered_is_not_answered_again(scene: Scene) -> None:
    grant_id = scene.grant(scene.ann)
    assert SECRET in scene.look_at(grant_id, scene.ann)
    (view,) = read_rows("access_views", grant_id=grant_id)
    with scene.attacked():
        renewed = {"answered_at": None, "seen": None, "reader": scene.attacker.look.public.raw}
        change_rows("access_views", renewed, id=view["id"])


def test_what_a_look_showed_can_not_be_hidden(scene: Scene) -> None:
    grant_id = scene.grant(scene.ann)
    assert SECRET in scene.look_at(grant_id, scene.ann)
    with scene.attacked():
        remove_rows("access_views", grant_id=grant_id)


# Clocks


@pytest.mark.parametrize("minutes", [16, -16])
def test_where_the_worker_s_clock_jumps_an_exception_shows_nothing(scene: Scene, minutes: int) -> None:
    """Forward it has ended, back it has not begun: the database's says that it lasts."""
    grant_id = scene.grant(scene.ann)
    assert SECRET in scene.look_at(grant_id, scene.ann)
    scene.clock.advance(minutes=minutes)
    assert SECRET not in scene.look_at(grant_id, scene.ann)
    scene.clock.advance(minutes=-minutes)
    assert SECRET in scene.look_at(grant_id, scene.ann)


@pytest.mark.parametrize("minutes", [16, -1])
def test_where_the_database_s_clock_jumps_it_shows_nothing(
    scene: Scene, minutes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant_id = scene.grant(scene.ann)
    with monkeypatch.context() as patch:
        jumped = datetime.now(UTC) + timedelta(minutes=minutes)
        patch.setattr(opening, "database_now", lambda: db.literal(jumped, AccessGrant.expires_at.type))
        assert SECRET not in scene.look_at(grant_id, scene.ann)
    assert SECRET in scene.look_at(grant_id, scene.ann)


def test_an_exception_outlives_no_longer_where_its_row_and_the_database_s_clock_say_so(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has the database stops its clock; the worker's goes on."""
    grant_id = scene.grant(scene.mallory)
    begun = datetime.now(UTC)
    change_rows("access_grants", {"expires_at": LIVE_UNTIL}, id=grant_id)
    monkeypatch.setattr(opening, "database_now", lambda: db.literal(begun, AccessGrant.expires_at.type))
    scene.clock.advance(minutes=15, seconds=1)
    assert SECRET not in scene.look_at(grant_id, scene.mallory)
