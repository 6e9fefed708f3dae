"""Every call of a model is booked once: what it was for, what it cost, how it ended; and nothing of its content."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest
from flask import Flask
from sqlalchemy import text

from app.asking.calls import AskedAgent, Dependencies, ModelCalls
from app.extensions import db, now, writing
from app.grants.request import revoke_grant
from app.keys.agent_keys import open_keys
from app.keys.forgetting import forget_agent
from app.llm.client import Message, ModelError, ModelErrorKind, Reply
from app.models import COMMAND_LINE, AccessGrant, Agent, CallPurpose, Intake, ModelCall, Refinement
from app.models.base import CLAIM_EXPIRES_AFTER
from app.models.model_call import KEPT, drop_old_calls
from app.refinement.start import request_stop
from app.refinement.sweep import close_stalled
from app.reflection.conversation import hand_in, reflect_on_conversation
from tests.asking.conftest import ASKED, COST, SECRET, booked, costly, on_account, total
from tests.refinement.driving import DONE, call, carry, say
from tests.refinement.reading import READER
from tests.reflection.conftest import TALK, means_of
from tests.support.clock import FakeClock
from tests.support.factories import make_agent, remember
from tests.support.scripted import ScriptedClient, ScriptedClients, ScriptEmpty

pytestmark = pytest.mark.once

JUDGE = {CallPurpose.SAFETY_READING: "openai/judge", CallPurpose.SECOND_READING: READER}

AFTER_OTHERS = (CallPurpose.SECOND_READING, CallPurpose.RECALL_PROBES)
"""These follow calls of the agent's own model, which a key that is missing never lets begin."""


def after(act: Callable[[], object], reply: Reply) -> Callable[[Sequence[Message]], Reply]:
    """A model in whose thinking time something happens."""

    def think(_: Sequence[Message]) -> Reply:
        act()
        return costly(reply)

    return think


@pytest.mark.parametrize("purpose", CallPurpose)
def test_an_answered_call_of_every_purpose_is_booked_once_with_its_usage(
    agent: Agent, guarded: None, clock: FakeClock, purpose: CallPurpose
) -> None:
    ask, reply = ASKED[purpose]
    subject = ask(agent, costly(reply))

    (row,) = booked(purpose)
    assert (row.purpose, row.subject_id, row.outcome) == (purpose, subject, "answered")
    assert (row.account_id, row.agent_id) == (agent.account_id, agent.id)
    assert row.model_id == JUDGE.get(purpose, agent.model_id)
    assert (row.prompt_tokens, row.completion_tokens, row.total_tokens) == (700, 70, 770)
    assert row.cost_usd == COST.cost_usd
    assert (row.started_at, row.seconds) == (clock.at, 0.0)


@pytest.mark.parametrize("purpose", CallPurpose)
def test_a_failed_call_of_every_purpose_is_booked_once_with_its_kind_however_often_it_was_tried(
    agent: Agent, guarded: None, purpose: CallPurpose
) -> None:
    subject = ASKED[purpose][0](agent, *[ModelError(ModelErrorKind.OVERLOADED, "The model is overloaded.")] * 3)

    (row,) = booked(purpose)
    assert (row.purpose, row.subject_id, row.outcome) == (purpose, subject, "overloaded")
    assert (row.total_tokens, row.cost_usd) == (0, 0)


@pytest.mark.parametrize("purpose", [each for each in CallPurpose if each not in (*JUDGE, *AFTER_OTHERS)])
def test_a_call_that_no_key_lets_begin_is_booked_as_that(app: Flask, agent: Agent, purpose: CallPurpose) -> None:
    with writing():
        Agent.lock(agent.id).change(api_key_env="WRENS_API_KEY", by=COMMAND_LINE)
    app.extensions["settings"] = app.extensions["settings"].model_copy(update={"api_key_envs": ()})
    ASKED[purpose][0](agent)

    assert [(row.purpose, row.outcome) for row in booked()] == [(purpose, "no_key")]


