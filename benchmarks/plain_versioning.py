"""A guarded change beside the plain versioned update of one row by SQLAlchemy-Continuum and by django-simple-history.

    python -m benchmarks.plain_versioning [--rounds N] [--no-peers] [--json]

Ours knows rules, seals the text, counts, keeps the state, writes the audit entry and its hash, and announces it; theirs
loads a row of as many columns, changes its text and keeps the version before. One commit each, in the same kind of
database with the same settings (but for `secure_delete`, which is ours alone); batches of each in turn, each peer in a
process and an environment of its own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
from sqlalchemy.engine import make_url

from app.extensions import db, writing
from app.models import Agent, Refinement, Status
from benchmarks.figures import Figure, print_figures
from benchmarks.peers.environments import Peer, PeerUnavailable
from benchmarks.scratch import clock_name, is_sqlite, milliseconds, scratch
from tests.support.databases import SERVER
from tests.support.factories import begin, make_agent, remember

ROWS = 100
BATCH = 8
"""Changes a refinement: under the cap, so that a refinement is begun outside the clock."""

PRAGMAS = "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA busy_timeout=5000; PRAGMA foreign_keys=ON;"
Changes = Sequence[tuple[int, str]]


def measure(rounds: int = 20, *, peers: bool = True) -> list[Figure]:
    texts = [f"Memory number {n}: we spoke about the harbour and the price of tin." for n in range(1, ROWS + 1)]
    with scratch(), ExitStack() as stack:
        if is_sqlite():
            with db.engine.connect() as connection:
                assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 1, "peers are to have the same"
        agent = make_agent()
        ids = remember(agent, *texts)
        ours, theirs = list[float](), dict[str, list[float]]()
        started, missing = _start(stack, texts) if peers else ({}, dict.fromkeys(_STARTED, "--no-peers"))
        for turn in range(rounds):
            changes = [(turn % 50 + 1, _reworded(turn % 50 + 1, n)) for n in range(BATCH)]
            ours += change_guarded(agent, ids, changes)
            for name, peer in started.items():
                theirs.setdefault(name, []).extend(peer.ask(do="update", changes=changes, clock=clock_name())["ms"])
    mine = statistics.median(ours)
    figures = [
        Figure(f"beside {name}", mine, "ms", f"{name}'s update", statistics.median(spent), most_ratio=1)
        for name, spent in theirs.items()
    ]
    return [*figures, *(Figure(f"beside {name}", reason=why) for name, why in missing.items())]


def _reworded(number: int, turn: int) -> str:
    """Another text at every turn, that says the same."""
    return f"Memory number {number}: we {'really ' * (1 + turn)}spoke about the harbour and the price of tin."


def change_guarded(agent: Agent, ids: Sequence[int], changes: Changes) -> list[float]:
    run = begin(agent)

    def change(number: int, content: str) -> Callable[[], None]:
        def work() -> None:
            result = run.tool.execute("update", id=ids[number - 1], content=content)
            if result["type"] != "updated":
                raise RuntimeError(result)

        return work

    spent = [milliseconds(change(number, content)) for number, content in changes]
    with writing():
        row = Refinement.lock(run.refinement.id)
        row.end(Agent.lock(agent.id), Status.UNFINISHED)
    return spent


def _start(stack: ExitStack, texts: Sequence[str]) -> tuple[dict[str, Peer], dict[str, str]]:
    """Those that run, with as many rows as ours; and why the others do not."""
    started, missing = dict[str, Peer](), dict[str, str]()
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    for name, command in _STARTED.items():
        database = stack.enter_context(scratch_database(folder, name))
        try:
            peer = stack.enter_context(Peer(name, *command(database)))
            peer.ask(do="fill", contents=texts)
        except PeerUnavailable as error:
            missing[name] = str(error)
        else:
            started[name] = peer
    return started, missing


@contextmanager
def scratch_database(folder: Path, name: str) -> Iterator[str]:
    """The address of an empty database, of the kind that ours is."""
    if is_sqlite():
        yield f"sqlite:///{folder / name}.db"
        return
    url, scratch_name = make_url(SERVER).set(drivername="postgresql"), f"wt_peer_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {scratch_name}")  # type: ignore[call-overload]
        try:
            made = url.set(drivername="postgresql+psycopg", database=scratch_name)
            yield made.render_as_string(hide_password=False)
        finally:
            connection.execute(f"DROP DATABASE {scratch_name} WITH (FORCE)")  # type: ignore[call-overload]


def _continuum(database: str) -> tuple[str, ...]:
    return "sqlalchemy_continuum_site.py", database, PRAGMAS


def _simple_history(database: str) -> tuple[str, ...]:
    url = make_url(database)
    if url.get_backend_name() == "sqlite":
        options = {"init_command": PRAGMAS, "transaction_mode": "IMMEDIATE"}
        settings = {"ENGINE": "django.db.backends.sqlite3", "NAME": url.database, "OPTIONS": options}
    else:
        settings = {"ENGINE": "django.db.backends.postgresql", "NAME": url.database, "USER": url.username or ""}
        settings |= {"HOST": url.host or "", "PORT": str(url.port or ""), "PASSWORD": url.password or ""}
    return "django_simple_history_site.py", json.dumps(settings)


_STARTED = {"sqlalchemy-continuum": _continuum, "django-simple-history": _simple_history}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    print_figures(measure(given.rounds, peers=not given.no_peers), as_json=given.json)


if __name__ == "__main__":
    main()
