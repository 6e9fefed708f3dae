"""Runs one row as a process of its own, with a limit of time, and reads its figures. A row that fails says why."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from app.config import ROOT
from benchmarks.figures import Figure, Verdict
from benchmarks.registry import EMBEDDED, Row

_WORST_FIRST = (Verdict.FAILED, Verdict.MISSED, Verdict.MET, Verdict.SHOWN, Verdict.NOT_MEASURED)
GRACE_SECONDS = 20


@dataclass(frozen=True)
class Options:
    """Of one run. Without a server's address everything is on SQLite."""

    database_url: str = ""
    quick: bool = False
    peers: bool = True

    @property
    def database(self) -> str:
        return "postgresql" if self.database_url else "sqlite"


@dataclass(frozen=True)
class Outcome:
    """What became of one row."""

    row: Row
    seconds: float
    figures: Sequence[Figure] = field(default_factory=tuple)
    failure: str = ""
    not_run: str = ""

    @property
    def verdict(self) -> Verdict:
        """The worst of its figures'."""
        if self.failure:
            return Verdict.FAILED
        found = {figure.verdict for figure in self.figures} or {Verdict.NOT_MEASURED}
        return next(verdict for verdict in _WORST_FIRST if verdict in found)

    def as_json(self) -> dict[str, Any]:
        reason = {"reason": self.failure or self.not_run} if self.failure or self.not_run else {}
        return {
            "name": self.row.name, "spec": self.row.spec, "target": self.row.target, "seconds": round(self.seconds, 1),
            "verdict": str(self.verdict), **reason, "figures": [figure.as_json() for figure in self.figures],
        }  # fmt: skip


def run_row(row: Row, options: Options) -> Outcome:
    """Raises nothing of the row's."""
    if not row.command:
        return Outcome(row, 0, not_run=f"shown by {row.shown_by}")
    if row.only == EMBEDDED and options.database_url:
        return Outcome(row, 0, not_run="it runs on the embedded stack: see the run on SQLite")
    if options.quick and not row.in_quick:
        return Outcome(row, 0, not_run="it takes minutes at any size")
    began = time.monotonic()
    try:
        said = _say(row, options)
        figures = row.read(said, options.database)
    except (RuntimeError, ValueError, LookupError) as error:
        return Outcome(row, time.monotonic() - began, failure=str(error))
    return Outcome(row, time.monotonic() - began, figures)


def _say(row: Row, options: Options) -> str:
    """What its process printed. Raises RuntimeError where it ended badly or took too long."""
    module, *arguments = row.command
    chosen = [each for each in arguments if each.startswith("--json")] + list(row.quick) if options.quick else arguments
    peers = ["--no-peers"] if row.asks_peers and not options.peers else []
    command = [sys.executable, "-m", f"benchmarks.{module}", *(chosen or arguments), *peers]
    process = subprocess.Popen(
        command, cwd=ROOT, env=_environment(options), stdin=subprocess.DEVNULL, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        preexec_fn=_hear_interrupts,
    )  # fmt: skip
    try:
        said, errors = process.communicate(timeout=row.seconds)
    except subprocess.TimeoutExpired:
        _end(process)
        raise RuntimeError(f"it took more than {row.seconds} s") from None
    except BaseException:
        _end(process)
        raise
    if process.returncode and not said.strip():
        raise RuntimeError(_last_line(errors) or f"exit status {process.returncode}")
    if process.returncode and "Traceback" in errors:
        raise RuntimeError(_last_line(errors))
    return said


def _hear_interrupts() -> None:
    """What a shell starts in the background ignores them, and all that it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _environment(options: Options) -> dict[str, str]:
    """Nothing of an installation of the user's own gets into it."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("WHETSTONE_")}
    kept |= {"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
    return kept | ({"WHETSTONE_TEST_DATABASE_URL": options.database_url} if options.database_url else {})


def _end(process: subprocess.Popen[str]) -> None:
    """With all that it started, which stands in a session of its own: first asked to, so that databases are dropped."""
    for sent in (signal.SIGINT, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sent)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=GRACE_SECONDS)
            return


def _last_line(errors: str) -> str:
    """Without folders: what is written to the results names no place of this machine."""
    lines = [line for line in errors.strip().splitlines() if line.strip()]
    return lines[-1].replace(str(ROOT), ".")[:300] if lines else ""
