"""What the supervisor leaves for others to read: parts that stopped, on pages, for machines and for the doctor."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from flask import Flask

from app.config import Settings
from app.processes.datadir import PartsFile, StoppedPart
from tests.cli.conftest import Whetstone


@pytest.fixture
def file(settings: Settings) -> PartsFile:
    return PartsFile(settings)


def worker(next_start: datetime | None = None) -> StoppedPart:
    return StoppedPart("worker", 5, "killed by SIGKILL", "/somewhere/logs/worker.log", next_start)


def in_a_while(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def test_what_stopped_is_read_as_it_was_written_by_its_owner_only(file: PartsFile, settings: Settings) -> None:
    parts = [worker(in_a_while(12)), StoppedPart("beat", 1, "status 1", "/somewhere/logs/beat.log")]

    file.write(os.getpid(), parts)

    assert file.read() == parts
    assert stat.S_IMODE((settings.run_dir / "parts.json").stat().st_mode) == 0o600
    file.write(os.getpid(), [])
    assert file.read() == []


def test_what_a_dead_supervisor_wrote_counts_no_more(file: PartsFile) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    file.write(ended.pid, [worker()])

    assert file.read() == []


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"process": "x"}', '{"process": 1, "stopped": [{"name": 1}]}']
)
def test_a_broken_file_is_no_error(file: PartsFile, settings: Settings, text: str) -> None:
    (settings.run_dir).mkdir(exist_ok=True)
    (settings.run_dir / "parts.json").write_text(text)

    assert file.read() == []


def test_it_says_how_often_and_when_it_starts_again() -> None:
    at = datetime.now(UTC)

    assert worker(at + timedelta(seconds=12)).sentence(at) == (
        "The worker has stopped 5 times (killed by SIGKILL); next start in 12 s."
    )
    assert worker(at).sentence(at).endswith("; it is starting.")
    assert worker().sentence(at).endswith("; it runs again.")
    assert "/somewhere" not in worker().sentence(at)


def test_machines_are_told_without_places(web: Flask, file: PartsFile) -> None:
    visitor = web.test_client()
    assert "stopped" not in visitor.get("/readyz").json
    file.write(os.getpid(), [worker(in_a_while(60))])

    answer = visitor.get("/readyz").json

    assert answer["stopped"][0].startswith("The worker has stopped 5 times (killed by SIGKILL); next start in ")
    assert "/somewhere" not in str(answer)
    assert set(answer) == {"ready", "database", "broker", "worker", "stopped"}


def test_the_doctor_fails_while_a_part_waits_and_warns_after(whetstone: Whetstone, file: PartsFile) -> None:
    for next_start, state in ((in_a_while(60), "fail"), (None, "warn")):
        file.write(os.getpid(), [worker(next_start)])
        (found,) = [check for check in whetstone("doctor", "--json").json["checks"] if check["name"] == "parts"]
        assert found["state"] == state
        assert "The worker has stopped 5 times" in found["detail"]
        assert "/somewhere/logs/worker.log" in found["fix"]
