"""The sweeps over simulated weeks: who is started when, and what is closed or found again."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest
from flask import Flask
from sqlalchemy import func, select, update

from app.errors import Refused
from app.extensions import db, writing
from app.models import (
    COMMAND_LINE,
    Action,
    Agent,
    AuditLog,
    Consent,
    InstallationMark,
    Memory,
    Mode,
    Refinement,
    Status,
    Trigger,
    record,
)
from app.models.base import iso
from app.refinement.start import AlreadyRunning, RestingAfterNo, start_refinement
from app.refinement.sweep import (
    LAST_TICK,
    close_stalled,
    find_lost_starts,
    interrupt_refinement,
    make_up_missed_tick,
    sweep_over_budget,
    sweep_weekly,
)
from app.refinement.tool import RefinementTool
from tests.support.clock import MONDAY, FakeClock
from tests.support.factories import begin, make_agent, remember


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent()
    remember(made, "Ann likes tea.", "Bob likes rum.")
    return made


def end(refinement_id: str, status: Status = Status.COMPLETED) -> Refinement:
    with writing():
        row = Refinement.lock(refinement_id)
        row.end(Agent.lock(row.agent_id), status)
        return row


def decline(refinement_id: str, clock: FakeClock) -> None:
    """The agent says NO, as the process records it."""
    row = end(refinement_id, Status.DECLINED)
    with writing():
        db.session.add(
            Consent(
                account_id=row.account_id,
                agent_id=row.agent_id,
                refinement_id=row.id,
                granted=False,
                asked_at=clock.now(),
                answered_at=clock.now(),
            )
        )


def silence(refinement_id: str, seconds: int) -> None:
    """Its last heartbeat was so long ago, by the database's clock."""
    with writing():
        beat = datetime.now(UTC) - timedelta(seconds=seconds)
        db.session.execute(update(Refinement).where(Refinement.id == refinement_id).values(heartbeat_at=beat))


@pytest.mark.parametrize("lasted", [{"minutes": 1}, {"minutes": 59}, {"hours": 11, "minutes": 59}, {"hours": 20}])
def test_every_monday_starts_one_refinement_however_long_the_last_one_took(
    agent: Agent, clock: FakeClock, lasted: dict[str, float]
) -> None:
    starts = []
    for week in range(4):
        clock.at = MONDAY + timedelta(weeks=week)
        finish = clock.at + timedelta(**lasted)
        while clock.at < MONDAY + timedelta(weeks=week + 1):
            started = make_up_missed_tick(clock.now()) if clock.at.hour % 2 else sweep_weekly_at_ticks(clock)
            starts += [(clock.at, each) for each in started]
            running = db.session.scalar(select(Refinement.id).where(Refinement.status == Status.QUEUED))
            if running and clock.at >= finish:
                end(running)
            clock.advance(minutes=30 if clock.at < finish else 240)

    assert [at for at, _ in starts] == [MONDAY + timedelta(weeks=week) for week in range(4)]


def sweep_weekly_at_ticks(clock: FakeClock) -> list[str]:
    return sweep_weekly(clock.now()) if (clock.at.weekday(), clock.at.hour, clock.at.minute) == (0, 4, 0) else []


def test_a_beat_that_fires_twice_starts_once(agent: Agent, clock: FakeClock) -> None:
    first = sweep_weekly(clock.now())
    again = sweep_weekly(clock.advance(seconds=1))
    end(first[0])
    after_its_end = sweep_weekly(clock.advance(minutes=1))

    assert (len(first), again, after_its_end) == (1, [], [])


def test_each_started_refinement_is_told_after_its_commit(agent: Agent, clock: FakeClock) -> None:
    told: list[tuple[str, Status]] = []

    def listen(refinement_id: str) -> None:
        db.session.rollback()
        told.append((refinement_id, db.session.get_one(Refinement, refinement_id, populate_existing=True).status))

    assert sweep_weekly(clock.now(), started=listen) == [told[0][0]]
    assert told[0][1] == Status.QUEUED


def test_a_missed_tick_is_made_up_once(agent: Agent, clock: FakeClock) -> None:
    clock.at = MONDAY - timedelta(days=3)
    assert make_up_missed_tick(clock.now()) == []
    clock.at = MONDAY + timedelta(hours=5)

    made_up = make_up_missed_tick(clock.now())

    assert len(made_up) == 1
    end(made_up[0])
    assert make_up_missed_tick(clock.advance(minutes=1)) == []
    clock.at = MONDAY + timedelta(weeks=1)
    assert len(sweep_weekly(clock.now())) == 1


