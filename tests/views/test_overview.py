"""The overview: what needs attention comes first, and an empty account is shown the way."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from flask import Flask
from sqlalchemy import select

from app.config import Settings
from app.demo import find_waiting
from app.exchange.taking_in import take_in
from app.extensions import db, writing
from app.models import Agent, Refinement, Status
from app.processes.datadir import PartsFile, StoppedPart
from app.refinement.start import start_refinement
from tests.support.clock import FakeClock
from tests.support.factories import begin, make_agent, remember
from tests.views.conftest import Browser


def end(agent: Agent, status: Status) -> Refinement:
    run = begin(agent)
    with writing():
        row = Refinement.lock(run.refinement.id)
        row.end(Agent.lock(agent.id), status)
    return row


def ready(name: str, *contents: str, **fields: object) -> Agent:
    agent = make_agent(name, **fields)
    remember(agent, *(contents or ("Ann likes tea.", "Bob likes rum.")))
    return agent


def test_an_empty_account_is_shown_the_two_ways_to_begin(admin: Browser) -> None:
    page = admin.get("/").text

    assert "Create an agent" in page
    assert "Try the demo" in page


def test_an_auditor_of_an_empty_account_is_told_whom_to_ask(auditor: Browser) -> None:
    page = auditor.get("/").text

    assert "An admin of this account can create them." in page
    assert "Try the demo" not in page


def test_it_names_what_went_wrong_until_the_next_good_run(admin: Browser, clock: FakeClock) -> None:
    agent = ready("ezra")
    failed = end(agent, Status.FAILED)
    before = admin.get("/overview.json").json
    clock.advance(hours=1)
    end(agent, Status.COMPLETED)
    after = admin.get("/overview.json").json

    assert before and after
    assert "Failed: 1 agent" in [each["title"] for each in before["attention"]]
    assert before["attention"][1]["items"] == ["ezra"]
    assert not any(each["title"].startswith("Failed") for each in after["attention"])
    assert f"/refinements/{failed.id}" in admin.get("/").text


def test_a_no_is_told_as_what_it_is(admin: Browser) -> None:
    end(ready("ezra"), Status.DECLINED)

    assert "Declined: 1 agent" in admin.get("/").text


def test_it_names_the_agents_that_are_over_budget(admin: Browser) -> None:
    ready("ezra", core_token_budget=3)
    ready("mina", core_token_budget=500)

    page = admin.get("/").text

    assert "Over budget: 1 agent" in page
    assert "5 tokens over" in page
    assert ">2 within the hour</dd>" in page


def test_it_counts_agents_by_when_they_are_tried_next(admin: Browser, clock: FakeClock) -> None:
    for name in ("ezra", "mina", "otto", "anna"):
        ready(name, core_token_budget=3)
    end(db.session.get_one(Agent, 2), Status.FAILED)
    end(db.session.get_one(Agent, 3), Status.DECLINED)
    with writing():
        Agent.lock(4).paused = True

    assert ">1 within the hour, 1 tomorrow, 1 later, 1 paused</dd>" in admin.get("/").text


def test_it_says_when_the_broker_is_away(admin: Browser) -> None:
    ready("ezra")

    assert "The broker does not answer." in admin.get("/").text


def test_it_names_agents_whose_keys_nobody_makes(admin: Browser, clock: FakeClock, app: Flask) -> None:
    admin.post("/agents", {"name": "new", "model_id": "whetstone/offline", "core_token_budget": "5000"})
    young = admin.get("/").text
    clock.advance(minutes=2)

    assert "Without keys" not in young
    assert "Without keys: 1 agent" in admin.get("/").text


def test_it_says_when_the_next_tick_is_and_how_many_would_be_due(admin: Browser, clock: FakeClock) -> None:
    for name in ("ezra", "mina", "otto"):
        ready(name)
    clock.advance(hours=2)
    with writing():
        Agent.lock(2).paused = True
        Agent.lock(3).last_refinement_at = clock.now()

    page = admin.get("/overview.json").json

    assert page is not None
    assert page["next_tick"] == "2026-11-23T04:00:00Z"
    assert page["due_at_next_tick"] == 2
    assert "Monday 04:00 UTC, 2 agents due" in admin.get("/").text


def test_open_refinements_and_recent_outcomes_stand_apart(admin: Browser) -> None:
    done = end(ready("ezra"), Status.COMPLETED)
    from app.models import COMMAND_LINE, Trigger

    running = start_refinement(ready("mina").id, trigger=Trigger.ADMIN, by=COMMAND_LINE)
    shown = admin.get("/overview.json").json

    assert shown is not None
    assert [each["id"] for each in shown["running"]] == [running.id]
    assert [each["id"] for each in shown["recent"]] == [done.id]


def test_what_ended_last_comes_first_however_early_it_was_asked_for(admin: Browser, clock: FakeClock) -> None:
    slow = begin(ready("slow"))
    clock.advance(minutes=1)
    quick = end(ready("quick"), Status.COMPLETED)
    clock.advance(minutes=1)
    with writing():
        Refinement.lock(slow.refinement.id).end(Agent.lock(slow.agent.id), Status.COMPLETED)

    shown = admin.get("/overview.json").json

    assert shown is not None
    assert [each["id"] for each in shown["recent"]] == [slow.refinement.id, quick.id]


def test_without_a_worker_the_demo_makes_two_agents_whose_memories_wait(app: Flask, admin: Browser) -> None:
    """With one they are refined at once: tests/browser/test_demo.py."""
    answer = admin.post("/demo")
    shown = admin.get("/overview.json").json

    assert (answer.status_code, answer.headers["Location"]) == (303, "/")
    assert shown is not None
    assert (shown["agents"], shown["running"]) == (2, [])
    agents = db.session.scalars(select(Agent)).all()
    for intake_id in find_waiting(agents):
        take_in(intake_id)
    db.session.rollback()
    assert find_waiting(agents) == []
    assert min(db.session.scalars(select(Agent.core_count))) > 10


def test_the_demo_never_comes_into_an_account_with_agents(admin: Browser) -> None:
    ready("ezra")
    answer = admin.post("/demo")

    assert answer.status_code == 409
    assert admin.get("/agents.json").json["total"] == 1  # type: ignore[index]


def test_pages_count_no_memories(web: Flask, admin: Browser) -> None:
    from sqlalchemy import event

    from app.extensions import db

    ready("ezra")
    statements: list[str] = []
    with web.app_context():
        event.listen(db.engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    for path in ("/", "/agents"):
        assert admin.get(path).status_code == 200

    counting = [s for s in statements if "count(" in s.lower() and "memories" in s.split("EXISTS")[0]]
    assert statements
    assert not counting


def test_it_says_which_part_stopped_how_often_and_when_it_starts_again(admin: Browser, settings: Settings) -> None:
    ready("ezra")
    soon = datetime.now(UTC) + timedelta(seconds=40)
    PartsFile(settings).write(
        os.getpid(), [StoppedPart("worker", 5, "killed by SIGKILL", "/somewhere/worker.log", soon)]
    )

    page = admin.get("/").text

    assert "The worker has stopped 5 times (killed by SIGKILL)." in page
    assert re.search(r"Next start in [0-9]+ s\. Its log: /somewhere/worker\.log", page)
    assert "The broker does not answer." not in page


def test_cost_and_latency_of_a_run_and_of_the_month_are_one_click_away(admin: Browser) -> None:
    run = begin(ready("ezra"))
    with writing():
        row = Refinement.lock(run.refinement.id)
        row.book_usage(10, 10, Decimal("1234567.89"))
        row.end(Agent.lock(run.agent.id), Status.COMPLETED)
    week = re.search(r'<dd class="week">.*?</dd>', admin.get("/").text, re.S)
    assert week
    link = re.search(r'<a href="([^"]+)"[^>]*>([^<]+)</a>', week[0])
    assert link
    assert link.groups() == ("/settings/models", "$1,234,568")
    models = admin.get(link[1]).text
    assert "Cost this month" in models
    listed = admin.get("/refinements").text
    assert 'data-label="Cost"' in listed
    assert "$1,234,567.89" in listed
