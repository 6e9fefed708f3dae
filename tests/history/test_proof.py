"""The nightly proof: what is due, who makes it, and what becomes known of its verdict."""

from __future__ import annotations

from datetime import datetime, timedelta
from threading import Barrier, Thread

import pytest
from flask import Flask
from sqlalchemy import select, text
from structlog.testing import capture_logs

from app.extensions import WRITES, db, is_sqlite, writing
from app.history import proof
from app.history import verify as history
from app.history.proof import Proof, prove_due
from app.models import Account, Agent, Event, InstallationMark
from tests.support.clock import FakeClock
from tests.support.factories import HOME, make_agent, remember
from tests.support.tampering import tamper

CANARY = "the canary sang at dawn"


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent()
    remember(made, CANARY)
    return made


@pytest.fixture
def other(agent: Agent) -> int:
    """Another account with an agent of its own."""
    with writing():
        account = Account.create("Next door")
    remember(make_agent("elsewhere", account_id=account.id), CANARY)
    return account.id


def prove(clock: FakeClock) -> list[int | None]:
    return prove_due(clock.now())


def kept(account_id: int | None = HOME) -> Proof:
    db.session.rollback()
    found = Proof.of(account_id)
    assert found is not None
    return found


def events(account_id: int = HOME) -> list[str]:
    kinds = select(Event.kind).where(Event.account_id == account_id, Event.kind.startswith("proof")).order_by(Event.id)
    return list(db.session.scalars(kinds))


def alter(name: str = "ezra") -> None:
    tamper("UPDATE agents SET core_count = core_count + 1 WHERE name = :name", name=name)


def mend(name: str = "ezra") -> None:
    tamper("UPDATE agents SET core_count = core_count - 1 WHERE name = :name", name=name)


def test_every_account_and_the_rest_are_proved_and_the_verdicts_kept(other: int, clock: FakeClock) -> None:
    assert prove(clock) == [HOME, other, None]

    assert [kept(each).verdict.ok for each in (HOME, other, None)] == [True, True, True]
    assert kept().at == clock.now()
    assert kept().verdict.entries + kept(other).verdict.entries == db.session.scalar(
        text("SELECT count(*) FROM audit_log")
    )
    assert events() == []


@pytest.mark.parametrize(
    ("first", "then", "due"),
    [
        ("2026-11-16T03:17:00", "2026-11-16T03:17:01", False),
        ("2026-11-16T03:17:00", "2026-11-17T03:16:59", False),
        ("2026-11-16T03:17:00", "2026-11-17T03:17:00", True),
        ("2026-11-16T14:17:00", "2026-11-17T02:17:00", False),
        ("2026-11-16T14:17:00", "2026-11-17T03:17:00", True),
        ("2026-11-16T02:17:00", "2026-11-16T14:17:00", True),
        ("2026-11-16T03:17:00", "2026-12-24T09:17:00", True),
    ],
)
def test_it_is_due_once_a_night_and_a_missed_night_is_made_up(
    agent: Agent, clock: FakeClock, first: str, then: str, due: bool
) -> None:
    clock.at = datetime.fromisoformat(f"{first}+00:00")
    prove(clock)
    clock.at = datetime.fromisoformat(f"{then}+00:00")

    assert prove(clock) == ([HOME, None] if due else [])
    assert (kept().at == clock.now()) is due


def test_a_difference_is_kept_told_and_logged_without_content(agent: Agent, clock: FakeClock) -> None:
    alter()

    with capture_logs() as logged:
        prove(clock)

    verdict = kept().verdict
    assert (verdict.ok, verdict.agent_id) == (False, agent.id)
    assert "core_count is 2, but the memories make 1" in str(verdict.first_problem)
    assert events() == ["proof.failed"]
    errors = [line for line in logged if line["log_level"] == "error"]
    assert [(line["account"], line["agent"], line["entry"]) for line in errors] == [(HOME, agent.id, None)]
    assert CANARY not in str(logged) + str(verdict)


def test_while_it_stands_it_is_looked_at_every_hour_and_a_clean_run_takes_it_away(
    agent: Agent, clock: FakeClock
) -> None:
    alter()
    prove(clock)
    clock.advance(minutes=10)
    assert prove(clock) == []
    clock.advance(minutes=50)
    assert prove(clock) == [HOME]
    assert events() == ["proof.failed"]
    mend()
    clock.advance(hours=1)

    assert prove(clock) == [HOME]

    assert kept().verdict.ok
    assert events() == ["proof.failed", "proof.passed"]


