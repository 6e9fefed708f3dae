"""Each exception is one agent's, one human's and one answer's: what another did or said changes nothing about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest
from sqlalchemy import ColumnElement

from app.asking.calls import Dependencies
from app.asking.human_questions import RestingAfterAsk, resting_until
from app.asking.replies import ConsentAnswer
from app.errors import NotFound, Refused
from app.extensions import db, writing
from app.grants import endings, opening
from app.grants.asking import ask_agent
from app.grants.request import WantedException, decide_grant, request_access, revoke_grant
from app.history.verify import verify
from app.llm.client import Message, ModelError, ModelErrorKind, Reply
from app.models import (
    AccessGrant,
    AccessView,
    Account,
    Action,
    Agent,
    AuditLog,
    GrantCategory,
    GrantStatus,
    MemoryType,
    Trigger,
    User,
)
from app.models.base import database_now
from app.models.declaring import sign_request
from app.refinement.start import start_refinement
from tests.grants.conftest import SECRET, WISH, put, reload, rows
from tests.grants.test_exceptions import contents, seen
from tests.support.clock import FakeClock
from tests.support.factories import begin, make_agent, remember
from tests.support.scripted import ScriptedClient, ScriptedClients, say

YES, NO = ConsentAnswer(granted=True), ConsentAnswer(granted=False)


@pytest.fixture
def bob(people: Callable[..., User]) -> User:
    return people("bob@example.org")


@pytest.fixture
def other(agent: Agent) -> Agent:
    made = make_agent("crumb")
    remember(made, "Crumb likes rain.")
    return made


def answer(grant: AccessGrant, agent: Agent, decision: ConsentAnswer) -> AccessGrant:
    return decide_grant(grant.id, decision, agent_id=agent.id, by=agent.as_actor, keys=None)


def entries(action: Action) -> int:
    db.session.rollback()
    return db.session.scalar(db.select(db.func.count(AuditLog.id)).where(AuditLog.action == action)) or 0


def test_an_answer_at_the_agent_s_own_door_stands_when_its_model_fails_then(agent: Agent, ann: User) -> None:
    grant = request_access(agent.id, WISH, for_user=ann, by=ann.actor)

    def fail_after_the_door(_: Sequence[Message]) -> Reply:
        answer(grant, agent, YES)
        raise ModelError(ModelErrorKind.UNAUTHORIZED, "The model refused the key.")

    ask_agent(grant.id, Dependencies(ScriptedClients(ScriptedClient(fail_after_the_door)), pause=lambda _: None))
    assert reload(grant).status == GrantStatus.GRANTED
    assert SECRET in seen(grant, ann)


def test_what_is_decided_is_not_put_to_a_model_any_more(agent: Agent, ann: User) -> None:
    grant = request_access(agent.id, WISH, for_user=ann, by=ann.actor)
    answer(grant, agent, YES)
    client = ScriptedClient(say("NO"))
    ask_agent(grant.id, Dependencies(ScriptedClients(client)))
    assert client.asked == []
    assert reload(grant).status == GrantStatus.GRANTED


def test_what_is_answered_at_the_last_moment_does_not_end_as_unanswered(
    agent: Agent, ann: User, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant = request_access(agent.id, WISH, for_user=ann, by=ann.actor)
    clock.advance(hours=72)
    end = endings._end_grant

    def answer_before_the_lock(grant_id: str, condition: ColumnElement[bool], status: GrantStatus) -> bool:
        answer(grant, agent, YES)
        return end(grant_id, condition, status)

    monkeypatch.setattr(endings, "_end_grant", answer_before_the_lock)
    assert endings.end_what_is_over() == []
    assert reload(grant).status == GrantStatus.GRANTED


@pytest.mark.parametrize("second", [YES, NO])
def test_an_answer_counts_once(agent: Agent, ann: User, second: ConsentAnswer) -> None:
    grant = request_access(agent.id, WISH, for_user=ann, by=ann.actor)
    answer(grant, agent, YES)
    until = reload(grant).expires_at
    with pytest.raises(Refused, match="granted already"):
        answer(grant, agent, second)
    assert (reload(grant).status, reload(grant).expires_at) == (GrantStatus.GRANTED, until)
    assert entries(Action.ACCESS_GRANTED) == 1


def test_no_agent_answers_for_another(agent: Agent, other: Agent, ann: User) -> None:
    grant = request_access(agent.id, WISH, for_user=ann, by=ann.actor)
    with pytest.raises(NotFound):
        answer(grant, other, YES)
    assert reload(grant).status == GrantStatus.PENDING


def test_an_end_is_never_left(agent: Agent, ann: User) -> None:
    grant, _ = put(agent, ann, say("NO"))
    ended = grant.ended_at
    assert revoke_grant(grant.id, by=ann.actor).status == GrantStatus.DENIED
    assert (reload(grant).status, reload(grant).ended_at) == (GrantStatus.DENIED, ended)
    assert entries(Action.ACCESS_REVOKED) == 0


def test_one_admin_s_question_keeps_no_other_from_asking(agent: Agent, ann: User, bob: User) -> None:
    first = request_access(agent.id, WISH, for_user=ann, by=ann.actor)
    second = request_access(agent.id, WISH, for_user=bob, by=bob.actor)
    assert {reload(first).status, reload(second).status} == {GrantStatus.PENDING}


def test_one_agent_s_no_keeps_nobody_from_asking_another(agent: Agent, other: Agent, ann: User) -> None:
    put(agent, ann, say("NO"))
    assert resting_until(agent.id) is not None
    assert request_access(other.id, WISH, for_user=ann, by=ann.actor).status == GrantStatus.PENDING


def test_after_a_second_no_the_rest_begins_anew_and_is_twice_as_long(agent: Agent, ann: User, clock: FakeClock) -> None:
    put(agent, ann, say("NO"))
    clock.advance(hours=25)
    put(agent, ann, say("NO"))
    clock.advance(hours=47, minutes=59)
    with pytest.raises(RestingAfterAsk):
        request_access(agent.id, WISH, for_user=ann, by=ann.actor)
    clock.advance(minutes=1)
    assert request_access(agent.id, WISH, for_user=ann, by=ann.actor).status == GrantStatus.PENDING


def test_a_no_to_an_exception_is_no_no_to_a_refinement(agent: Agent, ann: User) -> None:
    put(agent, ann, say("NO"))
    assert db.session.get_one(Agent, agent.id).declined_at is None
    assert start_refinement(agent.id, trigger=Trigger.ADMIN, by=ann.actor).is_open


def test_an_admin_of_another_account_is_given_none(agent: Agent, people: Callable[..., User]) -> None:
    with writing():
        next_door = Account.create("Next door").id
    stranger = people("stranger@example.org", account_id=next_door)
    with pytest.raises(Refused, match="agent's own account"):
        request_access(agent.id, WISH, for_user=stranger, by=stranger.actor)
    assert rows("SELECT count(*) FROM access_grants") == [(0,)]


def test_the_history_of_another_agent_s_refinement_can_not_be_asked_for(agent: Agent, other: Agent, ann: User) -> None:
    run = begin(other)
    wish = WantedException(GrantCategory.SAFETY, "Was it right?", 15, run.refinement.id)
    with pytest.raises(NotFound, match="no such refinement"):
        request_access(agent.id, wish, for_user=ann, by=ann.actor)


@pytest.mark.parametrize("setting", [{"model_id": "openai/other"}, {"api_base": "http://127.0.0.1:9/v1"}])
def test_another_model_or_address_ends_the_exceptions_of_this_agent_only(
    agent: Agent, other: Agent, ann: User, setting: dict[str, str]
) -> None:
    its, others = put(agent, ann, say("YES"))[0], put(other, ann, say("YES"))[0]
    with writing():
        Agent.lock(agent.id).change(by=ann.actor, **setting)
    assert reload(its).status == GrantStatus.REVOKED
    assert reload(others).status == GrantStatus.GRANTED


def test_its_minutes_run_by_the_database_s_clock(agent: Agent, ann: User, clock: FakeClock) -> None:
    clock.advance(days=365)
    grant, _ = put(agent, ann, say("YES"))
    moment = db.session.scalar(db.select(database_now()))
    assert moment is not None
    assert grant.decided_at is not None
    assert grant.expires_at == grant.decided_at + timedelta(minutes=15)
    assert moment - timedelta(minutes=5) < grant.decided_at <= moment


def test_a_look_that_nobody_waits_for_any_more_is_answered_with_nothing(
    agent: Agent, ann: User, clock: FakeClock
) -> None:
    grant, _ = put(agent, ann, say("YES"))
    look = opening.look(grant, ann)
    clock.advance(seconds=61)
    opening.answer_view(look.view_id)
    with pytest.raises(opening.NotCovered):
        opening.fetch_view(look)
    assert (entries(Action.ACCESS_VIEWED), reload(grant).views) == (0, 0)


def test_a_look_that_was_put_in_for_somebody_else_is_answered_with_nothing(agent: Agent, ann: User, bob: User) -> None:
    grant, _ = put(agent, ann, say("YES"))
    look = opening.look(grant, ann)
    with writing():
        view = db.session.get_one(AccessView, look.view_id)
        view.user_id = bob.id
        view.note = sign_request(opening.LOOK, view.signed_fields())  # as a web process that was taken over
    opening.answer_view(look.view_id)
    with pytest.raises(opening.NotCovered):
        opening.fetch_view(look)
    assert entries(Action.ACCESS_VIEWED) == 0


def test_a_look_is_answered_once(agent: Agent, ann: User) -> None:
    grant, _ = put(agent, ann, say("YES"))
    look = opening.look(grant, ann)
    for _ in range(2):
        opening.answer_view(look.view_id)
    assert (entries(Action.ACCESS_VIEWED), reload(grant).views) == (1, 1)
    opening.fetch_view(look)
    opening.answer_view(look.view_id)
    with pytest.raises(opening.NotCovered):
        opening.fetch_view(look)


def test_one_for_the_ledger_shows_core_memories_only(agent: Agent, ann: User) -> None:
    remember(agent, "It rained.", type_=MemoryType.JOURNAL)
    grant, _ = put(agent, ann, say("YES"))
    assert "It rained." not in seen(grant, ann)


def test_one_for_the_history_of_a_refinement_shows_no_other_one_s(agent: Agent, ann: User) -> None:
    runs = []
    for number, said in ((2, "Ann: tea."), (3, "Bob: Oslo.")):
        run = begin(agent)
        assert run.tool.execute("update", id=number, content=said)["type"] == "updated"
        run.tool.execute("complete", summary=f"Tightened {number}.")
        runs.append(run)
    wish = WantedException(GrantCategory.SAFETY, "Was it right?", 15, runs[0].refinement.id)
    grant, _ = put(agent, ann, say("YES"), wish=wish)
    look = opening.look(grant, ann)
    opening.answer_view(look.view_id)
    shown = str(opening.fetch_view(look))
    assert "Ann: tea." in shown
    assert "Oslo" not in shown


def test_the_agent_is_told_of_looks_at_what_was_shown_and_of_no_other_ones(
    agent: Agent, ann: User, bob: User, clock: FakeClock
) -> None:
    anns, bobs = put(agent, ann, say("YES"))[0], put(agent, bob, say("YES"))[0]
    seen(anns, ann)
    late = opening.look(bobs, bob)
    clock.advance(minutes=2)
    opening.answer_view(late.view_id)
    for grant, user in ((anns, ann), (bobs, bob)):
        revoke_grant(grant.id, by=user.actor)
        endings.tell_ending(grant.id)
    first, second = sorted(contents(agent))
    assert "ann@example.org" in first
    assert "They looked once" in first
    assert "bob@example.org" in second
    assert "They never looked." in second
    assert verify().ok
