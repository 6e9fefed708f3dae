"""What a weak model gets deleted: it repeats itself, invents ids, and deletes with carriers that it picks at random.

    python -m benchmarks.weak_models --data FOLDER [--deletions 300] [--seed 1]

On each of FOLDER's `ledgers/*.jsonl` (the format of `memories import`) it is given refinements of 30 turns, one after
another, until it has asked for so many different deletions, each with a carrier that exists. All go through the whole
process: consent, loop, Knife, guards. What was deleted is given back before the next refinement. Prints, a ledger, how
many deletions were asked for and made, and each pair that went through, to be read: what went, and what carried it.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import select

from app import Part, create_app
from app.asking.calls import Dependencies
from app.extensions import db
from app.history.plan import Target
from app.history.undo import roll_back
from app.keys.agent_keys import open_keys
from app.llm.client import Messages, Reply, ToolCall, Tools, Usage
from app.models import COMMAND_LINE, Action, Agent, AuditLog, Memory, MemoryType, Refinement, Trigger
from app.refinement.process import run_refinement
from app.refinement.start import start_refinement
from tests.support.databases import Template
from tests.support.factories import make_agent, remember

TURNS = 30
REPEATS, INVENTS = 0.4, 0.2
"""How often it sends its last call word for word, and how often one with an id that it made up."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--deletions", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        template = Template(Path(folder) / "template")
        copy = Path(folder) / "data"
        copy.mkdir()
        with template.copy(copy) as settings:
            app = create_app(settings, part=Part.COMMAND_LINE)
            app.extensions["master_key"] = template.master_key
            with app.app_context():
                for path in sorted((given.data / "ledgers").glob("*.jsonl")):
                    _measure(path, given.deletions, random.Random(given.seed))
                db.session.remove()
                db.engine.dispose()
        template.drop()


@dataclass
class WeakModel:
    """Implements ModelClient and ModelClients. `asked` are the deletions with two ids that exist."""

    ids: list[int]
    chance: random.Random
    asked: set[tuple[int, int]] = field(default_factory=set)
    sent: int = 0
    last: tuple[str, dict[str, Any]] | None = None

    def for_model(self, *_: object, **__: object) -> WeakModel:
        return self

    def context_window(self) -> int | None:
        return None

    def close(self) -> None:
        """It holds nothing."""

    def complete(self, messages: Messages, tools: Tools = (), *, timeout: float) -> Reply:
        if not tools:
            return Reply("YES")
        if self.last is None or self.chance.random() >= REPEATS:
            self.last = self._next_call()
        name, arguments = self.last
        self.sent += 1
        return Reply("", (ToolCall(f"call_{self.sent}", name, json.dumps(arguments)),), usage=Usage(100, 10))

    def _next_call(self) -> tuple[str, dict[str, Any]]:
        one, other = self.chance.sample(self.ids, 2)
        if self.chance.random() < INVENTS:
            return "delete_memory", {"id": one, "carried_by": self.chance.randrange(10**6, 10**7)}
        self.asked.add((one, other))
        return "delete_memory", {"id": one, "carried_by": other}


def _measure(path: Path, deletions: int, chance: random.Random) -> None:
    agent = make_agent(path.stem)
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    distinct = list(dict.fromkeys(line["content"].strip() for line in lines if line.get("type", "core") == "core"))
    remember(agent, *distinct)
    model = WeakModel([], chance)
    gone: list[tuple[int, int]] = []
    runs = 0
    while len(model.asked) < min(deletions, len(distinct) * (len(distinct) - 1)):
        model.ids, model.last = _active(agent), None
        refinement = start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE)
        run_refinement(refinement.id, Dependencies(model, pause=lambda _: None))
        db.session.rollback()
        gone += _deleted_by(refinement.id)
        runs += 1
        if db.session.get_one(Refinement, refinement.id, populate_existing=True).mutations:
            roll_back(Target.refinement(refinement.id), by=COMMAND_LINE)
    share = 100 * len(gone) / len(model.asked)
    print(
        f"{path.stem}: {len(distinct)} memories, {runs} refinements, {model.sent} calls, {len(model.asked)} different "
        f"deletions asked for, {len(gone)} made ({share:.1f} %; at most 3 %)"
    )
    for one, carrier in gone:
        print(f"  went:    {_text(agent, one)!r}\n  carrier: {_text(agent, carrier)!r}")


def _active(agent: Agent) -> list[int]:
    found = list(db.session.scalars(select(Memory.id).where(Memory.id.in_(_core(agent)))))
    db.session.rollback()
    return found


def _core(agent: Agent) -> Any:
    return Memory.active(agent.id, MemoryType.CORE).with_only_columns(Memory.id).order_by(None)


def _deleted_by(refinement_id: str) -> Iterator[tuple[int, int]]:
    query = select(AuditLog.data).where(
        AuditLog.refinement_id == refinement_id, AuditLog.action == Action.REFINEMENT_DELETE
    )
    entries: list[Mapping[str, Any]] = list(db.session.scalars(query))
    return ((int(data["id"]), int(data["carrier"])) for data in entries)


def _text(agent: Agent, number: int) -> str:
    memory = db.session.get_one(Memory, number)
    return open_keys(agent).reveal_memory(number, memory.content)


if __name__ == "__main__":
    main()