def test_another_difference_is_news_again(agent: Agent, clock: FakeClock) -> None:
    alter()
    prove(clock)
    alter()
    clock.advance(hours=1)
    prove(clock)

    assert "core_count is 3" in str(kept().verdict.first_problem)
    assert events() == ["proof.failed", "proof.failed"]


def test_one_account_s_difference_is_no_other_s(other: int, clock: FakeClock) -> None:
    alter("elsewhere")

    prove(clock)

    assert (kept().verdict.ok, kept(other).verdict.ok, kept(None).verdict.ok) == (True, False, True)
    assert (events(), events(other)) == ([], ["proof.failed"])


def test_what_belongs_to_nobody_is_told_to_all(other: int, clock: FakeClock) -> None:
    with db.engine.execution_options(**WRITES).begin() as connection:
        on = "" if is_sqlite(db.session()) else " ON audit_log"
        connection.execute(text(f"DROP TRIGGER wt_audit_log_no_delete{on}"))

    prove(clock)

    assert (kept().verdict.ok, kept(other).verdict.ok, kept(None).verdict.ok) == (True, True, False)
    assert (events(), events(other)) == (["proof.failed"], ["proof.failed"])


def test_nothing_is_done_while_another_run_goes_on_until_that_is_dead(agent: Agent, clock: FakeClock) -> None:
    with writing():
        assert InstallationMark.write(proof.RUNNING, unless_since=clock.now() - proof.LAPSE)
    clock.advance(hours=5)
    assert prove(clock) == []
    clock.advance(hours=1)

    assert prove(clock) == [HOME, None]
    assert InstallationMark.read(proof.RUNNING) is None


def test_two_workers_at_once_make_one_proof(app: Flask, agent: Agent, clock: FakeClock) -> None:
    together, made = Barrier(2), []

    def worker() -> None:
        with app.app_context():
            together.wait()
            made.append(prove(clock))
            db.session.remove()

    threads = [Thread(target=worker) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(made, key=len) == [[], [HOME, None]]
    assert kept().verdict.ok


def test_a_slow_old_run_does_not_speak_over_a_younger_one(
    agent: Agent, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify_account = proof.verify_account

    def slow(account_id: int) -> object:
        found = verify_account(account_id)
        clock.advance(hours=7)
        monkeypatch.setattr(proof, "verify_account", verify_account)
        alter()
        prove(clock)
        return found

    monkeypatch.setattr(proof, "verify_account", slow)
    prove(clock)

    assert not kept().verdict.ok
    assert kept().at == clock.now()


def test_trouble_with_one_account_is_raised_when_all_others_are_done(
    other: int, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify_account = proof.verify_account

    def broken(account_id: int) -> object:
        if account_id == HOME:
            raise OSError("the disk")
        return verify_account(account_id)

    monkeypatch.setattr(proof, "verify_account", broken)
    with pytest.raises(OSError, match="the disk"):
        prove(clock)

    assert Proof.of(HOME) is None
    assert (kept(other).verdict.ok, kept(None).verdict.ok) == (True, True)
    monkeypatch.setattr(proof, "verify_account", verify_account)
    assert prove(clock) == [HOME]


def test_it_is_stale_after_three_days(agent: Agent, clock: FakeClock) -> None:
    prove(clock)
    at = kept().at

    assert not kept().is_stale(at + timedelta(days=3))
    assert kept().is_stale(at + timedelta(days=3, seconds=1))


def test_a_proof_blocks_no_writer_and_is_of_the_moment_before(
    app: Flask, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = history.check_memories

    def write() -> None:
        with app.app_context():
            remember(db.session.get_one(Agent, agent.id), "Written meanwhile.")
            db.session.remove()

    def check_beside_a_writer(of: Agent) -> None:
        writer = Thread(target=write)
        writer.start()
        writer.join(10)
        assert not writer.is_alive()
        check(of)

    monkeypatch.setattr(history, "check_memories", check_beside_a_writer)
    during = history.verify(agent)
    monkeypatch.setattr(history, "check_memories", check)
    after = history.verify(agent)

    assert (during.ok, after.ok) == (True, True), (during, after)
    assert after.entries == during.entries + 1
