"""A fleet at the agents' door of a whole embedded installation: saves and context reads, so many a second, for a time.

Starts `up` in a folder of its own, with the rate limit raised, makes agents, and sends requests at fixed moments,
whether earlier ones were answered or not; every other one saves a new core memory, the others read the whole context.
Prints how many were answered, how, and how soon. Usage: python -m benchmarks.agents_door [RATE [SECONDS [AGENTS]]]
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

import aiohttp

from app.config import ROOT

COMMAND = (sys.executable, "-m", "app")
READY_SECONDS = 60.0
LIMIT_SECONDS = 30.0


def main(rate: int, seconds: int, agents: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "WHETSTONE_DATA_DIR": folder,
            "WHETSTONE_API_RATE": "1000000/minute",
            "PYTHONPATH": str(ROOT),
        }
        with _house(environment) as (url, web):
            tokens = [_make_agent(environment, number) for number in range(agents)]
            before = _processor_seconds(web)
            answered, late = asyncio.run(_send(url, tokens, rate, seconds))
            spent = _processor_seconds(web) - before
            verified = _run(environment, "verify", "--json")
    _report(answered, late, rate, seconds, spent)
    print(f"verify                        {verified['entries']:,} entries, ok: {verified['ok']}")


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


def _report(answered: Answered, late: float, rate: int, seconds: int, spent: float) -> None:
    total = sum(map(len, answered.values()))
    errors = sum(status not in (200, 201) for answers in answered.values() for status, _ in answers)
    print(f"requests                      {total:,} at {rate} a second for {seconds} s; {errors} errors")
    for kind, answers in answered.items():
        times = sorted(took for _, took in answers)
        p50, p95, p99 = (times[int(len(times) * share)] * 1000 for share in (0.5, 0.95, 0.99))
        statuses = dict(collections.Counter(status for status, _ in answers))
        said = f"p50 {p50:.0f} ms, p95 {p95:.0f} ms, p99 {p99:.0f} ms, worst {times[-1] * 1000:.0f} ms"
        print(f"{kind:<30}{said}; {statuses}")
    print(f"web process                   {spent / total * 1000:.1f} ms of processor time a request")
    print(f"the sender was late by        {late * 1000:.0f} ms at most")


def _make_agent(environment: dict[str, str], number: int) -> str:
    made = _run(environment, "agents", "create", f"agent {number}", "--model", "whetstone/offline", "--json")
    return str(made["token"])


def _run(environment: dict[str, str], *arguments: str) -> dict[str, object]:
    done = subprocess.run([*COMMAND, *arguments], env=environment, capture_output=True, text=True, check=True, cwd=ROOT)
    found: dict[str, object] = json.loads(done.stdout)
    return found


@contextmanager
def _house(environment: dict[str, str]) -> Iterator[tuple[str, int]]:
    """The address of a running `up`, and the process id of its web process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    up = subprocess.Popen(
        [*COMMAND, "up", "--no-browser", "--port", str(port)],
        env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        _wait_until_ready(up)
        yield f"http://127.0.0.1:{port}", _child(up.pid, "web")
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


def _child(parent: int, name: str) -> int:
    for path in Path("/proc").glob("[0-9]*"):
        try:
            status, command = (path / "stat").read_text(), (path / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if int(status.rpartition(")")[2].split()[1]) == parent and name.encode() in command:
            return int(path.name)
    raise RuntimeError(f"no process {name}")


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    main(*(given + [200, 60, 50][len(given) :]))
