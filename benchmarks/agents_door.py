"""A fleet at the agents' door of a whole embedded installation: saves and context reads, so many a second, for a time.

Starts `up` in a folder of its own, with the rate limit raised, makes agents, and sends requests at fixed moments,
whether earlier ones were answered or not; every other one saves a new core memory, the others read the whole context.
Prints how many were answered, how, and how soon.
Usage: python -m benchmarks.agents_door [RATE [SECONDS [AGENTS [WEB_PROCESSES]]]]
"""

from __future__ import annotations

import asyncio
import collections
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import sqlalchemy

from app import Part
from app.config import ROOT, load_settings
from app.extensions import db, writing
from app.keys.agent_keys import make_keys, share_with_tokens
from app.keys.tokens import TokenOrigin, issue_token
from app.models import COMMAND_LINE, Account, Agent
from app.setup import ready_app

COMMAND = (sys.executable, "-m", "app")
READY_SECONDS = 120.0
LIMIT_SECONDS = 30.0


def main(rate: int, seconds: int, agents: int, web_processes: int) -> None:
    found = measure(rate, seconds, agents, web_processes)
    sent = f"{found['requests']:,} at {rate} a second for {seconds} s"
    print(f"requests                      {sent}; {found['errors']} errors")
    for kind, times in found["kinds"].items():
        shares = ", ".join(f"{name} {times[name]:.0f} ms" for name in SHARES)
        print(f"{kind:<30}{shares}, worst {times['worst']:.0f} ms; {times['statuses']}")
    print(f"web process                   {found['processor_ms']:.1f} ms of processor time a request")
    print(f"web processes                 {web_processes}; answered {found['a_second']:.0f} a second")
    print(f"the sender was late by        {found['late_ms']:.0f} ms at most")
    print(f"verify                        {found['entries']:,} entries, ok: {found['verified']}")


