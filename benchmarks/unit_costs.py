"""What one refinement costs an installation: its own processor time, the server's, statements, WAL, bytes kept, locks.

`python -m benchmarks.unit_costs [--refinements N] [--changes 0 3]`. On PostgreSQL (`WHETSTONE_TEST_DATABASE_URL`) also
what the server itself spends; it has to run on this machine then. The model is a script in this process, so LiteLLM,
its provider and the waiting are left out: `benchmarks.in_flight` has those. Prints figures of one refinement, and
what `benchmarks.capacity` reckons with as JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event, text
from sqlalchemy.orm import Session

from app.asking.calls import Dependencies
from app.extensions import db
from app.history.verify import verify
from app.models import COMMAND_LINE, Refinement, Status, Trigger
from app.refinement.process import run_refinement
from app.refinement.start import start_refinement
from benchmarks.scratch import scratch
from tests.support.factories import make_agent, remember
from tests.support.scripted import ScriptedClient, ScriptedClients, call, say

MEMORIES = 100
AGENTS = 20
LOCKS = {
    "pg_advisory_xact_lock(:number)": "log_lock_ms",
    "pg_advisory_xact_lock(%(number)s": "log_lock_ms",
    "INSERT INTO events": "account_lock_ms",
}
"""By what a statement that takes it says: the figure that counts how long it is held, until its transaction ends."""


@dataclass(frozen=True)
class UnitCosts:
    """Of one refinement; milliseconds and bytes. What is not known of a database is None."""

    database: str
    changes: int
    own_cpu_ms: float
    server_cpu_ms: float | None
    statements: float
    transactions: float
    wal_bytes: float | None
    kept_bytes: float
    log_lock_ms: float | None
    """How long nobody else can append to the log of statements: one installation has one log."""
    account_lock_ms: float | None
    """How long nobody else of the account can announce an event."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--refinements", type=int, default=200)
    parser.add_argument("--changes", type=int, nargs="+", default=[0, 3])
    options = parser.parse_args()
    for costs in measure(options.refinements, options.changes):
        print(json.dumps(asdict(costs)))


def measure(refinements: int, changes: list[int]) -> list[UnitCosts]:
    """The costs of a refinement with each of these numbers of changes."""
    with scratch():
        fleet = _make_fleet()
        wordings = itertools.count()
        for agent_id in fleet:
            _refine(agent_id, fleet[agent_id], 1, wordings)
        return [_measure(fleet, refinements, each, wordings) for each in changes]


def _make_fleet() -> dict[int, list[int]]:
    """The ids of agents, each with those of its memories."""
    made = [make_agent(f"agent {number}") for number in range(AGENTS)]
    return {agent.id: remember(agent, *map(_text, range(MEMORIES))) for agent in made}


def _measure(fleet: dict[int, list[int]], refinements: int, changes: int, wordings: Iterator[int]) -> UnitCosts:
    kept, written, server = _kept_bytes(), _written_bytes(), _server_seconds()
    with _counted() as counts:
        began = time.process_time()
        for agent_id in itertools.islice(itertools.cycle(fleet), refinements):
            _refine(agent_id, fleet[agent_id], changes, wordings)
        own = time.process_time() - began
    db.session.rollback()
    spent = _less(_server_seconds(), server)
    wal = _less(_written_bytes(), written)
    verdict = verify()
    if not verdict.ok:
        raise RuntimeError(verdict.first_problem)
    is_server = db.engine.dialect.name != "sqlite"

    def of_one(total: float | None, factor: float = 1) -> float | None:
        return None if total is None else round(total * factor / refinements, 2)

    return UnitCosts(
        database=db.engine.dialect.name,
        changes=changes,
        own_cpu_ms=of_one(own, 1000) or 0,
        server_cpu_ms=of_one(spent, 1000),
        statements=of_one(counts["statements"]) or 0,
        transactions=of_one(counts["transactions"]) or 0,
        wal_bytes=of_one(wal),
        kept_bytes=of_one(_kept_bytes() - kept) or 0,
        log_lock_ms=of_one(counts["log_lock_ms"]) if is_server else None,
        account_lock_ms=of_one(counts["account_lock_ms"]) if is_server else None,
    )


def _text(number: int) -> str:
    return f"Memory number {number}: we spoke about the harbour and the price of tin, and went home before the rain."


def _refine(agent_id: int, ids: list[int], changes: int, wordings: Iterator[int]) -> None:
    """A YES, so many updates that lose nothing, in another wording than the last time, and the end."""
    wording = next(wordings)
    work = [call("update_memory", id=ids[place], content=_reworded(place, wording)) for place in range(changes)]
    client = ScriptedClient(say("YES"), *work, call("complete_refinement", summary="All is well."))
    refinement_id = start_refinement(agent_id, trigger=Trigger.ADMIN, by=COMMAND_LINE).id
    run_refinement(refinement_id, Dependencies(ScriptedClients(client), pause=lambda _: None))
    ended = db.session.get_one(Refinement, refinement_id, populate_existing=True)
    if ended.status != Status.COMPLETED or ended.mutations != changes:
        raise RuntimeError(f"{ended.status}: {ended.reason}, {ended.mutations} changes")
    db.session.rollback()


def _reworded(number: int, wording: int) -> str:
    return _text(number).replace("spoke", f"{'really ' * (1 + wording % 7)}spoke")


@contextmanager
def _counted() -> Iterator[dict[str, float]]:
    """Statements, transactions, and the milliseconds for which the shared locks are held."""
    counts: dict[str, float] = defaultdict(float)
    held: dict[int, dict[str, float]] = defaultdict(dict)

    def note_statement(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        counts["statements"] += not statement.startswith(("BEGIN", "PRAGMA"))

    def note_lock(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        for taken, figure in LOCKS.items():
            if taken in statement:
                held[threading.get_ident()].setdefault(figure, time.perf_counter())

    def note_end(_session: Session) -> None:
        counts["transactions"] += 1
        for figure, since in held.pop(threading.get_ident(), {}).items():
            counts[figure] += (time.perf_counter() - since) * 1000

    listeners: tuple[tuple[Any, str, Any], ...] = (
        (Engine, "before_cursor_execute", note_statement),
        (Engine, "after_cursor_execute", note_lock),
        (Session, "after_commit", note_end),
    )
    for listener in listeners:
        event.listen(*listener)
    try:
        yield counts
    finally:
        for listener in listeners:
            event.remove(*listener)


def _kept_bytes() -> int:
    """Of all tables with their indexes, once what no row needs is removed."""
    db.session.rollback()
    sqlite = db.engine.dialect.name == "sqlite"
    clean = "PRAGMA wal_checkpoint(TRUNCATE)" if sqlite else "VACUUM"
    size = "SELECT sum(pgsize) FROM dbstat" if sqlite else "SELECT pg_database_size(current_database())"
    with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(clean))
        return int(connection.scalar(text(size)) or 0)


def _written_bytes() -> int | None:
    """Of PostgreSQL's write-ahead log so far."""
    if db.engine.dialect.name == "sqlite":
        return None
    with db.engine.connect() as connection:
        return int(connection.scalar(text("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")) or 0)


def _server_seconds() -> float | None:
    """Processor time of the backends of this database, which run on this machine."""
    if db.engine.dialect.name == "sqlite":
        return None
    with db.engine.connect() as connection:
        pids = connection.scalars(text("SELECT pid FROM pg_stat_activity WHERE datname = current_database()")).all()
    return sum(_seconds_of(pid) for pid in pids)


def _seconds_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _less(now: float | None, before: float | None) -> float | None:
    return None if now is None or before is None else now - before


if __name__ == "__main__":
    main()
