"""A storm of kills: the worker of a running `./whetstone up` is killed (-9) every 3 to 5 seconds when agents refine.

Prints how long refinements stayed open after their worker's last sign of life: the longest, and how many there were.
The model never answers, so each refinement is open until its worker's death is noticed (2 minutes at most). Nobody
uses the command line meanwhile: it would close them as well.
Usage: python -m benchmarks.kill_storm [SECONDS]
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path

from app.config import ROOT
from benchmarks.slow_requests import installation
from tests.support.model_server import ModelServer, hang

AGENTS = 4
PATIENCE_SECONDS = 150.0
HELD = "SELECT count(*) FROM refinements WHERE ended_at IS NULL AND heartbeat_at IS NOT NULL"


def main(seconds: float) -> None:
    never = threading.Event()
    with tempfile.TemporaryDirectory() as folder, ModelServer() as model, installation(Path(folder)) as running:
        model.script(*(hang(never) for _ in range(1_000)))
        environment = {**os.environ, "WHETSTONE_DATA_DIR": str(Path(folder) / "data")}
        memory = Path(folder) / "memory.jsonl"
        memory.write_text('{"content": "Ann likes tea.", "type": "core"}\n')
        names = [f"agent{number}" for number in range(AGENTS)]
        for name in names:
            _run(environment, "agents", "create", name, "--model", "openai/scripted", "--api-base", model.base_url)
            _run(environment, "memories", "import", str(memory), "--agent", name)
        database = Path(folder) / "data" / "whetstone.db"
        for name in names:
            _run(environment, "refine", name)
        _wait_until(lambda: _rows(database, HELD)[0][0] == AGENTS)
        kills = _storm(_parent_of(running[3]), seconds)
        _wait_until(lambda: _rows(database, HELD)[0][0] == 0)
        open_for = _open_for(database)
        never.set()
    print(f"kills                         {kills} in {seconds:.0f} s")
    print(f"refinements closed            {len(open_for)}")
    longest, median = max(open_for), statistics.median(open_for)
    print(f"last sign of life to closed   longest {longest:.0f} s, median {median:.0f} s (120)")


def _storm(up: int, seconds: float) -> int:
    chance = random.Random(7)
    ends, kills = time.monotonic() + seconds, 0
    while time.monotonic() < ends:
        time.sleep(chance.uniform(3, 5))
        for child in Path(f"/proc/{up}/task/{up}/children").read_text().split():
            with suppress(OSError):
                if b"worker" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
                    os.kill(int(child), signal.SIGKILL)
                    kills += 1
    return kills


def _run(environment: dict[str, str], *words: str) -> None:
    subprocess.run([str(ROOT / "whetstone"), *words], env=environment, check=True, capture_output=True)


def _parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def _wait_until(holds: Callable[[], bool]) -> None:
    ends = time.monotonic() + PATIENCE_SECONDS
    while not holds() and time.monotonic() < ends:
        time.sleep(0.5)


def _open_for(database: Path) -> list[float]:
    query = "SELECT heartbeat_at, ended_at FROM refinements WHERE status = 'interrupted'"
    return [_moment(ended) - _moment(alive) for alive, ended in _rows(database, query)]


def _rows(database: Path, query: str) -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return connection.execute(query).fetchall()


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 180)
