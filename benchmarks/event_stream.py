"""Many open pages on one web process: how soon an event reaches all of them, and what a page costs meanwhile.

Prints, for a real server over HTTP, the time from an event's commit to the last page that shows it; the time of a page
with and without the open streams; and the server's memory. Usage: python -m benchmarks.event_stream [COUNT]
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import statistics
import sys
import tempfile
import time
import urllib.request
from multiprocessing.connection import Connection
from pathlib import Path

from app import Part, create_app
from app.config import Settings
from app.events.stream import MOST_STREAMS_OF_USER
from app.events.topics import newest_event
from app.extensions import after_commit, db, writing
from app.models import announce
from app.models.user import OWNER
from tests.support.databases import Template
from tests.support.factories import HOME, make_agent, make_user, remember
from tests.support.pages import serving
from tests.support.workers import broker_of

_ID = re.compile(rb"^id: ([0-9]+)$", re.MULTILINE)
EVENTS = 10
PAGES = 60
OPENING = 32
"""At the same time: the server closes the oldest of more than 64 requests of one address that are unfinished."""


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "data").mkdir()
        (Path(folder) / "template").mkdir()
        template = Template(Path(folder) / "template")
        with template.copy(Path(folder) / "data") as settings, broker_of(settings):
            app = create_app(settings, part=Part.COMMAND_LINE)
            app.extensions["master_key"] = template.master_key
            with app.app_context():
                remember(make_agent(), "Ann likes tea.", "Rain on Tuesday.")
                _measure(settings, count)
                db.engine.dispose()
        template.drop()


def _measure(settings: Settings, count: int) -> None:
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    site = multiprocessing.get_context("spawn").Process(target=_serve, args=(settings, theirs, count))
    site.start()
    try:
        url, cookies = ours.recv()
        idle = _page_seconds(url)
        delays, busy, cpu = asyncio.run(_listen(url, cookies, count, site.pid or 0))
        pss = _pss(site.pid or 0)
    finally:
        ours.send("stop")
        site.join()
    print(f"open pages                    {count}")
    print(f"event to the last page        median {_ms(statistics.median(delays))}, worst {_ms(max(delays))} (250 ms)")
    print(f"processor time of an event    {_ms(cpu)} in the web process")
    print(f"another page, median          {_ms(busy)} against {_ms(idle)} idle: ratio {busy / idle:.2f} (2)")
    print(f"memory of the web process     {pss:.0f} MB PSS")


def _serve(settings: Settings, told: Connection, count: int) -> None:
    web = create_app(settings, part=Part.WEB)
    with serving(web, keep_alive=15, patience=30) as site:
        with web.app_context():
            users = [make_user(f"{number}@example.org", OWNER) for number in range(-(-count // MOST_STREAMS_OF_USER))]
            told.send((site.url, [site.cookie_of(user) for user in users]))
            db.session.remove()
        told.recv()


async def _listen(url: str, cookies: list[str], count: int, pid: int) -> tuple[list[float], float, float]:
    arrivals: asyncio.Queue[tuple[int, float]] = asyncio.Queue()
    pages: list[asyncio.Task[None]] = []
    for number in range(count):
        pages.append(asyncio.create_task(_page(url, cookies[number % len(cookies)], arrivals)))
        if number >= OPENING:
            await arrivals.get()
    for _ in pages[:OPENING]:
        await arrivals.get()
    delays: list[float] = []
    before = _cpu_seconds(pid)
    for _ in range(EVENTS):
        await asyncio.sleep(0.3)
        event_id, began = _happen()
        delays.append(await _all_have(arrivals, event_id, count) - began)
    cpu = (_cpu_seconds(pid) - before) / EVENTS
    busy = await asyncio.get_running_loop().run_in_executor(None, _page_seconds, url)
    for page in pages:
        page.cancel()
    return delays, busy, cpu


async def _page(url: str, cookie: str, arrivals: asyncio.Queue[tuple[int, float]]) -> None:
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET /events?topic=overview HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\n\r\n".encode())
    rest = b""
    while part := await reader.read(1_000_000):
        *whole, rest = (rest + part).split(b"\n\n")
        for message in whole:
            if found := _ID.search(message):
                arrivals.put_nowait((int(found[1]), time.monotonic()))


async def _all_have(arrivals: asyncio.Queue[tuple[int, float]], event_id: int, count: int) -> float:
    have, last = 0, 0.0
    while have < count:
        seen, at = await asyncio.wait_for(arrivals.get(), 20)
        if seen >= event_id:
            have, last = have + 1, max(last, at)
    return last


def _happen() -> tuple[int, float]:
    """Commit an event; its id, and when it was committed (before the broker is told)."""
    with writing():
        committed: list[float] = []
        after_commit(lambda: committed.append(time.monotonic()))
        announce("agent.changed", HOME)
    newest = newest_event(HOME)
    db.session.rollback()
    return newest, committed[0]


def _page_seconds(url: str) -> float:
    """The median of a page that goes through Flask and the database."""
    took = []
    for _ in range(PAGES):
        began = time.monotonic()
        with urllib.request.urlopen(f"{url}/sign-in") as answer:
            answer.read()
        took.append(time.monotonic() - began)
        time.sleep(0.02)
    return statistics.median(took)


def _pss(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
