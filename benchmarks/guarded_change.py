"""A guarded mutation (fence, rules, change, audit, latch, event, commit) against the same statements written by hand.

Both sides update one memory of the same agent in the same database with the same triggers and the same cryptography,
in turn; the hand-written side knows no rules beyond its WHERE clauses. Prints medians and their ratio: of processor
time on SQLite, where all of it is this process's, else of wall time.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from app import Part, create_app
from app.events.broker import StreamWaker
from app.extensions import db, writing
from app.keys.agent_keys import open_keys
from app.models import Agent, Refinement, Status
from app.silo import AgentKeys
from app.values.token_mass import estimate_tokens
from benchmarks.scratch import milliseconds
from tests.support.databases import Template
from tests.support.factories import Running, begin, make_agent, remember

ROUNDS = 30
BATCH = 8
"""Changes a refinement: under the cap, so that a refinement is begun outside the clock."""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        template = Template(Path(folder) / "template")
        copy = Path(folder) / "data"
        copy.mkdir()
        with template.copy(copy) as settings:
            app = create_app(settings, part=Part.COMMAND_LINE)
            app.extensions["master_key"] = template.master_key
            StreamWaker(app).start()  # as a worker does
            with app.app_context():
                _report(db.engine.dialect.name)
                db.session.remove()
                db.engine.dispose()
        template.drop()


def _report(database: str) -> None:
    print(f"database: {database}; {ROUNDS} rounds of {BATCH} changes a side; medians of one change")
    found = measure(100, 10_000)
    for size, (guarded, by_hand) in found.items():
        print(
            f"{size:>6} memories: guarded {guarded * 1000:6.2f} ms, by hand {by_hand * 1000:6.2f} ms, "
            f"ratio {guarded / by_hand:.2f} (at most {5 if database == 'sqlite' else 2})"
        )
    ratio = found[10_000][0] / found[100][0]
    print(f"10,000 over 100 memories, guarded: ratio {ratio:.2f} (at most 1.2)")


def measure(*sizes: int) -> dict[int, tuple[float, float]]:
    """Seconds of one change, guarded and by hand, of an agent with so many memories; within the app's context.

    All agents in turn within each round, so that what else the machine does falls on all of them.
    """
    agents = [_filled(size) for size in sizes]
    taken: dict[int, tuple[list[float], list[float]]] = {size: ([], []) for size in sizes}
    for turn in range(ROUNDS):
        for (agent, ids), sinks in zip(agents, taken.values(), strict=True):
            for side, sink in zip((_guarded, _by_hand), sinks, strict=True):
                run = begin(agent)
                sink += [_timed(side(run, ids[turn % 50], _reworded(turn % 50, n))) for n in range(BATCH)]
                _end(run)
    return {
        size: (statistics.median(guarded), statistics.median(by_hand)) for size, (guarded, by_hand) in taken.items()
    }


def _filled(size: int) -> tuple[Agent, list[int]]:
    """An agent with so many memories, and their ids."""
    agent = make_agent(f"agent-{size}")
    texts = (f"Memory number {n}: we spoke about the harbour and the price of tin." for n in range(size))
    return agent, remember(agent, *texts)


def _reworded(number: int, turn: int) -> str:
    """Another text at every turn, that says the same."""
    filler = "really " * (1 + turn)
    return f"Memory number {number}: we {filler}spoke about the harbour and the price of tin."


def _timed(work: Callable[[], None]) -> float:
    return milliseconds(work) / 1000


def _guarded(run: Running, number: int, content: str) -> Callable[[], None]:
    def change() -> None:
        result = run.tool.execute("update", id=number, content=content)
        if result["type"] != "updated":
            raise RuntimeError(result)

    return change


def _by_hand(run: Running, number: int, content: str) -> Callable[[], None]:
    with writing():
        keys = open_keys(Agent.lock(run.agent.id))

    def change() -> None:
        connection = db.engine.raw_connection()
        try:
            _statements(connection.driver_connection, run, number, content, keys)
        finally:
            connection.close()

    return change


def _statements(connection: Any, run: Running, number: int, content: str, keys: AgentKeys) -> None:
    """The least that does the same: twelve statements and the same sealing and hashing."""
    sqlite = db.engine.dialect.name == "sqlite"
    mark = "?" if sqlite else "%s"
    lock = "" if sqlite else " FOR NO KEY UPDATE"
    cursor = connection.cursor()

    def run_sql(statement: str, *values: Any) -> Any:
        return cursor.execute(statement.replace("?", mark), values)

    cursor.execute("BEGIN IMMEDIATE") if sqlite else None
    moment = time.strftime("%Y-%m-%d %H:%M:%S.000000")
    run_sql(
        "UPDATE refinements SET mutations = mutations + 1 WHERE id = ? AND status = 'running' AND worker = ?"
        " AND mutations < cap RETURNING kept_mass, mass_before, threshold",
        run.refinement.id,
        run.claim.worker,
    )
    kept_mass, mass_before, threshold = cursor.fetchone()
    run_sql(f"SELECT audit_sequence, audit_head, uuid FROM agents WHERE id = ?{lock}", run.agent.id)
    sequence, head, agent_uuid = cursor.fetchone()
    run_sql(
        "SELECT type, content_digest, token_estimate, constitutional, tags, origin_at, other_dates, merged_sources,"
        " merges, source, created_at, version, entry_id FROM memories"
        f" WHERE id = ? AND agent_id = ? AND discarded_at IS NULL AND NOT constitutional{lock}",
        number,
        run.agent.id,
    )
    type_, _, before, constitutional, tags, origin, dates, *found = cursor.fetchone()
    sources, merges, source, created, version, entry = found
    run_sql("SELECT sealed FROM content_keys WHERE memory_id = ?", number)
    (content_key,) = cursor.fetchone()
    made, weight = keys.seal_memory(number, content, bytes(content_key)), estimate_tokens(content)
    sealed, content_hash, _ = made.check_whole()
    tags, dates = (found if isinstance(found, str) else json.dumps(found) for found in (tags, dates))
    data = json.dumps({"id": number, "tokens": [before, weight]})
    digest = sha256(f"{sequence}{data}{moment}".encode() + bytes(head) + made.digest).digest()
    run_sql(
        "INSERT INTO audit_log (chain, sequence, account_id, agent_id, actor_kind, actor, action, subject,"
        " refinement_id, data, at, previous_hash, hash) VALUES (?, ?, 1, ?, 'agent', 'agent:x',"
        " 'memory_refinement_update', ?, ?, ?, ?, ?, ?) RETURNING id",
        f"agent:{agent_uuid}",
        sequence + 1,
        run.agent.id,
        f"memory:{number}",
        run.refinement.id,
        data,
        moment,
        bytes(head),
        digest,
    )
    (new_entry,) = cursor.fetchone()
    run_sql(
        "INSERT INTO memory_texts (memory_id, content_digest, agent_id, sealed, content_hash) VALUES (?, ?, ?, ?, ?)",
        number,
        made.digest,
        run.agent.id,
        sealed.at_rest,
        content_hash,
    )
    run_sql(
        "UPDATE memories SET content_digest = ?, token_estimate = ?, updated_at = ?, version = ?, entry_id = ?"
        " WHERE id = ?",
        made.digest,
        weight,
        moment,
        version + 1,
        new_entry,
        number,
    )
    run_sql(
        "INSERT INTO memory_states (memory_id, entry_id, previous_entry_id, kept, type, content_digest,"
        " token_estimate, constitutional, tags, origin_at, other_dates, merged_sources, merges, source, created_at,"
        " updated_at, version) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        number,
        new_entry,
        entry,
        min(before, weight),
        type_,
        made.digest,
        weight,
        constitutional,
        tags,
        origin,
        dates,
        sources,
        merges,
        source,
        created,
        moment,
        version + 1,
    )
    run_sql(
        "UPDATE agents SET audit_sequence = ?, audit_head = ?, core_token_usage = core_token_usage + ? WHERE id = ?",
        sequence + 1,
        digest,
        weight - before,
        run.agent.id,
    )
    kept_mass += min(before, weight) - before
    run_sql("UPDATE refinements SET kept_mass = ?, updated = updated + 1 WHERE id = ?", kept_mass, run.refinement.id)
    if kept_mass * 10_000 < threshold * mass_before:
        raise RuntimeError("the latch would trip")
    run_sql(
        "INSERT INTO events (account_id, agent_id, refinement_id, kind, data, at)"
        " VALUES (1, ?, ?, 'refinement.operation', ?, ?)",
        run.agent.id,
        run.refinement.id,
        data,
        moment,
    )
    connection.commit()


def _end(run: Running) -> None:
    with writing():
        row = Refinement.lock(run.refinement.id)
        row.end(Agent.lock(run.agent.id), Status.UNFINISHED)


if __name__ == "__main__":
    main()
