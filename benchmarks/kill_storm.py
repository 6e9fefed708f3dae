"""A storm of kills: every worker beside a running `./whetstone up` is killed (-9) 3 to 5 seconds after its start.

Prints how long refinements stayed open after their worker's last sign of life: the longest, and how many there were.
The model never answers, so each refinement is open until its worker's death is noticed (2 minutes at most); agents that
are free ask for the next one at their door. Workers are started anew at once, past the back-off of `up`, whose own
worker and beat are killed too. Nobody uses the command line meanwhile: it would close refinements as well.
Usage: python -m benchmarks.kill_storm [SECONDS]
"""

from __future__ import annotations

import json
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
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path

import httpx

from app.config import ROOT
from benchmarks.slow_requests import installation
from tests.support.model_server import ModelServer, hang

AGENTS = 8
PARTS = {b"worker", b"beat"}
PATIENCE_SECONDS = 150.0
HELD = "SELECT count(*) FROM refinements WHERE ended_at IS NULL AND heartbeat_at IS NOT NULL"


def main(seconds: float) -> None:
    never = threading.Event()
    with tempfile.TemporaryDirectory() as folder, ModelServer() as model, installation(Path(folder)) as running:
        model.script(*(hang(never) for _ in range(1_000)))
        environment = {**os.environ, "WHETSTONE_DATA_DIR": str(Path(folder) / "data")}
        memory = Path(folder) / "memory.jsonl"
        memory.write_text('{"content": "Ann likes tea.", "type": "core"}\n')
        tokens = [_agent(environment, f"agent{n}", model.base_url, memory) for n in range(AGENTS)]
        database = Path(folder) / "data" / "whetstone.db"
        storm = _Storm(parent_of(running[3]), environment, lambda: _ask(running[0], tokens))
        storm.rage(seconds)
        _wait_until(lambda: _rows(database, HELD)[0][0] == 0)
        open_for = _open_for(database)
        never.set()
    print(f"kills                         {storm.kills} in {seconds:.0f} s")
    print(f"refinements closed            {len(open_for)}")
    longest, median = max(open_for), statistics.median(open_for)
    print(f"last sign of life to closed   longest {longest:.0f} s, median {median:.0f} s (120)")


class _Storm:
    """`ask` is called before each kill."""

    def __init__(self, up: int, environment: dict[str, str], ask: Callable[[], None]) -> None:
        self._up, self._environment, self._ask = up, environment, ask
        self.kills = 0

    def rage(self, seconds: float) -> None:
        chance = random.Random(7)
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            with self._worker() as worker:
                self._ask()
                time.sleep(chance.uniform(3, 5))
                self._kill(worker.pid)
            for child in Path(f"/proc/{self._up}/task/{self._up}/children").read_text().split():
                with suppress(OSError):
                    if PARTS & set(Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")):
                        self._kill(int(child))

    def _worker(self) -> subprocess.Popen[bytes]:
        command = [str(ROOT / "whetstone"), "worker"]
        return subprocess.Popen(command, env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _kill(self, process: int) -> None:
        os.kill(process, signal.SIGKILL)
        self.kills += 1


def _agent(environment: dict[str, str], name: str, model: str, memory: Path) -> str:
    """A new agent with a memory; its token."""
    made = _run(environment, "agents", "create", name, "--model", "openai/scripted", "--api-base", model, "--json")
    _run(environment, "memories", "import", str(memory), "--agent", name)
    return str(json.loads(made)["token"])


def _ask(url: str, tokens: Sequence[str]) -> None:
    """Each agent asks for a refinement of its own; one that has an open one is refused."""
    for token in tokens:
        answer = httpx.post(f"{url}/api/v1/refinements", headers={"Authorization": f"Bearer {token}"}, timeout=30)
        assert answer.status_code in (202, 409), answer.text


def _run(environment: dict[str, str], *words: str) -> bytes:
    return subprocess.run([str(ROOT / "whetstone"), *words], env=environment, check=True, capture_output=True).stdout


def parent_of(process: int) -> int:
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