def measure(rate: int = 200, seconds: int = 60, agents: int = 50, web_processes: int = 1) -> dict[str, Any]:
    """The same as figures, times in milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "WHETSTONE_DATA_DIR": folder,
            "WHETSTONE_API_RATE": "1000000/minute",
            "WHETSTONE_WEB_PROCESSES": str(web_processes),
            "PYTHONPATH": str(ROOT),
        }
        with _house(environment, web_processes) as (url, webs):
            tokens = _make_agents(Path(folder), agents)
            before, began = _processor_seconds(webs), time.perf_counter()
            answered, late = asyncio.run(_send(url, tokens, rate, seconds))
            spent, took = _processor_seconds(webs) - before, time.perf_counter() - began
            verified = _run(environment, "verify", "--json")
    total = sum(map(len, answered.values()))
    return {
        "requests": total,
        "errors": sum(status not in (200, 201) for answers in answered.values() for status, _ in answers),
        "kinds": {kind: _times_of(answers) for kind, answers in answered.items()},
        "processor_ms": spent / total * 1000,
        "a_second": total / took,
        "late_ms": late * 1000,
        "entries": verified["entries"],
        "verified": verified["ok"],
    }


Answered = dict[str, list[tuple[int, float]]]
"""By kind: status and seconds of each answer; status 0 for none within the limit."""


async def _send(url: str, tokens: list[str], rate: int, seconds: int) -> tuple[Answered, float]:
    answered: Answered = {"save": [], "context": []}
    late = 0.0
    timeout = aiohttp.ClientTimeout(total=LIMIT_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as http:
        begin, running = time.perf_counter(), set[asyncio.Task[None]]()
        for number in range(rate * seconds):
            due = begin + number / rate
            await asyncio.sleep(max(due - time.perf_counter(), 0))
            late = max(late, time.perf_counter() - due)
            token, kind = tokens[number // 2 % len(tokens)], ("save", "context")[number % 2]
            task = asyncio.create_task(_ask(http, url, token, kind, number, answered[kind]))
            running.add(task)
            task.add_done_callback(running.discard)
        await asyncio.gather(*running)
    return answered, late


async def _ask(
    http: aiohttp.ClientSession, url: str, token: str, kind: str, number: int, answers: list[tuple[int, float]]
) -> None:
    begin = time.perf_counter()
    headers = {"Authorization": f"Bearer {token}"}
    body = {"content": f"On the walk of day {number} the river stood high, and we turned back at the mill."}
    try:
        if kind == "save":
            sent = http.post(f"{url}/api/v1/memories", json=body, headers=headers)
        else:
            sent = http.get(f"{url}/api/v1/context", headers=headers)
        async with sent as answer:
            await answer.read()
            status = answer.status
    except (aiohttp.ClientError, TimeoutError):
        status = 0
    answers.append((status, time.perf_counter() - begin))


SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def _times_of(answers: list[tuple[int, float]]) -> dict[str, Any]:
    times = sorted(took * 1000 for _, took in answers)
    shares = {name: times[int(len(times) * share)] for name, share in SHARES.items()}
    return shares | {"worst": times[-1], "statuses": dict(collections.Counter(status for status, _ in answers))}


def _make_agents(data: Path, count: int) -> list[str]:
    """Their tokens. In this process, because a command for each would take longer than the run."""
    app, tokens = ready_app(Part.COMMAND_LINE, load_settings(data_dir=data)), list[str]()
    with app.app_context():
        account_id = db.session.scalars(sqlalchemy.select(Account.id)).one()
        for number in range(count):
            with writing():
                Account.lock(account_id)
                model = "whetstone/offline"
                agent = Agent.create(account_id, name=f"agent {number}", model_id=model, by=COMMAND_LINE)
                keys = make_keys(agent)
                tokens.append(issue_token(agent, by=COMMAND_LINE, how=TokenOrigin.FIRST))
                share_with_tokens(agent, keys)
        db.session.remove()
        db.engine.dispose()
    return tokens


def _run(environment: dict[str, str], *arguments: str) -> dict[str, object]:
    done = subprocess.run([*COMMAND, *arguments], env=environment, capture_output=True, text=True, check=True, cwd=ROOT)
    found: dict[str, object] = json.loads(done.stdout)
    return found


@contextmanager
def _house(environment: dict[str, str], web_processes: int) -> Iterator[tuple[str, list[int]]]:
    """The address of a running `up`, and the process ids of its web processes, once all of them listen."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    up = subprocess.Popen(
        [*COMMAND, "up", "--no-browser", "--port", str(port)],
        env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        _wait_until_ready(up)
        _wait_until_all_listen(Path(environment["WHETSTONE_DATA_DIR"]) / "logs", web_processes)
        yield f"http://127.0.0.1:{port}", _children(up.pid, "web")
    finally:
        up.send_signal(signal.SIGTERM)
        up.communicate(timeout=60)


def _wait_until_ready(up: subprocess.Popen[str]) -> None:
    assert up.stdout is not None
    said, deadline = "", time.monotonic() + READY_SECONDS
    while "Whetstone is ready" not in said:
        readable, _, _ = select.select([up.stdout], [], [], max(deadline - time.monotonic(), 0))
        line = up.stdout.readline() if readable else ""
        if not line:
            raise RuntimeError(f"it did not get ready: {said}")
        said += line


def _wait_until_all_listen(logs: Path, web_processes: int) -> None:
    deadline = time.monotonic() + READY_SECONDS
    for number in range(2, web_processes + 1):
        log = logs / f"web-{number}.log"
        while not (log.exists() and "Application startup complete" in log.read_text()):
            if time.monotonic() > deadline:
                raise RuntimeError(f"web process {number} did not get ready")
            time.sleep(0.1)


def _children(parent: int, name: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            status, command = (path / "stat").read_text(), (path / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if int(status.rpartition(")")[2].split()[1]) == parent and name.encode() in command:
            found.append(int(path.name))
    return found


def _processor_seconds(pids: list[int]) -> float:
    stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(fields[11]) + int(fields[12]) for fields in stats) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    main(*(given + [200, 60, 50, 1][len(given) :]))