def test_a_new_installation_waits_for_its_first_tick(agent: Agent, clock: FakeClock) -> None:
    clock.advance(days=2)

    assert make_up_missed_tick(clock.now()) == []
    assert InstallationMark.read(LAST_TICK) == MONDAY.isoformat()
    clock.at = MONDAY + timedelta(weeks=1)
    assert len(make_up_missed_tick(clock.now())) == 1


def test_a_handled_tick_is_not_made_up(agent: Agent, clock: FakeClock) -> None:
    started = sweep_weekly(clock.now())
    end(started[0], Status.FAILED)
    clock.advance(days=2)

    assert make_up_missed_tick(clock.now()) == []


def test_a_no_is_respected_for_a_day_by_beat_and_by_admins(agent: Agent, clock: FakeClock) -> None:
    with writing():
        Agent.lock(agent.id).change(by=COMMAND_LINE, core_token_budget=1)
    decline(sweep_weekly(clock.now())[0], clock)

    for _ in range(23):
        clock.advance(hours=1)
        assert sweep_over_budget(clock.now()) == []
        assert sweep_weekly(clock.now()) == []
    with pytest.raises(RestingAfterNo):
        start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE)

    clock.advance(hours=1)
    assert sweep_over_budget(clock.now()) == [], "it was looked at"
    assert len(sweep_weekly(clock.now())) == 1


def test_a_no_that_came_late_rests_a_day_from_then_on(agent: Agent, clock: FakeClock) -> None:
    (asked,) = sweep_weekly(clock.now())
    clock.advance(hours=20)
    decline(asked, clock)

    clock.advance(hours=23)
    assert sweep_weekly(clock.now()) == []
    assert len(sweep_weekly(clock.advance(hours=1))) == 1


def test_after_a_second_no_the_day_begins_anew(agent: Agent, clock: FakeClock) -> None:
    decline(start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE).id, clock)
    clock.advance(hours=25)
    decline(start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE).id, clock)
    clock.advance(hours=23)
    with pytest.raises(RestingAfterNo):
        start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE)
    clock.advance(hours=1)
    assert start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE).is_open


def test_after_a_no_the_agent_itself_may_start_and_duplicates_may_go(agent: Agent, clock: FakeClock) -> None:
    decline(sweep_weekly(clock.now())[0], clock)

    own = start_refinement(agent.id, trigger=Trigger.AGENT, by=COMMAND_LINE)
    end(own.id)
    assert start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE, mode=Mode.DEDUP_ONLY).is_open


def test_an_agent_over_its_budget_is_started_within_the_hour(agent: Agent, clock: FakeClock) -> None:
    end(sweep_weekly(clock.now())[0])
    clock.advance(days=2, minutes=17)
    assert sweep_over_budget(clock.now()) == []
    remember(agent, *("x" * 9_000 + str(n) for n in range(3)))

    clock.advance(minutes=43)
    started = sweep_over_budget(clock.now())

    assert len(started) == 1
    assert db.session.get_one(Refinement, started[0]).trigger == Trigger.OVER_BUDGET


def over_budget(agent: Agent, budget: int = 1) -> None:
    with writing():
        Agent.lock(agent.id).change(by=COMMAND_LINE, core_token_budget=budget)


def hourly(clock: FakeClock, hours: int, status: Status | None = None, step: int = 1) -> list[datetime]:
    """When the sweep of each `step`th hour starts something; what it starts ends so at once."""
    starts = []
    for _ in range(hours // step):
        for started in sweep_over_budget(clock.advance(hours=step)):
            starts.append(clock.at)
            end(started, status or Status.COMPLETED)
    return starts


LOOKS = [each for each in Status if each not in ("queued", "asking", "running", "failed", "interrupted")]


@pytest.mark.parametrize("status", LOOKS)
def test_an_agent_over_its_budget_is_left_alone_for_a_week_after_a_look(
    agent: Agent, clock: FakeClock, status: Status
) -> None:
    over_budget(agent)

    starts = hourly(clock, 24 * 15, status, step=6)

    assert [at - starts[0] for at in starts] == [timedelta(), timedelta(days=7), timedelta(days=14)]


def test_exact_duplicates_only_is_no_look(agent: Agent, clock: FakeClock) -> None:
    over_budget(agent)
    end(start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE, mode=Mode.DEDUP_ONLY).id)

    assert hourly(clock, 23) == []
    assert len(hourly(clock, 1)) == 1


