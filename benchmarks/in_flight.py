"""Many refinements in flight in two worker processes, against a model server that takes 2 seconds a reply.

Each refinement asks three times (consent, one change, complete), so the ideal wall time is 6 seconds however many run
at once. Meanwhile an admin looks through a mechanic's exception again and again, as its page does: asked here, answered
by the small pool of a worker. Prints wall time over the ideal, processor time, the workers' memory, and the looks.

    python -m benchmarks.in_flight [COUNT [PROCESSES]]
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from app.asking.calls import Dependencies
from app.config import Settings
from app.extensions import db
from app.grants.asking import ask_agent
from app.grants.opening import fetch_view, look
from app.grants.request import WantedException, request_access
from app.models import COMMAND_LINE, AccessGrant, GrantCategory, Refinement, Status, Trigger, User
from app.models.user import ADMIN
from app.refinement.start import start_refinement
from benchmarks.scratch import scratch
from benchmarks.slow_model import CALLS, slow_model
from tests.support.factories import make_agent, make_user, remember
from tests.support.scripted import ScriptedClient, ScriptedClients, say

REPLY_SECONDS = 2.0
IDEAL = REPLY_SECONDS * CALLS
LOOK_EVERY = 0.5


def measure(count: int = 500, processes: int = 2) -> dict[str, Any]:
    """`wall` and `ideal` are in seconds, looks in milliseconds, memory in MB: PSS of all workers, at its peak."""
    with slow_model(REPLY_SECONDS) as base, scratch() as app:
        ids = _queue(count, base)
        grant, user = _grant_exception()
        with _workers(app.extensions["settings"], ids, processes) as workers:
            looks = _look_until_done(workers, grant, user)
            figures = [json.loads(worker.lines[-1]) for worker in workers]
        done = sum(db.session.get_one(Refinement, each).status == Status.COMPLETED for each in ids)
    wall = max(each["ended"] for each in figures) - min(each["began"] for each in figures)
    return {
        "count": count,
        "processes": processes,
        "completed": done,
        "wall": wall,
        "ideal": IDEAL,
        "cpu": sum(each["cpu"] for each in figures),
        "pss_mb": round(sum(worker.peak_kb for worker in workers) / 1024),
        "looks": len(looks),
        "look_ms": statistics.median(looks),
        "longest_look_ms": max(looks),
    }


def _queue(count: int, base: str) -> list[str]:
    ids = []
    for number in range(count):
        agent = make_agent(f"agent-{number}", model_id="openai/slow", api_base=base)
        ships = ("0", "0 and 1", *map(str, range(2, 20)))
        remember(agent, *(f"We spoke about ship {ship} and its captain at length." for ship in ships))
        ids.append(start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE).id)
    return ids


def _grant_exception() -> tuple[AccessGrant, User]:
    agent, user = make_agent("wren"), make_user("ann@example.org", ADMIN)
    remember(agent, *(f"Number {number} is one of fifty." for number in range(50)))
    wish = WantedException(GrantCategory.DEBUGGING, "She repeats herself", 15)
    grant = request_access(agent.id, wish, for_user=user, by=user.actor)
    ask_agent(grant.id, Dependencies(ScriptedClients(ScriptedClient(say("YES")))))
    db.session.rollback()
    return db.session.get_one(AccessGrant, grant.id, populate_existing=True), user


@dataclass
class _Worker:
    process: subprocess.Popen[str]
    lines: list[str]
    peak_kb: int = 0

    def is_done(self) -> bool:
        return bool(self.lines) and self.lines[-1].startswith("{")

    def look_at_memory(self) -> None:
        with suppress(OSError, ValueError):
            rollup = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text()
            pss = next(line for line in rollup.splitlines() if line.startswith("Pss:"))
            self.peak_kb = max(self.peak_kb, int(pss.split()[1]))


@contextmanager
def _workers(settings: Settings, ids: Sequence[str], processes: int) -> Iterator[list[_Worker]]:
    """Each with its share of the refinements, all loaded and told to begin at once."""
    workers = []
    try:
        for number in range(processes):
            command = [sys.executable, "-m", "benchmarks.in_flight_worker", str(settings.data), settings.database_url]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            workers.append(_Worker(process, []))
            _tell(workers[-1], " ".join(ids[number::processes]))
        for worker in workers:
            worker.lines.append(_out(worker).readline())
        for worker in workers:
            _tell(worker, "go")
        yield workers
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.communicate()


def _tell(worker: _Worker, line: str) -> None:
    stdin = cast(IO[str], worker.process.stdin)
    stdin.write(f"{line}\n")
    stdin.flush()


def _out(worker: _Worker) -> IO[str]:
    return cast(IO[str], worker.process.stdout)


def _look_until_done(workers: Sequence[_Worker], grant: AccessGrant, user: User) -> list[float]:
    """Milliseconds of each look, from asking to what it shows."""
    looks, first = [], workers[0]
    while not first.is_done():
        began = time.perf_counter()
        wanted = look(grant, user)
        _tell(first, wanted.view_id)
        while True:  # what it says next is that the look is answered, or that it has done its share
            first.lines.append(_out(first).readline())
            if first.lines[-1].strip() == wanted.view_id:
                fetch_view(wanted)
                looks.append((time.perf_counter() - began) * 1000)
            break
        for worker in workers:
            worker.look_at_memory()
        time.sleep(LOOK_EVERY)
    for worker in workers[1:]:
        worker.lines.append(_out(worker).readline())
    return looks


def main() -> None:
    figures = measure(*map(int, sys.argv[1:3]))
    over, calls = figures["wall"] / IDEAL, f"{CALLS} calls of {REPLY_SECONDS:.0f} s each"
    print(
        f"{figures['count']} refinements, {calls}, {figures['processes']} processes: wall {figures['wall']:.1f} s, "
        f"{over:.2f} x the ideal; CPU {figures['cpu']:.1f} s; peak memory {figures['pss_mb']} MB (PSS)"
    )
    print(f"an exception's page: median {figures['look_ms']:.0f} ms, longest {figures['longest_look_ms']:.0f} ms")
    print(f"completed: {figures['completed']} of {figures['count']}")


if __name__ == "__main__":
    main()
