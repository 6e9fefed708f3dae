"""What an account may use: how many refinements at once, and what asking models may cost it a month."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from flask import Flask

from app.asking.calls import Dependencies
from app.extensions import db, now, reading, writing
from app.history.progress import Progress
from app.history.steps import steps_of
from app.models import COMMAND_LINE, Account, Agent, CallPurpose, Mode, ModelCall, Refinement, Trigger
from app.models.account_limits import AccountLimits
from app.models.account_use import MonthlyCostReached, next_waiting
from app.refinement.process import run_refinement
from app.refinement.start import request_stop, start_refinement
from app.refinement.sweep import find_lost_starts, sweep_weekly
from app.refinement.timetable import Timetable
from tests.refinement.driving import DONE, alike, call, carry, say
from tests.support.clock import FakeClock
from tests.support.factories import HOME, begin, make_agent, remember
from tests.support.scripted import ScriptedClient, ScriptedClients


def limit(account_id: int = HOME, **limits: int | Decimal | None) -> None:
    with writing():
        Account.lock(account_id).set_limits(AccountLimits(**limits), by=COMMAND_LINE)  # type: ignore[arg-type]


def spend(agent: Agent, dollars: str, *, at: datetime | None = None) -> None:
    """A call of a model, as `ModelCalls.book` writes it down."""
    with writing() as session:
        call = ModelCall(account_id=agent.account_id, agent_id=agent.id, purpose=CallPurpose.CONVERSATION)
        call.subject_id, call.model_id, call.outcome, call.seconds = None, "openai/gpt-5", "answered", 1.0
        call.prompt_tokens = call.completion_tokens = call.total_tokens = 1
        call.cost_usd, call.started_at = Decimal(dollars), at or now()
        session.add(call)


def queue(agent: Agent, mode: Mode = Mode.FULL) -> str:
    return start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE, mode=mode).id


def work(refinement_id: str, *replies: object) -> str:
    """As a worker does; returns the status after it."""
    run_refinement(refinement_id, Dependencies(ScriptedClients(ScriptedClient(*replies))))  # type: ignore[arg-type]
    db.session.rollback()
    return str(db.session.get_one(Refinement, refinement_id, populate_existing=True).status)


def waits_for(refinement_id: str) -> str:
    refinement = db.session.get_one(Refinement, refinement_id, populate_existing=True)
    agent = db.session.get_one(Agent, refinement.agent_id)
    progress = Progress.of(refinement, agent, steps_of(refinement))
    assert progress is not None
    return f"{progress.waits_for}: {progress.title}"


def filled(name: str) -> Agent:
    agent = make_agent(name)
    remember(agent, *alike(3))
    return agent


def test_what_is_over_waits_with_its_reason_and_begins_when_another_ends(app: Flask, clock: FakeClock) -> None:
    running, waiting = begin(filled("running")), queue(filled("waiting"))
    limit(max_refinements=1)

    assert work(waiting) == "queued"
    assert waits_for(waiting).startswith("place: Waiting: this account has as many running")
    clock.advance(minutes=5)
    assert find_lost_starts() == []
    with reading():
        assert next_waiting(running.refinement.id) is None

    running.tool.execute("complete", summary="Done.")
    with reading():
        assert next_waiting(running.refinement.id) == waiting
    assert find_lost_starts() == [waiting]
    assert work(waiting, say("YES"), DONE) == "completed"


def test_another_account_s_refinements_take_no_place(app: Flask) -> None:
    with writing():
        other = Account.create("Other", limits=AccountLimits(max_refinements=1))
    begin(filled("running"))
    agent = make_agent("theirs", account_id=other.id)
    remember(agent, *alike(2))
    assert work(queue(agent), say("YES"), DONE) == "completed"


def test_who_waits_can_be_stopped(app: Flask) -> None:
    limit(max_refinements=0)
    waiting = queue(filled("waiting"))
    assert work(waiting) == "queued"
    request_stop(waiting, by=COMMAND_LINE)
    db.session.rollback()
    assert db.session.get_one(Refinement, waiting).status == "stopped"


def test_nothing_that_asks_a_model_starts_once_the_month_s_cost_is_reached(app: Flask, clock: FakeClock) -> None:
    agent = filled("wren")
    limit(max_monthly_cost=Decimal(5))
    spend(agent, "4.99")
    spend(agent, "7", at=datetime(2026, 10, 31, 23, 59, tzinfo=UTC))
    queued = queue(agent)
    spend(agent, "0.01")

    assert work(queued) == "queued"
    assert waits_for(queued).startswith("month: ")
    request_stop(queued, by=COMMAND_LINE)
    for trigger in (Trigger.ADMIN, Trigger.AGENT, Trigger.WEEKLY):
        with pytest.raises(MonthlyCostReached, match=r"\$5\.00, has reached its limit of \$5\.00"):
            start_refinement(agent.id, trigger=trigger, by=COMMAND_LINE)
    assert work(queue(agent, Mode.DEDUP_ONLY)) == "completed"


def test_beat_passes_over_it_and_the_agent_says_why_until_the_month_is_over(app: Flask, clock: FakeClock) -> None:
    agent = filled("wren")
    limit(max_monthly_cost=Decimal(5))
    spend(agent, "5")

    assert sweep_weekly(now()) == []
    with reading() as session:
        due = Timetable().outlooks([session.get_one(Agent, agent.id)])[agent.id].due
    assert (due.at, due.short) == (None, "cost limit reached")
    assert "start again on 1 December, or when the operator raises the limit" in due.words

    clock.at = datetime(2026, 12, 1, 0, 0, 1, tzinfo=UTC)
    assert len(sweep_weekly(now())) == 1


def test_a_raised_limit_lets_it_start_at_once(app: Flask) -> None:
    agent = filled("wren")
    limit(max_monthly_cost=Decimal(5))
    spend(agent, "5")
    limit(max_monthly_cost=Decimal("5.01"))
    assert work(queue(agent), say("YES"), DONE) == "completed"


def test_one_that_runs_ends_before_its_next_turn(app: Flask) -> None:
    agent = filled("wren")
    limit(max_monthly_cost=Decimal(5))

    def spend_meanwhile(*_: object) -> object:
        spend(agent, "5")
        return call("search_memories", query="tea")

    done = carry(agent, say("YES"), spend_meanwhile)  # type: ignore[arg-type]
    assert done.status == "unfinished"
    assert done.refinement.turns == 1
    assert "month's model cost has reached the account's limit" in str(done.refinement.reason)
