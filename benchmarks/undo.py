"""An undo of 500 changes (plan, conflicts, states, chain, totals, commit) against set-based SQL written by hand.

Both sides give 500 memories of an agent of their own the states that they had before, and back again, in turn, in the
same database with the same triggers. The hand-written side looks for conflicts, but computes no hash over the states
and knows no flags. Prints medians and their ratio: of processor time on SQLite, else of wall time.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Connection, text

from app import Part, create_app
from app.extensions import db, now, writing
from app.history.plan import Target
from app.history.undo import roll_back
from app.history.verify import verify
from app.models import COMMAND_LINE, Agent, Mode, Refinement, Status, Trigger
from app.models.state import STATE_FIELDS
from app.refinement.dedup import remove_exact_duplicates
from app.refinement.start import start_refinement
from benchmarks.scratch import clock_name
from tests.support.databases import Template
from tests.support.factories import make_agent, remember

CHANGES = 500
ROUNDS = 15


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        template = Template(Path(folder) / "template")
        copy = Path(folder) / "data"
        copy.mkdir()
        with template.copy(copy) as settings:
            app = create_app(settings, part=Part.COMMAND_LINE)
            app.extensions["master_key"] = template.master_key
            with app.app_context():
                _report(db.engine.dialect.name)
                db.session.remove()
                db.engine.dispose()
        template.drop()


def _report(database: str) -> None:
    found = measure()
    slow, fast = found["undo"], found["by_hand"]
    print(f"database: {database}; {ROUNDS} rounds of {CHANGES} changes; medians")
    print(f"undo {slow * 1000:.1f} ms, by hand {fast * 1000:.1f} ms, ratio {slow / fast:.2f} (at most 2)")


def measure() -> dict[str, float]:
    """Seconds of one, as an `undo` and `by_hand`; within the app's context."""
    refinement_id, mine = _with_duplicates("undone")
    _, other = _with_duplicates("by hand")
    latest = Target.refinement(refinement_id)
    undos, by_hand, clock = [], [], getattr(time, clock_name())
    for _ in range(ROUNDS):
        began = clock()
        done = roll_back(latest, by=COMMAND_LINE)
        undos.append(clock() - began)
        if done.rollback is None or len(done.plan.changes) != CHANGES:
            raise RuntimeError(f"{len(done.plan.changes)} changes")
        latest = Target.rollback(done.rollback.id)
        by_hand.append(_timed(lambda connection: _by_hand(connection, other)))
    verdict = verify(db.session.get_one(Agent, mine))
    if not verdict.ok:
        raise RuntimeError(verdict.first_problem)
    return {"undo": statistics.median(undos), "by_hand": statistics.median(by_hand)}


def _with_duplicates(name: str) -> tuple[str, int]:
    """An agent with 500 memories and the refinement that removed a second copy of each."""
    agent = make_agent(name)
    texts = [f"Memory number {n}: we spoke about the harbour and the price of tin." for n in range(CHANGES)]
    moment = now()
    for _ in range(2):
        remember(agent, *texts, at=moment)  # a copy of another date would change the one that stays, too
    refinement_id = start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE, mode=Mode.DEDUP_ONLY).id
    with writing():
        refinement = Refinement.lock(refinement_id)
        locked = Agent.lock(agent.id)
        remove_exact_duplicates(refinement, locked)

        refinement.end(locked, Status.COMPLETED)
    return refinement_id, agent.id


def _timed(work: Callable[[Connection], None]) -> float:
    clock = getattr(time, clock_name())
    began = clock()
    with db.engine.connect().execution_options(whetstone_writes=True) as connection:
        work(connection)
        connection.commit()
    return float(clock() - began)


_COLUMNS = ", ".join(STATE_FIELDS)
_ENTRY = (
    "INSERT INTO audit_log (chain, sequence, account_id, agent_id, actor_kind, actor, action, subject, data, at,"
    " previous_hash, hash) SELECT 'agent:' || uuid, audit_sequence + 1, account_id, id, 'system', 'system:hand',"
    " 'memory_rollback', 'by hand', '{{}}', created_at, audit_head, {hash} FROM agents WHERE id = :agent RETURNING id"
)
_STATES = (
    f"INSERT INTO memory_states (memory_id, entry_id, previous_entry_id, {_COLUMNS})"
    f" SELECT m.id, :entry, m.entry_id, {', '.join('p.' + name for name in STATE_FIELDS)}"
    " FROM memories m JOIN memory_states s ON s.memory_id = m.id AND s.entry_id = m.entry_id"
    " JOIN memory_states p ON p.memory_id = m.id AND p.entry_id = s.previous_entry_id WHERE m.agent_id = :agent"
)
_CONFLICTS = (
    "SELECT count(*) FROM memories m JOIN memory_states s ON s.memory_id = m.id AND s.entry_id = m.entry_id"
    " JOIN audit_log a ON a.id = s.entry_id WHERE m.agent_id = :agent AND s.previous_entry_id IS NOT NULL"
    " AND a.action NOT IN ('memory_dedup', 'memory_rollback')"
)
_MEMORIES = (
    f"UPDATE memories SET {', '.join(f'{name} = s.{name}' for name in STATE_FIELDS)}, entry_id = s.entry_id"
    " FROM memory_states s WHERE s.entry_id = :entry AND memories.id = s.memory_id"
)
_TOTALS = (
    "UPDATE agents SET audit_sequence = audit_sequence + 1, audit_head = {hash},"
    " core_token_usage = (SELECT coalesce(sum(token_estimate), 0) FROM memories WHERE agent_id = :agent"
    " AND discarded_at IS NULL AND type = 'core'), core_count = (SELECT count(*) FROM memories WHERE agent_id = :agent"
    " AND discarded_at IS NULL AND type = 'core') WHERE id = :agent"
)


def _by_hand(connection: Connection, agent_id: int) -> None:
    """The least that does the same: five statements. Each call takes the states back and forth."""
    sqlite = connection.dialect.name == "sqlite"
    value = "CAST(:hash AS BLOB)" if sqlite else "CAST(:hash AS bytea)"
    named = {"agent": agent_id, "hash": os.urandom(32)}
    if not sqlite:
        connection.execute(text("SELECT 1 FROM agents WHERE id = :agent FOR NO KEY UPDATE"), {"agent": agent_id})
    if connection.scalar(text(_CONFLICTS), {"agent": agent_id}):
        raise RuntimeError("a conflict")
    entry = connection.scalar(text(_ENTRY.format(hash=value)), named)
    done = connection.execute(text(_STATES), {"entry": entry, "agent": agent_id})
    connection.execute(text(_MEMORIES), {"entry": entry})
    connection.execute(text(_TOTALS.format(hash=value)), named)
    if done.rowcount != CHANGES:
        raise RuntimeError(f"{done.rowcount} changes")


if __name__ == "__main__":
    main()
