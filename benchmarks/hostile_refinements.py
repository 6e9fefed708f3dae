"""Refinements of a running `./whetstone up` whose model servers mean harm: when they end, and what it costs the others.

One agent a provider, all refined at once, one attack after the other, with a deadline of 10 s. Prints how long
after its start the last one ended, how much more memory the worker took at its peak, and pages meanwhile to pages idle.
Usage: python -m benchmarks.hostile_refinements [ATTACK …]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

import httpx

from app.config import ROOT
from benchmarks.hostile_models import MODELS
from benchmarks.slow_requests import installation
from tests.support.hostile_server import ATTACKS, HostileServer

DEADLINE_SECONDS = 10
PAGES = ("/healthz", "/sign-in", "/")
ASKED_IDLE = 100


def main(attacks: tuple[str, ...]) -> None:
    bounds = {"DEADLINE_SECONDS": DEADLINE_SECONDS, "STEP_TIMEOUT_SECONDS": DEADLINE_SECONDS, "RETRY_BASE_SECONDS": 0.1}
    os.environ.update({f"WHETSTONE_{name}": str(value) for name, value in bounds.items()})
    with tempfile.TemporaryDirectory() as folder, HostileServer() as server, installation(Path(folder)) as running:
        url, _, cookie, web = running
        tokens = [_agent(Path(folder), number, model, server) for number, model in enumerate(MODELS)]
        worker = _worker_beside(web)
        pages = httpx.Client(base_url=url, headers={"Cookie": cookie}, timeout=60)
        idle = _medians(_ask(pages, ASKED_IDLE))
        server.attack = "redirect"
        _refine(url, tokens, pages)  # what a first call loads is no server's fault
        print(f"{'attack':26}{'last over, s':>13}{'more MB':>9}   pages meanwhile / idle", flush=True)
        for attack in attacks:
            server.attack, server.lured = attack, 0
            Path(f"/proc/{worker}/clear_refs").write_text("5")
            before = _memory(worker, "VmRSS")
            seconds, ends, meanwhile = _refine(url, tokens, pages)
            more = max(0.0, _memory(worker, "VmHWM") - before)
            ratios = ", ".join(f"{path} {meanwhile[path] / idle[path]:.1f}" for path in PAGES)
            lured = f", lured {server.lured}" if server.lured else ""
            print(f"{attack:26}{seconds:13.1f}{more:9.0f}   {ratios}   ({ends}{lured})", flush=True)
        assert worker == _worker_beside(web), "the worker was started again"
    print(f"{len(tokens)} refinements at once; the deadline is {DEADLINE_SECONDS} s, and 2 s are promised on top")


def _agent(folder: Path, number: int, model: str, server: HostileServer) -> str:
    """Makes an agent with a memory; returns its token."""
    environment = {**os.environ, "WHETSTONE_DATA_DIR": str(folder / "data")}
    memory = folder / "memory.jsonl"
    memory.write_text('{"content": "Ann likes tea.", "type": "core"}\n')

    def run(*words: str) -> str:
        command = [str(ROOT / "whetstone"), *words]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    name = f"agent{number}"
    made = run("agents", "create", name, "--model", model, "--api-base", server.base_url, "--json")
    run("memories", "import", str(memory), "--agent", name)
    return str(json.loads(made)["token"])


def _refine(url: str, tokens: list[str], pages: httpx.Client) -> tuple[float, str, dict[str, float]]:
    """All agents at once: seconds of the slowest, how they ended, and the pages' medians meanwhile."""
    doors = [
        httpx.Client(base_url=f"{url}/api/v1", headers={"Authorization": f"Bearer {token}"}, timeout=60)
        for token in tokens
    ]
    open_ones = {}
    for door in doors:
        answer = door.post("/refinements", json={})
        assert answer.status_code == 202, answer.text
        open_ones[door] = answer.json()["id"]
    took: list[float] = []
    ends: dict[str, int] = {}
    asked: list[dict[str, float]] = []
    gives_up = time.monotonic() + 10 * DEADLINE_SECONDS
    while open_ones:
        assert time.monotonic() < gives_up, f"still open: {len(open_ones)}"
        asked += _ask(pages, 5)
        for door, number in list(open_ones.items()):
            said = door.get(f"/refinements/{number}").json()
            if said["ended_at"]:
                took.append(_moment(said["ended_at"]) - _moment(said["started_at"]))
                ends[said["status"]] = ends.get(said["status"], 0) + 1
                del open_ones[door]
                door.close()
    return max(took), ", ".join(f"{count} {status}" for status, count in ends.items()), _medians(asked)


def _ask(pages: httpx.Client, times: int) -> list[dict[str, float]]:
    asked = []
    for _ in range(times):
        took = {}
        for path in PAGES:
            began = time.monotonic()
            assert pages.get(path).status_code in (200, 302)
            took[path] = time.monotonic() - began
        asked.append(took)
    return asked


def _medians(asked: list[dict[str, float]]) -> dict[str, float]:
    return {path: statistics.median(each[path] for each in asked) for path in PAGES}


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _worker_beside(web: int) -> int:
    up = Path(f"/proc/{web}/stat").read_text().rpartition(")")[2].split()[1]
    for child in Path(f"/proc/{up}/task/{up}/children").read_text().split():
        if b"worker" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
            return int(child)
    raise RuntimeError("there is no worker")


def _memory(process: int, field: str) -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or tuple(ATTACKS))
