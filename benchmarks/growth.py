"""How fast the database grows: bytes a memory, a kept state, an audit entry, an event, a refinement, with indexes.

Nothing of it is ever removed by the product, so that these figures times the use of years is what a disk has to hold.
Not a comparison: `docs/operations.md` tells the figures.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import text

from app import Part, create_app
from app.asking.calls import Dependencies
from app.exchange.file_text import parse_lines
from app.exchange.parsed import ImportFormat, ParsedFile
from app.exchange.taking_in import bring_in
from app.extensions import db, writing
from app.history.verify import verify
from app.keys.agent_keys import open_keys
from app.models import COMMAND_LINE, Agent, Memory, MemoryType, Status, Trigger
from app.refinement.process import run_refinement
from app.refinement.start import start_refinement
from tests.support.databases import Template
from tests.support.factories import make_agent
from tests.support.scripted import ScriptedClient, ScriptedClients, call, say

AGENTS = 10
MEMORIES = 5_000
LENGTH = 200
"""Characters of a memory."""

REFINEMENTS = 200
"""Each with three updates, a consolidation of two and a deletion."""

ENTRIES = 2_000
"""That concern no memory, as of settings and sign-ins."""

SEED = 5


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        template = Template(Path(folder) / "template")
        copy = Path(folder) / "data"
        copy.mkdir()
        with template.copy(copy) as settings:
            app = create_app(settings, part=Part.COMMAND_LINE)
            app.extensions["master_key"] = template.master_key
            with app.app_context():
                _report()
                db.session.remove()
                db.engine.dispose()
        template.drop()


@dataclass(frozen=True)
class Size:
    """Bytes with indexes, and rows, by table."""

    size: Mapping[str, int]
    rows: Mapping[str, int]

    def since(self, before: Size) -> Size:
        return Size(_less(self.size, before.size), _less(self.rows, before.rows))

    def a_row(self, table: str) -> float:
        return self.size[table] / self.rows[table]

    @property
    def total(self) -> int:
        return sum(self.size.values())


def _report() -> None:
    print(
        f"database: {db.engine.dialect.name}; {MEMORIES:,} memories of {LENGTH} characters, {REFINEMENTS} refinements"
    )
    chance = random.Random(SEED)
    agents = [make_agent(f"agent {number}") for number in range(AGENTS)]
    empty = _measure()
    for agent in agents:
        _import(agent, chance)
    imported = _measure().since(empty)
    before = _measure()
    for number in range(REFINEMENTS):
        _refine(agents[number % AGENTS], chance)
    refined = _measure().since(before)
    before = _measure()
    for number in range(ENTRIES // 2):
        _pause_and_resume(agents[number % AGENTS])
    others = _measure().since(before)
    _say("an imported memory: its row and its first state", imported.total / MEMORIES)
    _say("  of which the row", imported.a_row("memories"))
    _say("  of which the state", imported.a_row("memory_states"))
    _say("a state that a change keeps", refined.a_row("memory_states"))
    _say("an audit entry of a refinement", refined.a_row("audit_log"))
    _say("another audit entry", others.a_row("audit_log"))
    _say(
        "an event", (refined.size["events"] + others.size["events"]) / (refined.rows["events"] + others.rows["events"])
    )
    entries, events = refined.rows["audit_log"] / REFINEMENTS, refined.rows["events"] / REFINEMENTS
    _say(f"a refinement of five changes: {entries:.0f} entries, {events:.0f} events", refined.total / REFINEMENTS)
    verdict = verify()
    if not verdict.ok:
        raise RuntimeError(verdict.first_problem)


def _say(what: str, size: float) -> None:
    print(f"{size:>8,.0f} bytes  {what}")


def _import(agent: Agent, chance: random.Random) -> None:
    lines = [json.dumps({"content": _text(chance), "type": "core"}) for _ in range(MEMORIES // AGENTS)]
    with writing():
        keys = open_keys(Agent.lock(agent.id))
    bring_in(agent.id, ParsedFile(ImportFormat.JSON_LINES, parse_lines(lines)), keys=keys, by=COMMAND_LINE)


def _refine(agent: Agent, chance: random.Random) -> None:
    """Five changes that lose nothing: the Knife asks about any other."""
    keys = open_keys(agent)
    picked = chance.sample(list(db.session.scalars(Memory.active(agent.id, MemoryType.CORE))), 6)
    texts = {row.id: keys.reveal_memory(row.id, row.content) for row in picked}
    ids = list(texts)
    db.session.rollback()
    client = ScriptedClient(
        say("YES"),
        *(call("update_memory", id=number, content=_ended_otherwise(texts[number])) for number in ids[:2]),
        call("update_memory", id=ids[2], content=_joined(texts[ids[2]], texts[ids[5]])),
        call("consolidate_memories", ids=ids[3:5], content=_joined(texts[ids[3]], texts[ids[4]])),
        call("delete_memory", id=ids[5], carried_by=ids[2]),
        call("complete_refinement", summary=_text(chance)),
    )
    refinement = start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE)
    run_refinement(refinement.id, Dependencies(ScriptedClients(client), pause=lambda _: None))
    db.session.refresh(refinement)
    if refinement.status != Status.COMPLETED or refinement.mutations != 5:
        raise RuntimeError(f"{refinement.status}: {refinement.reason}")


def _pause_and_resume(agent: Agent) -> None:
    for act in (Agent.pause, Agent.resume):
        with writing():
            act(Agent.lock(agent.id), by=COMMAND_LINE)


def _text(chance: random.Random) -> str:
    return "".join(chance.choices("abcdefghijklmnopqrstuvwxyz    ", k=LENGTH - 1)).strip().ljust(LENGTH, ".")


def _ended_otherwise(text: str) -> str:
    return text[:-1] + ("." if text.endswith("!") else "!")


def _joined(one: str, other: str) -> str:
    return f"{one[:-1]} {other}"


def _measure() -> Size:
    db.session.rollback()
    if db.engine.dialect.name == "sqlite":
        query = "SELECT m.tbl_name, sum(s.pgsize) FROM dbstat s JOIN sqlite_master m ON m.name = s.name GROUP BY 1"
        clean = "PRAGMA wal_checkpoint(TRUNCATE)"
    else:
        query = "SELECT relname, pg_total_relation_size(relid) FROM pg_stat_user_tables WHERE schemaname = 'public'"
        clean = "VACUUM ANALYZE"
    with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(clean))
        sizes = {table: int(size) for table, size in connection.execute(text(query))}
        rows = {table: connection.scalar(text(f"SELECT count(*) FROM {table}")) or 0 for table in sizes}
    return Size(sizes, rows)


def _less(now: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    return {table: count - before.get(table, 0) for table, count in now.items()}


if __name__ == "__main__":
    main()
