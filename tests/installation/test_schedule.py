"""The schedule as an account sees it: what the beat's own rule would start, and nothing of anybody else."""

from __future__ import annotations

from datetime import timedelta

from flask import Flask
from sqlalchemy import update

from app.config import load_settings
from app.extensions import db, writing
from app.installation.schedule import CrontabPlan, Schedule
from app.models import Account, Agent
from app.refinement.sweep import sweep_weekly
from tests.support.clock import MONDAY, FakeClock
from tests.support.factories import HOME, make_agent, remember


def made(name: str, *, account_id: int = HOME, refined_days_ago: float | None = None, **fields: object) -> int:
    agent = make_agent(name, account_id=account_id)
    remember(agent, f"{name} likes tea.")
    if refined_days_ago is not None:
        fields["last_refinement_at"] = MONDAY - timedelta(days=refined_days_ago)
    with writing():
        if fields:
            db.session.execute(update(Agent).where(Agent.id == agent.id).values(**fields))
    return agent.id


def due(crontab: str = "0 4 * * 1") -> list[int]:
    return [run.due for run in CrontabPlan(crontab, HOME).runs]


def test_what_it_counts_for_the_first_run_is_what_the_sweep_starts(app: Flask, clock: FakeClock) -> None:
    made("never"), made("long ago", refined_days_ago=9), made("paused", paused=True)
    made("lately", refined_days_ago=3), made("tried today", last_attempt_at=MONDAY - timedelta(hours=5))
    make_agent("without memories")
    with writing():
        other = Account.create("Next door").id
    made("next door", account_id=other)

    counted = due()

    assert counted[0] == 2
    assert len(sweep_weekly(clock.now())) == counted[0] + 1  # and the one next door


def test_each_agent_comes_again_when_its_interval_has_passed(app: Flask, clock: FakeClock) -> None:
    made("never"), made("lately", refined_days_ago=3)

    assert due() == [1, 2, 2, 2, 2]
    assert due("0 4 * * *") == [1, 0, 0, 0, 1]
    clock.advance(days=-4)
    assert due("0 4 * * 1,4") == [1, 0, 1, 1, 1]


def test_it_says_where_the_crontab_comes_from_and_who_is_never_started(app: Flask) -> None:
    made("never"), made("paused", paused=True), made("off", active=False)

    by_default, is_set = Schedule(load_settings(), HOME), Schedule(load_settings(schedule="5 5 * * *"), HOME)

    assert (by_default.source, by_default.plan.words) == ("default", "Every Monday at 04:00 UTC")
    assert (is_set.source, is_set.plan.words) == ("environment", "Every day at 05:05 UTC")
    assert (by_default.agents, by_default.paused, by_default.inactive, by_default.interval_days) == (3, 1, 1, 7)
