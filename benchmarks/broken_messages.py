"""Messages that this program did not write, by the thousand, on the queues of a running `./whetstone up` of its own.

They are of every kind that the tests know, from a list for a task's name to a million brackets. Prints how long the
worker takes to drop them all, its memory before and after, and a page idle (before and after) and meanwhile.
Usage: python -m benchmarks.broken_messages [COUNT]
"""

from __future__ import annotations

import itertools
import json
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path

import httpx
from redis import Redis

from benchmarks.kill_storm import parent_of
from benchmarks.slow_requests import child_of, installation, pss_of, times_of
from tests.tasks.test_broken_messages import BROKEN, NO_JSON, QUEUES

PAGE = "/sign-in"
AT_ONCE = 50
MOST_WAITING = 200
"""The broker keeps what waits in its memory, and some of these are a megabyte."""

PATIENCE_SECONDS = 120.0


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as name, installation(Path(name)) as (url, _, _, web):
        data, up = Path(name) / "data", parent_of(web)
        _wait_until_ready(url)
        worker = child_of(up, "worker")
        with Redis.from_url((data / "run" / "broker.url").read_text().strip()) as broker:
            before, idle = pss_of(worker), times_of(url, PAGE, {})
            busy: list[float] = []
            pushing = threading.Thread(target=_push, args=(broker, _namespace(data), count))
            began = time.monotonic()
            pushing.start()
            while pushing.is_alive():
                busy += times_of(url, PAGE, {})
            took = time.monotonic() - began
        _wait_until_ready(url)
        after, is_same = pss_of(worker), child_of(up, "worker") == worker
        idle += times_of(url, PAGE, {})
        dropped = (data / "logs" / "worker.log").read_text().count("message dropped")
    ratio = statistics.median(busy) / statistics.median(idle)
    print(f"malformed messages            {count}, of {len(BROKEN) + len(NO_JSON)} kinds; dropped and logged {dropped}")
    print(f"time until all were dropped   {took:.1f} s, {count / took:.0f} a second")
    print(f"the worker                    {'is the same process' if is_same else 'ENDED'}, and answers")
    print(f"memory of the worker          {before:.0f} → {after:.0f} MB PSS")
    print(f"{PAGE:<29} {_ms(idle)} idle, {_ms(busy)} meanwhile: ratio {ratio:.2f} (2)")


def _push(broker: Redis, namespace: str, count: int) -> None:
    """All of them, no more than a few waiting at the same time; returns when none waits."""
    items = itertools.cycle([*(json.dumps(each).encode() for each in BROKEN.values()), *NO_JSON.values()])
    keys = [namespace + queue for queue in QUEUES]
    for number in range(0, count, AT_ONCE):
        broker.lpush(keys[number // AT_ONCE % len(keys)], *itertools.islice(items, min(AT_ONCE, count - number)))
        _drain(broker, keys, MOST_WAITING)
    _drain(broker, keys, 0)


def _drain(broker: Redis, keys: list[str], most: int) -> None:
    ends = time.monotonic() + PATIENCE_SECONDS
    while sum(map(broker.llen, keys)) > most:
        if time.monotonic() > ends:
            raise TimeoutError("the worker takes no messages")
        time.sleep(0.02)


def _namespace(data: Path) -> str:
    with closing(sqlite3.connect(f"file:{data / 'whetstone.db'}?mode=ro", uri=True)) as connection:
        ((fingerprint,),) = connection.execute("SELECT fingerprint FROM master_keys ORDER BY id LIMIT 1").fetchall()
    return f"whetstone:{fingerprint}:"


def _wait_until_ready(url: str) -> None:
    """And until the worker has loaded what it loads beside its work."""
    ends = time.monotonic() + PATIENCE_SECONDS
    while httpx.get(f"{url}/readyz", timeout=30).status_code != 200:
        if time.monotonic() > ends:
            raise TimeoutError("no worker answers")
        time.sleep(0.5)


def _ms(times: list[float]) -> str:
    return f"{statistics.median(times) * 1000:.1f} ms"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5_000)