@pytest.mark.parametrize("purpose", CallPurpose)
def test_what_breaks_unexpectedly_is_booked_too(agent: Agent, guarded: None, purpose: CallPurpose) -> None:
    with pytest.raises(ScriptEmpty):
        ASKED[purpose][0](agent)

    assert [(row.purpose, row.outcome) for row in booked(purpose)] == [(purpose, "unexpected")]


def test_the_calls_of_a_refinement_agree_with_its_own_totals(agent: Agent) -> None:
    search = costly(call("search_memories", query="tea"))
    busy = ModelError(ModelErrorKind.OVERLOADED, "The model is overloaded.")
    done = carry(agent, costly(say("YES")), busy, search, costly(DONE)).refinement

    assert [row.purpose for row in booked()] == ["consent", "refinement", "refinement"]
    assert {row.subject_id for row in booked()} == {done.id}
    assert total(booked()) == on_account(done) == COST + COST + COST


def test_a_call_that_was_stopped_meanwhile_is_booked_once_and_on_the_refinement_if_it_is_a_turn(agent: Agent) -> None:
    def press() -> None:
        request_stop(Refinement.open_of(agent.id).id, by=COMMAND_LINE)  # type: ignore[union-attr]

    asked = carry(agent, after(press, say("YES"))).refinement
    assert (asked.status, total(booked()), on_account(asked).total_tokens) == ("stopped", COST, 0)

    turned = carry(agent, say("YES"), after(press, DONE)).refinement
    assert turned.status == "stopped"
    assert total([row for row in booked() if row.subject_id == turned.id]) == on_account(turned)


@pytest.mark.parametrize("replies", [(), (say("YES"),)], ids=["consent", "loop"])
def test_a_worker_that_was_given_up_books_its_late_call_once_and_only_as_a_call(
    agent: Agent, replies: tuple[Reply, ...]
) -> None:
    def sweep() -> None:
        with writing() as session:
            session.execute(text("UPDATE refinements SET heartbeat_at = :at"), {"at": now() - timedelta(days=999)})
        assert len(close_stalled()) == 1

    done = carry(agent, *replies, after(sweep, call("delete_memory", id=1, carried_by=2))).refinement

    assert done.status == "interrupted"
    late = booked()[len(replies) :]
    assert [(row.subject_id, row.total_tokens) for row in late] == [(done.id, COST.total_tokens)]
    assert on_account(done) == total(booked()[: len(replies)])


def test_the_reply_to_a_rollback_is_booked_and_on_no_account_of_the_refinement(agent: Agent) -> None:
    said = "On the third of May, number {}: tell the truth, even when it is small."
    *ids, carrier = remember(agent, *map(said.format, range(8)), said.format("0, 1, 2"))
    cuts = [call("delete_memory", id=number, carried_by=carrier) for number in ids[:3]]
    told = carry(agent, say("YES"), *cuts, costly(say("I see."))).refinement

    assert told.status == "rolled_back"
    *counted, last = booked()
    assert total(counted) == on_account(told)
    assert total([last]) == COST


def test_an_answer_to_an_exception_that_was_taken_back_meanwhile_is_booked_once(agent: Agent) -> None:
    def take_back() -> None:
        revoke_grant(db.session.scalars(db.select(AccessGrant.id)).one(), by=COMMAND_LINE)

    subject = ASKED[CallPurpose.EXCEPTION][0](agent, after(take_back, say("YES")))

    assert [(row.subject_id, row.total_tokens) for row in booked()] == [(subject, 770)]
    assert db.session.scalars(db.select(AccessGrant.status)).one() == "revoked"


