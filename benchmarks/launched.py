"""Processes as the launcher starts them: with bytecode, which later starts find; and what each of them took."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.config import ROOT

IMPORT = (sys.executable, "-c", "import flask_sqlalchemy")
"""What every command needs before it can ask the database anything: what starts are measured beside."""


@dataclass(frozen=True)
class Took:
    """Seconds of the clock, and of processors."""

    seconds: float
    processor: float


def launched_environment(data: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WHETSTONE_", "PYTHON"))}
    prefix = {name: os.environ[name] for name in ("PYTHONPYCACHEPREFIX",) if name in os.environ}
    return kept | prefix | {"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1", "WHETSTONE_DATA_DIR": str(data)}


def whetstone(arguments: str) -> Sequence[str]:
    return (sys.executable, "-m", "app", *arguments.split())


def time_process(command: Sequence[str], environment: Mapping[str, str]) -> Took:
    """Its output is thrown away."""
    began = time.perf_counter()
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return Took(time.perf_counter() - began, usage.ru_utime + usage.ru_stime)
