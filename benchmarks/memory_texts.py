"""What it costs to keep each memory's text under a key of its own: a ledger, a save and a guarded change.

`python -m benchmarks.memory_texts --against FOLDER` measures the same with another checkout, in turn and several times,
and prints the ratios of the medians. FOLDER is a checkout of the commit to compare with, with the same database server.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from app import Part, create_app
from app.asking.prompt_memories import read_entries
from app.extensions import db, end_reading, writing
from app.models import Agent, Memory, Refinement, Status
from tests.support.databases import Template
from tests.support.factories import begin, make_agent, remember

try:
    from app.keys.agent_keys import open_keys
except ImportError:  # a checkout from before the log of statements
    from app.models.key import open_keys  # type: ignore[no-redef, attr-defined]

MEMORIES = 10_000
LEDGERS = 5
SAVES = 200
ROUNDS = 12
BATCH = 8
"""Changes a refinement: under the cap."""

TURNS = 3

MOST = {"ledger": 1.3, "save": 1.2, "change": 1.1}

Seconds = dict[str, float]


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--against", type=Path, help="another checkout")
    options.add_argument("--measure", action="store_true", help="print one measurement as JSON")
    chosen = options.parse_args()
    if chosen.measure:
        with _installation():
            print(json.dumps(_measure()))
        return
    here = Path(__file__).resolve().parent.parent
    mine, others = list[Seconds](), list[Seconds]()
    for _ in range(TURNS if chosen.against else 1):
        mine.append(_measure_in(here))
        others += [_measure_in(chosen.against.resolve())] if chosen.against else []
    for name, most in MOST.items():
        now = statistics.median(each[name] for each in mine)
        line = f"{name:>7}: {now * 1000:8.2f} ms"
        if others:
            before = statistics.median(each[name] for each in others)
            line += f", before {before * 1000:8.2f} ms, ratio {now / before:.2f} (at most {most})"
        print(line)


def _measure_in(folder: Path) -> Seconds:
    command = [sys.executable, "-P", str(Path(__file__).resolve()), "--measure"]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    found: Seconds = json.loads(done.stdout.strip().splitlines()[-1])
    return found


@contextmanager
def _installation() -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder:
        template = Template(Path(folder) / "template")
        copy = Path(folder) / "data"
        copy.mkdir()
        with template.copy(copy) as settings:
            app = create_app(settings, part=Part.COMMAND_LINE)
            app.extensions["master_key"] = template.master_key
            with app.app_context():
                yield
                db.session.remove()
                db.engine.dispose()
        template.drop()


def _measure() -> Seconds:
    agent = make_agent()
    texts = (f"Memory number {n}: we spoke about the harbour and the price of tin. " * 3 for n in range(MEMORIES))
    ids = remember(agent, *texts)
    keys = open_keys(agent)

    def read_ledger() -> None:
        if len(read_entries(agent.id, keys)) != MEMORIES:
            raise RuntimeError("not all of the ledger")
        end_reading()

    ledger = _median(read_ledger for _ in range(LEDGERS))
    return {"ledger": ledger, "save": _time_saves(), "change": _time_changes(agent, ids)}


def _time_saves() -> float:
    agent = make_agent("saver")
    remember(agent, "The first one.")
    keys = open_keys(agent)

    def save(n: int) -> Callable[[], None]:
        def work() -> None:
            with writing():
                locked = Agent.lock(agent.id)
                Memory.save(locked, f"Number {n}: the price of tin.", keys=keys, by=locked.as_actor)

        return work

    return _median(save(n) for n in range(SAVES))


def _time_changes(agent: Agent, ids: list[int]) -> float:
    spent = list[float]()
    for turn in range(ROUNDS):
        run = begin(agent)
        for n in range(BATCH):
            content = f"Memory number {turn}: we {'really ' * (1 + n)}spoke about the harbour and the price of tin."
            started = time.perf_counter()
            done = run.tool.execute("update", id=ids[turn], content=content)
            spent.append(time.perf_counter() - started)
            if done["type"] != "updated":
                raise RuntimeError(done)
        with writing():
            row = Refinement.lock(run.refinement.id)
            row.end(Agent.lock(agent.id), Status.UNFINISHED)
    return statistics.median(spent)


def _median(works: Iterator[Callable[[], None]]) -> float:
    spent = list[float]()
    for work in works:
        started = time.perf_counter()
        work()
        spent.append(time.perf_counter() - started)
    return statistics.median(spent)


if __name__ == "__main__":
    main()