def test_growth_by_a_tenth_of_the_budget_brings_it_back_a_day_after_the_last_attempt(
    agent: Agent, clock: FakeClock
) -> None:
    remember(agent, "x" * 400)
    over_budget(agent, 100)
    assert len(hourly(clock, 30)) == 1

    remember(agent, "y" * 36)
    assert hourly(clock, 24) == []
    remember(agent, "z" * 4)
    assert len(hourly(clock, 1)) == 1
    remember(agent, "w" * 400)
    assert hourly(clock, 23) == []
    assert len(hourly(clock, 1)) == 1


@pytest.mark.parametrize("status", [Status.FAILED, Status.INTERRUPTED])
@pytest.mark.parametrize("large", [True, False])
def test_a_failure_is_tried_again_after_1_2_4_and_then_every_7_days(
    agent: Agent, clock: FakeClock, status: Status, large: bool
) -> None:
    if large:
        over_budget(agent)
    (first,) = sweep_over_budget(clock.now()) if large else sweep_weekly(clock.now())
    began = clock.at
    end(first, status)

    starts = hourly(clock, 24 * 30, status, step=6)

    assert [(at - began).days for at in starts] == [1, 3, 7, 14, 21, 28]
    triggers = set(db.session.scalars(select(Refinement.trigger).where(Refinement.id != first)))
    assert triggers == {Trigger.OVER_BUDGET if large else Trigger.WEEKLY}


def test_a_failure_on_sunday_is_made_good_on_monday(agent: Agent, clock: FakeClock) -> None:
    sunday = MONDAY + timedelta(days=6, hours=6)
    end(sweep_weekly(clock.now())[0])
    with writing():
        Agent.lock(agent.id).last_refinement_at = MONDAY - timedelta(days=7)
    clock.at = sunday
    over_budget(agent)
    with writing():
        Agent.lock(agent.id).last_look_at = None
    end(sweep_over_budget(clock.now())[0], Status.FAILED)
    over_budget(agent, 5000)

    clock.at = MONDAY + timedelta(days=7)
    assert sweep_weekly(clock.now()) == [], "not within a day of an attempt"
    starts = hourly(clock, 24)

    assert starts == [sunday + timedelta(days=1)]


def test_a_tick_does_not_wait_for_the_days_after_a_failure(agent: Agent, clock: FakeClock) -> None:
    clock.at = MONDAY - timedelta(days=2)
    for _ in range(3):
        with writing():
            locked = Agent.lock(agent.id)
            locked.last_attempt_at = locked.retry_at = None
        end(sweep_weekly(clock.now())[0], Status.FAILED)

    assert db.session.get_one(Agent, agent.id).retry_at == MONDAY + timedelta(days=2)
    clock.at = MONDAY
    assert len(sweep_weekly(clock.now())) == 1


def test_a_look_ends_the_days_after_failures_and_an_admins_own_failure_begins_none(
    agent: Agent, clock: FakeClock
) -> None:
    def kept() -> tuple[int, datetime | None]:
        row = db.session.get_one(Agent, agent.id, populate_existing=True)
        return row.failed_attempts, row.retry_at

    end(start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE).id, Status.FAILED)
    assert kept() == (0, None)
    end(sweep_weekly(clock.advance(days=1))[0], Status.FAILED)
    end(sweep_weekly(clock.advance(days=1))[0], Status.INTERRUPTED)
    assert kept() == (2, clock.now() + timedelta(days=2))
    end(start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE).id, Status.FAILED)
    end(start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE, mode=Mode.DEDUP_ONLY).id)
    assert kept() == (2, clock.now() + timedelta(days=2))
    end(start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE).id, Status.UNFINISHED)
    assert kept() == (0, None)


