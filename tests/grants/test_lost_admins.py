"""A human who may not look any more: no YES makes up for the role, and the exception ends, in plain words."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import select

from app.asking.calls import Dependencies
from app.asking.replies import ConsentAnswer
from app.extensions import db, writing
from app.grants import endings, opening
from app.grants.asking import ask_agent
from app.grants.request import decide_grant, request_access
from app.history.verify import verify
from app.models import AccessGrant, AccessView, Account, Action, Agent, AuditLog, GrantStatus, Role, User
from app.models.user import AUDITOR, OWNER, SITE_ADMIN
from tests.grants.conftest import SECRET, WISH, put, reload, rows
from tests.grants.test_exceptions import contents, run_out, seen
from tests.support.scripted import ScriptedClient, ScriptedClients, say

Lose = Callable[[User], None]
LOST = "the person is no longer an active admin of this account"


def only(role: str) -> Lose:
    def change(user: User) -> None:
        user.roles = [db.session.scalar(select(Role).where(Role.name == role)) or Role(name=role)]

    return change


def deactivate(user: User) -> None:
    user.active = False


def move(user: User) -> None:
    user.account_id = Account.create("Next door").id


def strip(user: User) -> None:
    user.roles = []


WAYS = pytest.mark.parametrize("lose", [only(AUDITOR), only(SITE_ADMIN), strip, deactivate, move])


def change(user: User, lose: Lose) -> None:
    with writing():
        lose(db.session.get_one(User, user.id))


def told(grant: AccessGrant) -> list[AuditLog]:
    db.session.rollback()
    actions = (Action.ACCESS_REVOKED, Action.ACCESS_EXPIRED, Action.ACCESS_GRANTED, Action.ACCESS_VIEWED)
    query = select(AuditLog).where(AuditLog.subject == grant.subject, AuditLog.action.in_(actions))
    return list(db.session.scalars(query.order_by(AuditLog.id)))


@WAYS
def test_a_worker_opens_nothing_for_somebody_who_is_no_admin_any_more_and_ends_it(
    agent: Agent, ann: User, lose: Lose
) -> None:
    grant, _ = put(agent, ann, say("YES"))
    look = opening.look(grant, ann)
    change(ann, lose)
    opening.answer_view(look.view_id)

    view = db.session.get_one(AccessView, look.view_id, populate_existing=True)
    assert (view.sealed, view.seen, view.refused) == (None, None, f"The exception has ended: {LOST}.")
    with pytest.raises(opening.NotCovered, match=LOST):
        opening.fetch_view(look)
    ended = reload(grant)
    assert (ended.status, ended.ended_by, ended.views) == (GrantStatus.REVOKED, "system:worker", 0)
    assert [(entry.action, entry.data.get("why")) for entry in told(grant)][1:] == [(Action.ACCESS_REVOKED, LOST)]
    assert verify(agent).ok
    assert "user 2" in str(verify().first_problem), "whom no door of the product changes like that"


@WAYS
def test_it_covers_nothing_from_that_moment_on_and_the_sweep_writes_it_down(
    agent: Agent, ann: User, lose: Lose
) -> None:
    grant, _ = put(agent, ann, say("YES"))
    change(ann, lose)
    with pytest.raises(opening.NotCovered):
        opening.look(grant, ann)
    assert endings.end_what_is_over() == [grant.id]
    assert endings.end_what_is_over() == []
    assert reload(grant).status == GrantStatus.REVOKED


def test_what_was_sealed_before_is_not_fetched_after(agent: Agent, ann: User) -> None:
    grant, _ = put(agent, ann, say("YES"))
    look = opening.look(grant, ann)
    opening.answer_view(look.view_id)
    change(ann, only(AUDITOR))
    with pytest.raises(opening.NotCovered):
        opening.fetch_view(look)
    assert rows("SELECT count(*) FROM access_views WHERE sealed IS NOT NULL") == [(0,)]


def test_the_agent_s_journal_says_why_it_ended(agent: Agent, ann: User) -> None:
    grant, _ = put(agent, ann, say("YES"))
    seen(grant, ann)
    change(ann, deactivate)
    endings.end_what_is_over()
    assert endings.find_endings_to_tell() == [grant.id]
    endings.tell_ending(grant.id)
    (note,) = contents(agent)
    assert f"by worker ({LOST}). They looked once" in note


def test_a_role_that_includes_an_admin_s_goes_on(agent: Agent, ann: User) -> None:
    grant, _ = put(agent, ann, say("YES"))
    change(ann, only(OWNER))
    assert SECRET in seen(grant, ann)
    assert endings.end_what_is_over() == []


def test_a_role_that_comes_back_brings_no_exception_back(agent: Agent, ann: User) -> None:
    grant, _ = put(agent, ann, say("YES"))
    change(ann, only(AUDITOR))
    endings.end_what_is_over()
    change(ann, only(OWNER))
    with pytest.raises(opening.NotCovered):
        opening.look(grant, ann)


def test_nobody_is_asked_on_behalf_of_somebody_who_may_not_look(agent: Agent, ann: User) -> None:
    grant = request_access(agent.id, WISH, for_user=ann, by=ann.actor)
    change(ann, only(AUDITOR))
    client = ScriptedClient(say("YES"))
    ask_agent(grant.id, Dependencies(ScriptedClients(client), pause=lambda _: None, monotonic=lambda: 0.0))

    assert client.asked == []
    assert reload(grant).status == GrantStatus.REVOKED


def test_a_yes_that_comes_too_late_for_the_role_shows_nothing(agent: Agent, ann: User) -> None:
    grant = request_access(agent.id, WISH, for_user=ann, by=ann.actor)
    change(ann, deactivate)
    answered = decide_grant(grant.id, ConsentAnswer(True), agent_id=agent.id, by=agent.as_actor, keys=None)

    assert (answered.status, answered.expires_at) == (GrantStatus.REVOKED, None)
    assert [entry.action for entry in told(grant)] == [Action.ACCESS_REVOKED]
    assert rows("SELECT count(*) FROM consents WHERE granted") == [(1,)]


def test_one_that_had_run_out_before_is_expired_and_not_taken_back(agent: Agent, ann: User) -> None:
    grant, _ = put(agent, ann, say("YES"))
    run_out(grant)
    change(ann, only(AUDITOR))
    endings.end_what_is_over()
    assert reload(grant).status == GrantStatus.EXPIRED
