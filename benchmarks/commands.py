"""What a command takes beside importing Flask-SQLAlchemy, which it needs before it can ask anything.

    python -m benchmarks.commands [--rounds N] [--json]

Each is a process of its own, started as the launcher does, on a fresh installation in SQLite. In every round all are
started one after another; the first round, which writes bytecode, does not count. The figures are medians. The promise:
0.6 s more than the import.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.launched import IMPORT, Took, launched_environment, time_process, whetstone
from benchmarks.scratch import run

MOST_MORE = 0.6
COMMANDS = (
    "agents list",
    "agents show Crumb",
    "memories list Crumb",
    "refinements list",
    "refine Crumb",
    "sweep",
    "attention list",
    "grants list",
    "audit",
    "verify",
    "keys check",
    "doctor",
)


def measure(rounds: int = 7) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        environment = launched_environment(Path(folder))
        subprocess.run(whetstone("demo"), env=environment, check=True, capture_output=True)
        timed = {"import": IMPORT} | {name: whetstone(name) for name in ("--help", *COMMANDS)}
        taken: dict[str, list[Took]] = {name: [] for name in timed}
        for _ in range(rounds + 1):
            for name, command in timed.items():
                taken[name].append(time_process(command, environment))
    base = taken.pop("import")
    return [
        Figure("import flask_sqlalchemy", _seconds(base), "s"),
        *(figure for name, each in taken.items() for figure in _figures(name, each, base)),
    ]


def _figures(name: str, taken: Sequence[Took], base: Sequence[Took]) -> Sequence[Figure]:
    return (
        Figure(f"{name}, beyond the import", _seconds(taken) - _seconds(base), "s", most=MOST_MORE),
        Figure(f"{name}, beyond it in processor time", _processor(taken) - _processor(base), "s"),
    )


def _seconds(taken: Sequence[Took]) -> float:
    return statistics.median(each.seconds for each in taken[1:])


def _processor(taken: Sequence[Took]) -> float:
    return statistics.median(each.processor for each in taken[1:])


if __name__ == "__main__":
    run(measure, __doc__, rounds=7)