def test_the_log_knows_all_that_decides_about_the_next_start(agent: Agent, clock: FakeClock) -> None:
    end(sweep_weekly(clock.now())[0], Status.DECLINED)
    end(sweep_weekly(clock.advance(days=1))[0], Status.FAILED)
    row = db.session.get_one(Agent, agent.id, populate_existing=True)

    newest = select(AuditLog).where(AuditLog.agent_id == agent.id).order_by(AuditLog.sequence.desc())
    started = db.session.scalars(newest.where(AuditLog.action == Action.REFINEMENT_START)).first()
    ended = db.session.scalars(newest.where(AuditLog.action == Action.REFINEMENT_END)).first()

    assert started is not None
    assert ended is not None
    assert started.data["at"] == iso(row.last_attempt_at) == "2026-11-17T04:00:00Z"
    assert ended.data["schedule"] == row.schedule_as_json()
    assert ended.data["schedule"] == {
        "last_refinement_at": None,
        "last_look_at": "2026-11-16T04:00:00Z",
        "last_look_mass": 8,
        "declined_at": "2026-11-16T04:00:00Z",
        "failed_attempts": 1,
        "retry_at": "2026-11-18T04:00:00Z",
    }


def test_the_interval_is_the_operators(app: Flask, agent: Agent, clock: FakeClock) -> None:
    app.extensions["settings"] = app.extensions["settings"].model_copy(update={"interval_days": 3})
    end(sweep_weekly(clock.now())[0])

    assert sweep_weekly(clock.advance(days=2, hours=11)) == []
    assert len(sweep_weekly(clock.advance(hours=1))) == 1


def test_an_agent_with_nothing_to_change_is_left_alone(app: Flask, clock: FakeClock) -> None:
    protected = make_agent("protected", core_token_budget=1)
    remember(protected, "We promised to tell the truth.", constitutional=True)
    remember(protected, "The sound of rain on the tin roof.", tags=["audio"])
    make_agent("empty")
    gone = make_agent("gone", core_token_budget=1)
    (only,) = remember(gone, "Only this one.")
    with writing():
        locked = Agent.lock(gone.id)
        memory = Memory.lock_core(locked, only)
        memory.discard(locked)
        record(Action.DEDUP, actor=COMMAND_LINE, of=locked, memories=[memory])

    assert sweep_weekly(clock.now()) == []
    assert sweep_over_budget(clock.now()) == []


def test_paused_and_inactive_agents_are_skipped_and_all_accounts_are_served(app: Flask, clock: FakeClock) -> None:
    from app.models import Account

    with writing():
        other = Account.create("Elsewhere")
    agents = {
        name: make_agent(name, account_id=account)
        for name, account in {"here": 1, "there": other.id, "paused": 1, "inactive": 1}.items()
    }
    for each in agents.values():
        remember(each, "One.", "Two.")
    with writing():
        Agent.lock(agents["paused"].id).pause(by=COMMAND_LINE)
    with writing():
        Agent.lock(agents["inactive"].id).change(by=COMMAND_LINE, active=False)

    started = sweep_weekly(clock.now())

    owners = {db.session.get_one(Refinement, each).agent_id for each in started}
    assert owners == {agents["here"].id, agents["there"].id}