def test_two_workers_that_ask_about_one_conversation_book_a_call_each(agent: Agent, clock: FakeClock) -> None:
    intake = hand_in(agent.id, TALK, agent.as_actor)
    found = say('{"journal": ["Later."], "core": []}')

    def taken_over() -> None:
        clock.advance(seconds=CLAIM_EXPIRES_AFTER.total_seconds() + 1)
        reflect_on_conversation(intake.id, means_of(costly(found))[0])

    reflect_on_conversation(intake.id, means_of(after(taken_over, found))[0])

    assert [(row.subject_id, row.total_tokens) for row in booked()] == [(intake.id, 770)] * 2
    assert db.session.get_one(Intake, intake.id).imported == 1


def test_an_answer_that_can_not_be_used_is_booked_once(agent: Agent, guarded: None) -> None:
    for purpose in (CallPurpose.SAFETY_READING, CallPurpose.CONVERSATION, CallPurpose.PROMOTION):
        ASKED[purpose][0](agent, costly(say("Perhaps?")))

        (row,) = booked(purpose)
        assert (row.outcome, row.total_tokens) == ("answered", 770)


def test_a_transaction_that_is_rolled_back_books_nothing_and_the_next_one_does(agent: Agent) -> None:
    client = ScriptedClients(ScriptedClient(costly(say("Hm."))))
    with ModelCalls(AskedAgent.of(agent, open_keys(agent)), Dependencies(client)) as calls:
        calls.ask(CallPurpose.PROMOTION, lambda _: [])
        with pytest.raises(ZeroDivisionError), writing():
            calls.book()
            raise ZeroDivisionError
        assert booked() == []
        with writing():
            calls.book()
        assert len(booked()) == 1
    assert len(booked()) == 1


def test_seconds_run_from_the_first_attempt_to_the_end_of_the_last(agent: Agent) -> None:
    time = [100.0]

    def slowly(_: Sequence[Message]) -> Reply:
        time[0] += 2.5
        return say("YES")

    def pause(seconds: float) -> None:
        time[0] += 10

    busy = ModelError(ModelErrorKind.OVERLOADED, "The model is overloaded.")
    dependencies = Dependencies(ScriptedClients(ScriptedClient(busy, slowly)), pause=pause, monotonic=lambda: time[0])
    with ModelCalls(AskedAgent.of(agent, open_keys(agent)), dependencies) as calls:
        calls.ask(CallPurpose.PROMOTION, lambda _: [])

    assert [row.seconds for row in booked()] == [12.5]


def test_no_row_holds_anything_of_what_was_asked_or_answered(agent: Agent, guarded: None) -> None:
    for ask, reply in ASKED.values():
        ask(agent, reply)

    rows = repr(db.session.execute(text("SELECT * FROM model_calls")).all())
    for content in (SECRET, "Dora", "sister", "kind", "All is well", "sugar"):
        assert content not in rows
    assert {row.purpose for row in booked()} == set(CallPurpose)


def test_calls_stay_when_their_agent_is_forgotten_and_one_that_ends_later_is_booked(agent: Agent) -> None:
    ASKED[CallPurpose.CONVERSATION][0](agent, after(lambda: forget_agent(agent.id, by=COMMAND_LINE), say("{}")))

    assert [(row.agent_id, row.total_tokens) for row in booked()] == [(agent.id, 770)]


def test_calls_are_kept_for_400_days_and_removed_in_bounded_batches(
    app: Flask, agent: Agent, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.models.base.BATCH", 2)
    assert timedelta(days=400) == KEPT
    other = make_agent("crumb", model_id="openai/scripted")
    for each in (agent, other, agent, other, agent):
        ASKED[CallPurpose.CONVERSATION][0](each, say("{}"))
    clock.advance(days=400)
    assert drop_old_calls() == 0
    clock.advance(seconds=1)
    ASKED[CallPurpose.CONVERSATION][0](other, say("{}"))
    (*_, newest) = booked()

    assert [drop_old_calls(), drop_old_calls()] == [5, 0]
    assert booked() == [newest]
    assert isinstance(newest, ModelCall)
