"""How time grows: with memories, agents, entries of the audit log, and open pages.

    python -m benchmarks.scaling [--memories N …] [--agents N …] [--entries N …] [--pages N …] [--json]

Each figure stands beside that of the smallest size in the same run. What has no sizes named is left out, unless nothing
is named: then it takes those that fit into some minutes. 10 million entries take 10 minutes and 7 GB of disk.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import count

from flask import Flask
from flask.testing import FlaskClient

from app import Part, create_app
from app.asking.prompt_memories import memory_context, read_entries
from app.config import ROOT
from app.extensions import SystemClock, db, end_reading, now
from app.history.log import Filters
from app.keys.agent_keys import open_keys
from app.models.user import OWNER
from app.refinement.due import due_by_schedule
from benchmarks import audit_page, due_agents
from benchmarks.audit_log import BEGAN, write_log
from benchmarks.figures import Figure, print_figures
from benchmarks.plain_versioning import BATCH, change_guarded
from benchmarks.scratch import medians, scratch
from benchmarks.sealed_ledger import text_of, write_ledger
from tests.support.clock import FakeClock
from tests.support.factories import cookie_id, make_agent, make_user

ROUNDS = 7
USUAL = {
    "memories": (100, 1_000, 10_000),
    "agents": (100, 1_000, 10_000, 100_000),
    "entries": (10_000, 100_000, 1_000_000),
    "pages": (100, 300, 1_000),
}
Works = dict[str, float]
"""Milliseconds by what took them."""


def by_memories(size: int) -> Works:
    """One agent with so many: a guarded change, its ledger, and its whole context."""
    with scratch():
        agent = make_agent()
        keys = open_keys(agent)
        ids = write_ledger(agent, keys, size)
        turns = count()

        def change() -> list[float]:
            turn = next(turns)
            changes = [(turn + 1, text_of(turn).replace("spoke", f"{'really ' * (n + 1)}spoke")) for n in range(BATCH)]
            return change_guarded(agent, ids, changes)

        changed = sorted(each for _ in range(ROUNDS) for each in change())
        read = medians(
            3 if size > 10_000 else ROUNDS,
            ledger=lambda: _ended(lambda: read_entries(agent.id, keys)),
            context=lambda: _ended(lambda: memory_context(None, read_entries(agent.id, keys), [], None)),
        )
        if len(read_entries(agent.id, keys)) != size:
            raise RuntimeError("not the whole ledger")
        end_reading()
    return {
        "a guarded change": changed[len(changed) // 2],
        "loading the ledger": read["ledger"],
        "a prompt's context of it": read["context"],
    }


def by_agents(size: int) -> Works:
    """An account with so many, of every kind: what the tick asks, the overview and the list."""
    with scratch() as app:
        due_agents.fill_agents(size, size)
        at = now()
        client = _signed_in(app)
        taken = medians(
            ROUNDS,
            due=lambda: due_agents.first_due(due_by_schedule, at),
            overview=lambda: _get(client, "/"),
            agents=lambda: _get(client, "/agents"),
        )
    return {"the first 100 due": taken["due"], "the overview": taken["overview"], "the list of agents": taken["agents"]}


def by_entries(size: int) -> Works:
    """An audit log with so many: its first page, and one in its middle."""
    with scratch(Part.WEB) as app:
        app.extensions["clock"] = FakeClock(BEGAN - timedelta(days=1))
        write_log(size)
        app.extensions["clock"] = SystemClock()
        whole = audit_page.whole_log(Filters(1))
        places = audit_page.places(size // 2)
        taken = medians(ROUNDS, first=lambda: audit_page.load(whole), middle=lambda: audit_page.load(whole, places[0]))
    return {"the audit log's first page": taken["first"], "its page at half its depth": taken["middle"]}


def by_pages(size: int) -> Works:
    """So many open pages on one web process: an event's way to the last, and another page meanwhile."""
    command = [sys.executable, "-m", "benchmarks.event_stream", str(size)]
    said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=300).stdout
    event = re.search(r"median ([\d.]+) ms", said)
    page = re.search(r"another page, median +([\d.]+) ms", said)
    if event is None or page is None:
        raise RuntimeError(f"not all figures are in: {said}")
    return {"an event to the last page": float(event[1]), "another page meanwhile": float(page[1])}


AXES: dict[str, Callable[[int], Works]] = {
    "memories": by_memories,
    "agents": by_agents,
    "entries": by_entries,
    "pages": by_pages,
}


def measure(sizes: dict[str, Sequence[int]]) -> Iterator[Figure]:
    for axis, wanted in sizes.items():
        yield from _grown(axis, {size: AXES[axis](size) for size in wanted})


def _grown(axis: str, measured: dict[int, Works]) -> Iterable[Figure]:
    smallest = min(measured)
    for what in measured[smallest]:
        for size, works in measured.items():
            base = {} if size == smallest else {"beside": f"{smallest:,}", "base": measured[smallest][what]}
            yield Figure(f"{what}, {size:,} {axis}", works[what], "ms", **base)


def _ended(work: Callable[[], object]) -> None:
    work()
    end_reading()


def _signed_in(app: Flask) -> FlaskClient:
    user = make_user("owner@example.org", OWNER)
    web = create_app(app.extensions["settings"], part=Part.WEB)
    client = web.test_client()
    with client.session_transaction() as session:
        session.update(_user_id=cookie_id(user), _fresh=True, fs_cc="set")
    db.session.rollback()
    return client


def _get(client: FlaskClient, path: str) -> None:
    answer = client.get(path)
    if answer.status_code != 200:
        raise RuntimeError(f"{path}: {answer.status}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for axis in AXES:
        parser.add_argument(f"--{axis}", type=int, nargs="+", default=[])
    parser.add_argument("--json", action="store_true")
    given = vars(parser.parse_args())
    as_json = given.pop("json")
    named = {axis: sizes for axis, sizes in given.items() if sizes}
    print_figures(measure(named or dict(USUAL)), as_json=as_json)


if __name__ == "__main__":
    main()
