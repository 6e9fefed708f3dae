"""Pages of one web process with 2,000 agents, 50 rows each, beside Flask-Admin's list of as many.

    python -m benchmarks.pages [--agents N] [--seconds N] [--no-peers] [--json]

Both run as web servers in processes of their own, and are asked in turn by four clients that keep their connections
and the cookies that they are given.
The rate is pages in a second of the server's processor time: what one core could do that had nothing else to do.
"""

from __future__ import annotations

import argparse
import http.client
import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import urlsplit

from flask import current_app

from app import Part, create_app
from app.config import Settings
from app.extensions import SystemClock, db
from app.loading import collect_rarely
from app.models.user import OWNER
from benchmarks.audit_log import BEGAN, write_log
from benchmarks.due_agents import fill_agents
from benchmarks.figures import Figure, print_figures
from benchmarks.peers.environments import Peer, PeerUnavailable
from benchmarks.plain_versioning import scratch_database
from benchmarks.scratch import scratch
from tests.support.clock import FakeClock
from tests.support.factories import make_user
from tests.support.pages import serving

CLIENTS = 4
TURNS = 3
ENTRIES = 5_000
LEAST = {"/agents": 150, "/": 100, "/audit": 100}
LEAST_OF_PEER = 4
PEER = "Flask-Admin's list"


def measure(agents: int = 2_000, seconds: float = 2, *, peers: bool = True) -> list[Figure]:
    with scratch(Part.WEB) as app, ExitStack() as stack:
        app.extensions["clock"] = FakeClock(BEGAN - timedelta(days=1))
        write_log(ENTRIES)
        app.extensions["clock"] = SystemClock()
        fill_agents(max(agents - 1_000, 1), max(agents - 1_000, 1))
        db.session.remove()
        ours, theirs = multiprocessing.get_context("spawn").Pipe()
        settings = current_app.extensions["settings"]
        site = multiprocessing.get_context("spawn").Process(target=_serve, args=(settings, theirs))
        site.start()
        stack.callback(site.join)
        stack.callback(ours.send, "stop")
        url, cookie = ours.recv()
        asked = {path: (f"{url}{path}", site.pid or 0) for path in LEAST}
        why = _add_peer(stack, asked, agents) if peers else "--no-peers"
        rates = _in_turn(asked, cookie, seconds)
    return [*_figures(rates), *([Figure(f"beside {PEER}", reason=why)] if why else [])]


def _serve(settings: Settings, told: Connection) -> None:
    web = create_app(settings.model_copy(update={"log_level": "WARNING"}), part=Part.WEB)
    collect_rarely()  # as the web process does
    with serving(web, keep_alive=15) as site:
        with web.app_context():
            told.send((site.url, site.cookie_of(make_user("owner@example.org", OWNER))))
            db.session.remove()
        told.recv()


def _add_peer(stack: ExitStack, asked: dict[str, tuple[str, int]], agents: int) -> str:
    """Why it is not there; "" where it is."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    database = stack.enter_context(scratch_database(folder, "flask-admin"))
    try:
        peer = stack.enter_context(Peer("flask-admin", "flask_admin_site.py", database, str(agents)))
        asked[PEER] = peer.ask(do="start")["url"], peer.pid
    except PeerUnavailable as error:
        return str(error)
    return ""


def _in_turn(asked: Mapping[str, tuple[str, int]], cookie: str, seconds: float) -> dict[str, tuple[float, float]]:
    """By page: how many in a second of processor time, and in one of wall time. The first turn warms up."""
    pages, spent, walls = (dict.fromkeys(asked, 0.0) for _ in range(3))
    for turn in range(TURNS + 1):
        for name, (url, process) in asked.items():
            before, began = _processor_seconds(process), time.perf_counter()
            count = _ask(url, cookie, seconds)
            if turn:
                pages[name] += count
                spent[name] += _processor_seconds(process) - before
                walls[name] += time.perf_counter() - began
    return {name: (pages[name] / spent[name], pages[name] / walls[name]) for name in asked}


def _ask(url: str, cookie: str, seconds: float) -> int:
    counts = [0] * CLIENTS
    ends = time.perf_counter() + seconds
    threads = [threading.Thread(target=_ask_again, args=(url, cookie, ends, counts, n)) for n in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not all(counts):
        raise RuntimeError(f"{urlsplit(url).path} was not answered")
    return sum(counts)


def _ask_again(url: str, cookie: str, ends: float, counts: list[int], number: int) -> None:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    while time.perf_counter() < ends:
        connection.request("GET", parts.path, headers={"Cookie": cookie, "Accept": "text/html"})
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200 or b"</html>" not in body[-200:]:
            break
        if given := answer.getheader("Set-Cookie"):
            cookie = given.partition(";")[0]
        counts[number] += 1
    connection.close()


def _figures(rates: Mapping[str, tuple[float, float]]) -> list[Figure]:
    peer = rates.get(PEER)
    figures = []
    for path, least in LEAST.items():
        limit = {"least_ratio": LEAST_OF_PEER} if path == "/agents" else {}
        beside = {"beside": PEER, "base": peer[0], **limit} if peer else {}
        figures.append(Figure(f"{path}, in a second of processor time", rates[path][0], "pages", least=least, **beside))
        beside = {"beside": PEER, "base": peer[1]} if peer else {}
        figures.append(Figure(f"{path}, in a second of wall time", rates[path][1], "pages", **beside))
    return figures


def _processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=2_000)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    print_figures(measure(given.agents, given.seconds, peers=not given.no_peers), as_json=given.json)


if __name__ == "__main__":
    main()
