"""A scratch installation for a benchmark, on SQLite or on the server of WHETSTONE_TEST_DATABASE_URL."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flask import Flask

from app import Part, create_app
from app.extensions import WRITES, db
from benchmarks.figures import Figure, print_figures
from tests.support.databases import Template


@contextmanager
def scratch(part: Part = Part.COMMAND_LINE, **settings: object) -> Iterator[Flask]:
    """Its app, in its context, with the master key; all of it is gone after."""
    with tempfile.TemporaryDirectory() as folder:
        template = Template(Path(folder) / "template")
        copy = Path(folder) / "data"
        copy.mkdir()
        try:
            with template.copy(copy, **settings) as given:
                app = create_app(given, part=part)
                app.extensions["master_key"] = template.master_key
                with app.app_context():
                    yield app
                    db.session.remove()
                    _spoil()
                    db.engine.dispose()
        finally:
            template.drop()


def _spoil() -> None:
    """A server's database with a table more is dropped, not emptied for the next test row by row."""
    if not is_sqlite():
        with db.engine.execution_options(**WRITES).begin() as connection:
            connection.exec_driver_sql("CREATE TABLE of_a_benchmark (id integer)")


def medians(rounds: int, **works: Callable[[], object]) -> Mapping[str, float]:
    """Milliseconds of each, run in turn, so that whatever else the machine does meanwhile falls on all of them."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            taken[name].append(milliseconds(work))
    return {name: statistics.median(each) for name, each in taken.items()}


def milliseconds(work: Callable[[], object], clock_of: str = "") -> float:
    """By the clock of this name in `time`, or else by the one of this database."""
    clock = getattr(time, clock_of or clock_name())
    began = clock()
    work()
    return float(clock() - began) * 1000


def clock_name() -> str:
    """Processor time on SQLite, where all of the work is this process's; else wall time. Peers are told which."""
    return "process_time" if is_sqlite() else "perf_counter"


def run(measure: Callable[..., list[Figure]], doc: str | None, **sizes: int) -> None:
    """The command line of a benchmark: an option for each size, and `--json` for the table."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, size in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--json", action="store_true", help="figures as one line of JSON")
    given: dict[str, Any] = vars(parser.parse_args())
    as_json = given.pop("json")
    print_figures(measure(**given), as_json=as_json)


def is_sqlite() -> bool:
    return db.engine.dialect.name == "sqlite"
