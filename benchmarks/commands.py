"""What a command takes beside importing Flask-SQLAlchemy, which it needs before it can ask anything.

`python -m benchmarks.commands [--rounds N]`. Each is a process of its own, on a fresh installation in SQLite; in every
round all are started one after another. The figures are medians of seconds. The promise: 0.2 s for `--help`, and 0.6 s
more than the import for a command that needs the database.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

IMPORT = (sys.executable, "-c", "import flask_sqlalchemy")
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WHETSTONE_DATA_DIR"] = folder
        subprocess.run(_whetstone("demo"), check=True, capture_output=True)
        timed = {name: _whetstone(name) for name in ("--help", *COMMANDS)} | {"import": IMPORT}
        taken: dict[str, list[float]] = {name: [] for name in timed}
        for _ in range(rounds):
            for name, command in timed.items():
                taken[name].append(_seconds(command))
    base = statistics.median(taken.pop("import"))
    print(f"import flask_sqlalchemy: {base:.2f} s\n{'':<22}{'seconds':>8}{'more':>8}")
    for name, seconds in taken.items():
        took = statistics.median(seconds)
        print(f"{name:<22}{took:>8.2f}{took - base:>+8.2f}{'' if took - base <= MOST_MORE else '  too much'}")


def _whetstone(arguments: str) -> Sequence[str]:
    return (sys.executable, "-m", "app", *arguments.split())


def _seconds(command: Sequence[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=False, capture_output=True, stdin=subprocess.DEVNULL)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
