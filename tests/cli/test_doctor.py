"""`whetstone doctor`: every part on a line, what to do about it, and a status that a monitor can use."""

from __future__ import annotations

import os
import shutil
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from flask import Flask
from sqlalchemy import text

from app.config import Settings
from app.extensions import db, is_sqlite, writing
from app.history.proof import prove_due
from app.models import COMMAND_LINE, Action, Agent, record
from app.models.presence import note_beat
from tests.cli.conftest import Said, Whetstone
from tests.support.clock import FakeClock
from tests.support.factories import make_agent, remember
from tests.support.workers import broker_of

PARTS = [
    *("apart", "web", "data", "disk", "database", "version", "guards", "proof"),
    *("key", "backup", "log", "checkpoint", "clock", "broker", "worker", "beat", "parts", "waiting"),
]


def states(said: Said) -> dict[str, str]:
    return {check["name"]: check["state"] for check in said.json["checks"]}


def fix(said: Said, name: str) -> str:
    return next(f"{check['detail']} {check['fix']}" for check in said.json["checks"] if check["name"] == name)


def test_every_part_is_named_and_what_does_not_run_fails(whetstone: Whetstone, settings: Settings) -> None:
    settings.data.chmod(0o700)

    said = whetstone("doctor", "--json")

    assert said.status == 1
    assert list(states(said)) == PARTS
    assert states(said) | dict.fromkeys(
        ("data", "disk", "database", "version", "guards", "key", "clock"), "ok"
    ) == states(said)
    assert (states(said)["broker"], states(said)["worker"]) == ("fail", "skipped")
    assert "whetstone up" in fix(said, "broker")
    assert "whetstone up" in whetstone("doctor").out


def test_a_broker_without_a_worker_is_told_apart(app: Flask, whetstone: Whetstone, settings: Settings) -> None:
    with broker_of(settings):
        said = whetstone("doctor", "--json")

    assert (states(said)["broker"], states(said)["worker"]) == ("ok", "fail")
    assert "whetstone worker" in fix(said, "worker")


def test_beat_is_known_by_the_age_of_its_timetable(whetstone: Whetstone, settings: Settings) -> None:
    assert states(whetstone("doctor", "--json"))["beat"] == "warn"
    settings.run_dir.mkdir(exist_ok=True)
    sign = settings.run_dir / "beat-schedule"
    sign.touch()
    assert states(whetstone("doctor", "--json"))["beat"] == "ok"
    old = time.time() - 3600
    os.utime(sign, (old, old))
    assert states(whetstone("doctor", "--json"))["beat"] == "fail"


def test_beat_on_another_machine_is_known_by_what_a_worker_heard(
    whetstone: Whetstone, app: Flask, clock: FakeClock
) -> None:
    clock.at = datetime.now(UTC) - timedelta(minutes=2)
    with writing():
        note_beat()
    assert states(whetstone("doctor", "--json"))["beat"] == "ok"
    clock.advance(hours=-1)
    with writing():
        note_beat()
    assert states(whetstone("doctor", "--json"))["beat"] == "fail"


def test_a_key_without_a_backup_is_minded_until_there_is_one(whetstone: Whetstone, app: Flask, tmp_path: Path) -> None:
    assert states(whetstone("doctor", "--json"))["backup"] == "warn"
    assert "./whetstone keys backup FILE" in fix(whetstone("doctor", "--json"), "backup")
    phrase = tmp_path / "phrase"
    phrase.write_text("correct horse battery\n")

    made = whetstone("keys", "backup", str(tmp_path / "key.backup"), "--passphrase-file", str(phrase))

    assert made.status == 0
    assert states(whetstone("doctor", "--json"))["backup"] == "ok"
    assert "0 days ago" in fix(whetstone("doctor", "--json"), "backup")


def test_no_installation_is_one_fault_with_one_thing_to_do(
    whetstone: Whetstone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHETSTONE_DATA_DIR", str(tmp_path / "none"))
    monkeypatch.setenv("DATABASE_URL", "")

    said = whetstone("doctor", "--json")

    assert said.status == 1
    assert (states(said)["data"], states(said)["database"]) == ("fail", "fail")
    assert states(said)["version"] == states(said)["key"] == "skipped"
    assert "db upgrade" in fix(said, "database")
    assert not (tmp_path / "none").exists()


def test_a_server_that_does_not_answer_is_named(whetstone: Whetstone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody:secret@127.0.0.1:1/none")

    said = whetstone("doctor", "--json")

    assert states(said)["database"] == "fail"
    assert "127.0.0.1:1" in fix(said, "database")
    assert "secret" not in said.out + said.err


def test_a_newer_database_and_a_missing_key_are_faults(whetstone: Whetstone, app: Flask, settings: Settings) -> None:
    settings.master_key_path.unlink()
    assert "WHETSTONE_MASTER_KEY_FILE" in fix(whetstone("doctor", "--json"), "key")
    with writing() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))

    said = whetstone("doctor", "--json")

    assert states(said)["version"] == "fail"
    assert "newer version (9999)" in fix(said, "version")


