"""Slow and half-sent requests against a running `./whetstone up` of its own: pages, health and REST beside them.

A third are anonymous POSTs of one byte a second, a third the same with an agent's token, a third heads that never end;
what the server closes is opened again. Prints the median of each address idle and meanwhile, and the ratio; REST by
another agent's token, and for information by the attacker's own.
Usage: python -m benchmarks.slow_requests [COUNT]
"""

from __future__ import annotations

import asyncio
import http.client
import json
import multiprocessing
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.synchronize import Event
from pathlib import Path

import httpx

from app.config import ROOT

ASKED = 100
REST = "/api/v1/context"
BYTE_EVERY_SECONDS = 1.0
OPEN_AGAIN_SECONDS = 5.0
SETTLE_SECONDS = 15.0
"""Until all have connected and the first deadlines have passed."""


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder, installation(Path(folder)) as (url, tokens, cookie, web):
        own, other = tokens
        asked = {
            "/healthz": ("/healthz", {}),
            "/sign-in": ("/sign-in", {}),
            "/": ("/", {"Cookie": cookie}),
            REST: (REST, {"Authorization": f"Bearer {other}"}),
            f"{REST} (attacker)": (REST, {"Authorization": f"Bearer {own}"}),
        }
        idle = {name: times_of(url, path, headers) for name, (path, headers) in asked.items()}
        before = pss_of(web)
        attack, stop = multiprocessing.get_context("spawn").Process, multiprocessing.get_context("spawn").Event()
        peers = attack(target=_attack, args=(url, own, count, stop))
        peers.start()
        time.sleep(SETTLE_SECONDS)
        busy = {name: statistics.median(times_of(url, path, headers)) for name, (path, headers) in asked.items()}
        print(
            f"slow requests kept up        {count}; memory of the web process {before:.0f} → {pss_of(web):.0f} MB PSS"
        )
        stop.set()
        peers.join()
        for name, (path, headers) in asked.items():  # before and after: the machine may have other things to do
            idle[name] += times_of(url, path, headers)
    for name, times in idle.items():
        alone = statistics.median(times)
        print(
            f"{name:<28} {alone * 1000:.1f} ms idle, {busy[name] * 1000:.1f} ms beside them: "
            f"ratio {busy[name] / alone:.2f} (2)"
        )


@contextmanager
def installation(folder: Path) -> Iterator[tuple[str, tuple[str, str], str, int]]:
    """A running `up`: its address, the tokens of two agents, their owner's cookie, and the web process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "WHETSTONE_DATA_DIR": str(folder / "data")}
    command = [str(ROOT / "whetstone"), "up", "--json", "--no-browser", "--port", str(port)]
    up = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert up.stdout is not None
        first = json.loads(up.stdout.readline())
        url = json.loads(up.stdout.readline())["ready"]
        tokens = _token_of("attacker", environment), _token_of("other", environment)
        yield url, tokens, _sign_in(url, first["first_admin"], first["password"]), child_of(up.pid, "web")
    finally:
        up.terminate()
        up.wait()


def _token_of(agent: str, environment: dict[str, str]) -> str:
    command = [str(ROOT / "whetstone"), "agents", "create", agent, "--model", "whetstone/offline", "--json"]
    made = subprocess.run(command, env=environment, check=True, capture_output=True)
    return str(json.loads(made.stdout)["token"])


def _sign_in(url: str, email: str, password: str) -> str:
    with httpx.Client(base_url=url, timeout=60) as client:
        found = re.search(r'name="csrf_token" value="([^"]+)"', client.get("/sign-in").text)
        assert found is not None
        form = {"email": email, "password": password, "csrf_token": found[1]}
        assert client.post("/sign-in", data=form).status_code == 302
        return f"whetstone={client.cookies['whetstone']}"


def times_of(url: str, path: str, headers: dict[str, str]) -> list[float]:
    """In seconds, each time over a connection of its own."""
    took = []
    for _ in range(ASKED):
        began = time.monotonic()
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        assert answer.status == 200
        took.append(time.monotonic() - began)
    return took


def _attack(url: str, token: str, count: int, stop: Event) -> None:
    asyncio.run(_keep_up(url, token, count, stop))


async def _keep_up(url: str, token: str, count: int, stop: Event) -> None:
    host, _, port = url.removeprefix("http://").partition(":")
    head = f"Host: {host}\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n"
    kinds = (
        f"POST /sign-in HTTP/1.1\r\n{head}\r\n",
        f"POST /api/v1/memories HTTP/1.1\r\n{head}Authorization: Bearer {token}\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: {host}\r\nX-Slow: ",
    )
    peers = [asyncio.create_task(_drip(host, int(port), kinds[n % 3].encode(), stop)) for n in range(count)]
    await asyncio.gather(*peers)


async def _drip(host: str, port: int, head: bytes, stop: Event) -> None:
    while not stop.is_set():
        with suppress(OSError):
            _, writer = await asyncio.open_connection(host, port)
            writer.write(head)
            while not stop.is_set():
                await asyncio.sleep(BYTE_EVERY_SECONDS)
                writer.write(b"x")
                await writer.drain()
        await asyncio.sleep(OPEN_AGAIN_SECONDS)


def child_of(up: int, part: str) -> int:
    """The process that is this part of `up`."""
    for child in Path(f"/proc/{up}/task/{up}/children").read_text().split():
        if part.encode() in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
            return int(child)
    raise RuntimeError(f"there is no {part} process")


def pss_of(pid: int) -> float:
    """In MB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