def test_more_than_a_batch_is_started_and_a_refusal_stops_nobody_else(
    app: Flask, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.refinement import sweep

    agents = [make_agent(f"agent {n}") for n in range(7)]
    for each in agents:
        remember(each, "One.")
    monkeypatch.setattr(sweep, "BATCH", 3)
    real = sweep.start_refinement

    def refusing(agent_id: int, **arguments: object) -> Refinement:
        if agent_id == agents[1].id:
            raise Refused
        return real(agent_id, **arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(sweep, "start_refinement", refusing)

    started = sweep_weekly(clock.now())

    owners = {db.session.get_one(Refinement, each).agent_id for each in started}
    assert owners == {each.id for each in agents} - {agents[1].id}


def test_a_stalled_refinement_is_interrupted_and_its_agent_free(agent: Agent) -> None:
    text = "A long and wordy text about one small thing of little weight. "
    ids = remember(agent, text * 3, text)
    run = begin(agent)
    assert run.tool.execute("update", id=ids[0], content=text.replace(" and", ",") * 3)["type"] == "updated"
    silence(run.refinement.id, 46)

    assert close_stalled() == [run.refinement.id]

    row = run.reload()
    assert (row.status, row.mutations) == (Status.INTERRUPTED, 1)
    assert row.reason == "Its worker stopped answering; earlier changes are kept."
    entry = db.session.scalar(select(AuditLog).where(AuditLog.action == Action.REFINEMENT_END))
    assert entry is not None
    assert entry.data["status"] == "interrupted"
    assert run.tool.execute("delete", id=ids[0], carried_by=ids[1])["type"] == "error"
    assert close_stalled() == []
    assert start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE).is_open


def test_one_whose_heart_never_beat_is_closed(agent: Agent) -> None:
    run = begin(agent)
    with writing():
        Refinement.lock(run.refinement.id).heartbeat_at = None
    assert close_stalled() == [run.refinement.id]
    assert run.reload().status == Status.INTERRUPTED


def test_a_beating_heart_is_left_alone(agent: Agent) -> None:
    run = begin(agent)
    silence(run.refinement.id, 30)

    assert close_stalled() == []
    assert run.reload().is_open


def test_a_heart_that_beats_again_before_the_lock_is_left_alone(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    from app.refinement import sweep

    run = begin(agent)
    silence(run.refinement.id, 60)
    real = sweep._close_refinement

    def beat_first(refinement_id: str, *rest: object) -> bool:
        silence(refinement_id, 0)
        return real(refinement_id, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(sweep, "_close_refinement", beat_first)

    assert close_stalled() == []
    assert run.reload().status == Status.RUNNING


def test_a_queued_refinement_never_stalls_but_is_found_after_a_minute(agent: Agent, clock: FakeClock) -> None:
    (queued,) = sweep_weekly(clock.now())

    assert find_lost_starts() == []
    clock.advance(seconds=61)
    assert find_lost_starts() == [queued]
    assert close_stalled() == []
    begun = begin_queued(queued)
    assert find_lost_starts() == []
    assert begun.status == Status.ASKING


def begin_queued(refinement_id: str) -> Refinement:
    from app.refinement.process import _claim_refinement

    assert _claim_refinement(refinement_id) is not None
    return db.session.get_one(Refinement, refinement_id, populate_existing=True)


def test_a_leaving_worker_interrupts_only_what_it_holds(agent: Agent) -> None:
    run = begin(agent, worker="mine")

    assert not interrupt_refinement(run.refinement.id, "another")
    assert interrupt_refinement(run.refinement.id, "mine")
    assert not interrupt_refinement(run.refinement.id, "mine")
    assert run.reload().status == Status.INTERRUPTED


def test_two_sweeps_at_once_start_each_agent_once(app: Flask, clock: FakeClock) -> None:
    """In two processes at the same moment, as two beats or two workers would."""
    for n in range(20):
        remember(make_agent(f"agent {n}"), "One.")
    settings = app.extensions["settings"]
    db.session.remove()
    script = (
        "from datetime import UTC, datetime\n"
        "from app import create_app\n"
        "from app.refinement.sweep import sweep_weekly\n"
        "with create_app().app_context():\n"
        "    input()\n"
        "    print(len(sweep_weekly(datetime(2026, 11, 16, 4, tzinfo=UTC))))\n"
    )
    environment = {
        "PATH": "/usr/bin:/bin",
        "WHETSTONE_DATA_DIR": str(settings.data),
        "DATABASE_URL": settings.database_url.replace("postgresql+psycopg", "postgresql"),
    }
    pipe = subprocess.PIPE
    with ExitStack() as started:
        sweepers = [
            started.enter_context(
                subprocess.Popen([sys.executable, "-c", script], env=environment, stdin=pipe, stdout=pipe, text=True)
            )
            for _ in range(2)
        ]
        for each in sweepers:
            assert each.stdin is not None
            each.stdin.write("go\n")
            each.stdin.flush()
        said = [each.communicate(timeout=60)[0] for each in sweepers]

    assert [each.returncode for each in sweepers] == [0, 0]
    assert sum(int(each.splitlines()[-1]) for each in said) == 20
    assert db.session.scalar(select(func.count()).select_from(Refinement)) == 20


def test_a_second_start_says_which_one_runs(agent: Agent) -> None:
    first = start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE)

    with pytest.raises(AlreadyRunning, match=first.id):
        start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE)


def test_the_tool_of_an_interrupted_refinement_searches_nothing(agent: Agent) -> None:
    run = begin(agent)
    silence(run.refinement.id, 60)
    close_stalled()

    result = RefinementTool(run.claim, run.tool._keys).execute("search", query="tea")

    assert "terminated" in result["error"]