def test_a_trigger_that_somebody_removed_is_a_fault(whetstone: Whetstone, app: Flask) -> None:
    with writing() as session:
        on = "" if is_sqlite(session) else " ON audit_log"
        session.execute(text(f"DROP TRIGGER wt_audit_log_no_update{on}"))

    said = whetstone("doctor", "--json")

    assert states(said)["guards"] == "fail"
    assert "wt_audit_log_no_update" in fix(said, "guards")


def test_the_last_verdict_of_the_nightly_proof_is_told(whetstone: Whetstone, app: Flask, clock: FakeClock) -> None:
    clock.at = datetime.now(UTC)
    make_agent()
    assert states(whetstone("doctor", "--json"))["proof"] == "ok"
    assert "not made yet" in fix(whetstone("doctor", "--json"), "proof")
    prove_due(clock.now())
    assert "entries were as written" in fix(whetstone("doctor", "--json"), "proof")

    with writing() as session:
        session.execute(text("UPDATE agents SET core_count = 7"))
    clock.advance(days=1)
    prove_due(clock.now())

    said = whetstone("doctor", "--json")
    assert (said.status, states(said)["proof"]) == (1, "fail")
    assert "core_count is 7" in fix(said, "proof")
    assert "whetstone verify" in fix(said, "proof")


def test_a_proof_that_nobody_makes_any_more_is_minded(whetstone: Whetstone, app: Flask, clock: FakeClock) -> None:
    clock.at = datetime.now(UTC) - timedelta(days=4)
    prove_due(clock.now())

    assert states(whetstone("doctor", "--json"))["proof"] == "warn"
    assert "beat" in fix(whetstone("doctor", "--json"), "proof")


@pytest.mark.parametrize(("free", "state"), [(10**7, "fail"), (5 * 10**8, "warn"), (10**10, "ok")])
def test_a_full_disk_is_told_before_it_is_full(
    whetstone: Whetstone, monkeypatch: pytest.MonkeyPatch, free: int, state: str
) -> None:
    usage = type(shutil.disk_usage("/"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 10**12 - free, free))

    assert states(whetstone("doctor", "--json"))["disk"] == state


def test_a_clock_behind_the_newest_entry_is_a_fault(whetstone: Whetstone, app: Flask, clock: FakeClock) -> None:
    agent = make_agent()
    clock.at = datetime.now(UTC) + timedelta(days=400)
    with writing():
        record(Action.AGENT_PAUSE, actor=COMMAND_LINE, of=Agent.lock(agent.id))

    assert "from the future" in fix(whetstone("doctor", "--json"), "clock")


def test_permissions_that_let_others_look_are_minded(whetstone: Whetstone, settings: Settings) -> None:
    settings.data.chmod(0o755)
    settings.master_key_path.chmod(0o640)

    said = whetstone("doctor", "--json")

    assert (states(said)["data"], states(said)["key"]) == ("warn", "warn")
    assert "chmod 700" in fix(said, "data")
    assert "chmod 600" in fix(said, "key")


def test_refinements_that_nobody_picks_up_are_counted(whetstone: Whetstone, app: Flask) -> None:
    agent = make_agent()
    remember(agent, "Ann likes tea.")
    assert whetstone("refine", "ezra").status == 0
    assert states(whetstone("doctor", "--json"))["waiting"] == "ok"
    with writing() as session:
        session.execute(
            text("UPDATE refinements SET requested_at = :at"),
            {"at": (datetime.now(UTC) - timedelta(hours=1)).replace(tzinfo=None if is_sqlite(session) else UTC)},
        )

    assert states(whetstone("doctor", "--json"))["waiting"] == "warn"


def test_it_writes_nothing(whetstone: Whetstone, app: Flask, settings: Settings) -> None:
    before = whetstone("audit", "--json").out
    files = sorted(path.name for path in settings.data.rglob("*"))

    whetstone("doctor")

    assert whetstone("audit", "--json").out == before
    assert sorted(path.name for path in settings.data.rglob("*")) == files
    assert db.session.scalar(text("SELECT count(*) FROM refinements")) == 0
