"""A log, or the output of a command, that has no room: the work goes on, and what could not be written is said."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import structlog

from app import logs
from app.cli.up import say_aside
from app.config import ROOT

FULL = Path("/dev/full")

pytestmark = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")


def test_a_line_of_a_log_without_room_is_lost_and_counted(tmp_path: Path) -> None:
    room, kept = os.open(FULL, os.O_WRONLY), tmp_path / "log"
    with os.fdopen(room, "w", buffering=1) as stream:
        log = structlog.PrintLogger(logs.LossyStream(stream))  # type: ignore[arg-type]
        log.msg("no room for this")
        log.msg("nor for this")
        with kept.open("w") as there:
            os.dup2(there.fileno(), stream.fileno())
        log.msg("but for this")
        log.msg("and this")
    lines = kept.read_text().splitlines()
    assert lines[-3:] == ["but for this", lines[-2], "and this"]
    assert lines[-2].endswith("writes to this log failed: its disk was full")


def test_what_else_is_wrong_with_a_log_is_not_hidden() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1) as stream:
        with pytest.raises(BrokenPipeError):
            logs.LossyStream(stream).write("nobody reads\n")
        with pytest.raises(BrokenPipeError):
            stream.close()


def test_what_up_says_of_a_part_that_stopped_never_ends_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = os.fdopen(os.open(FULL, os.O_WRONLY), "w", buffering=1)
    monkeypatch.setattr(sys, "stderr", stream)
    say_aside("The worker process stopped.")
    monkeypatch.undo()
    with pytest.raises(OSError, match="No space left"):
        stream.close()


def test_a_command_whose_output_has_no_room_says_so() -> None:
    with FULL.open("w") as full:
        command = [sys.executable, "-m", "app", "--help"]
        done = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    said = "Error: The disk is full: not everything could be written. Free some space, then try again.\n"
    assert (done.returncode, done.stderr) == (1, said)
