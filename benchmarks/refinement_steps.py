"""What each step of a refinement takes: milliseconds of processor time, and statements, of one after another.

`python -m benchmarks.refinement_steps [--refinements N]`. A model server in another process answers at once, through
LiteLLM: YES, one deletion, the end. A step that is part of another one counts for itself alone. On PostgreSQL
(`WHETSTONE_TEST_DATABASE_URL`) the server's own time is left out.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any
from unittest.mock import patch

from sqlalchemy import Engine, event

from app.asking.calls import Dependencies, ModelCalls
from app.extensions import db
from app.llm.litellm import LiteLLMClient, LiteLLMClients, load_litellm
from app.models import COMMAND_LINE, Refinement, Status, Trigger
from app.refinement import process, prompts
from app.refinement.prompts import RefinedAgent
from app.refinement.start import start_refinement
from app.refinement.tool import RefinementTool
from benchmarks.scratch import scratch
from benchmarks.slow_model import CALLS, slow_model
from tests.support.factories import make_agent, remember

WARM = 5
WHOLE = "all of it"
STEPS: Sequence[tuple[str, Any, str]] = (
    ("claim", process, "_claim_refinement"),
    ("lock it, and exact duplicates", process._Process, "_remove_duplicates"),
    ("open the keys, compare with the log", prompts, "open_keys"),
    ("compose the question of consent", RefinedAgent, "question"),
    ("still wanted? before each call", process._Process, "_unless_stopped"),
    ("month's limit, before each turn", process._Process, "_is_month_spent"),
    ("a call by LiteLLM, each of three", LiteLLMClient, "complete"),
    ("consent, its statement, the snapshot", process._Process, "_ask_consent"),
    ("open the ledger for the loop", RefinedAgent, "opening"),
    ("book a reply, each of two", process._Process, "_book_reply"),
    ("the change, and the end", RefinementTool, "call"),
    ("close the connection", ModelCalls, "close"),
)
"""What a step is called, and where its function is."""


@dataclass
class Taken:
    """By one step of one refinement."""

    milliseconds: float = 0.0
    statements: int = 0


class StepClock:
    """Puts time and statements on the account of the innermost step that is open."""

    def __init__(self) -> None:
        self.taken: defaultdict[str, Taken] = defaultdict(Taken)
        self._open: list[str] = [WHOLE]
        self._since = time.process_time()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        self._book()
        self._open.append(name)
        try:
            yield
        finally:
            self._book()
            self._open.pop()

    def note_statement(self, _connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        self.taken[self._open[-1]].statements += not statement.startswith(("BEGIN", "PRAGMA"))

    def begin(self) -> None:
        self.taken.clear()
        self._since = time.process_time()

    def _book(self) -> None:
        at = time.process_time()
        self.taken[self._open[-1]].milliseconds += (at - self._since) * 1000
        self._since = at

    def end(self) -> dict[str, Taken]:
        self._book()
        return dict(self.taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--refinements", type=int, default=100)
    refinements: int = parser.parse_args().refinements
    runs = measure(refinements)
    names = ["start", *(name for name, *_ in STEPS), WHOLE]
    print(f"{'':38} {'ms':>7} {'statements':>11}")
    for name in names:
        each = [run.get(name, Taken()) for run in runs]
        label = "between the steps" if name == WHOLE else name
        _print_line(label, each)
    _print_line(WHOLE, [_sum(run) for run in runs])


def measure(refinements: int) -> list[dict[str, Taken]]:
    """By step, of each refinement."""
    clock = StepClock()
    with slow_model(0) as base, scratch(), _timed(clock):
        load_litellm()
        clients = LiteLLMClients()
        agents = [_make_agent(number, base) for number in range(refinements + WARM)]
        return [_refine(agent_id, clients, clock) for agent_id in agents][WARM:]


def _make_agent(number: int, base: str) -> int:
    agent = make_agent(f"agent-{number}", model_id="openai/slow", api_base=base)
    ships = ("0", "0 and 1", *map(str, range(2, 20)))
    remember(agent, *(f"We spoke about ship {ship} and its captain at length." for ship in ships))
    return agent.id


def _refine(agent_id: int, clients: LiteLLMClients, clock: StepClock) -> dict[str, Taken]:
    clock.begin()
    with clock.step("start"):
        refinement_id = start_refinement(agent_id, trigger=Trigger.ADMIN, by=COMMAND_LINE).id
    process.run_refinement(refinement_id, Dependencies(clients))
    taken = clock.end()
    db.session.rollback()
    ended = db.session.get_one(Refinement, refinement_id, populate_existing=True)
    if ended.status != Status.COMPLETED or ended.turns != CALLS - 1:
        raise RuntimeError(f"{ended.status}: {ended.reason}, {ended.turns} turns")
    db.session.remove()
    return taken


@contextmanager
def _timed(clock: StepClock) -> Iterator[None]:
    patches = [patch.object(owner, name, _wrap(clock, step, getattr(owner, name))) for step, owner, name in STEPS]
    event.listen(Engine, "before_cursor_execute", clock.note_statement)
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()
        event.remove(Engine, "before_cursor_execute", clock.note_statement)


def _wrap(clock: StepClock, step: str, work: Any) -> Any:
    @wraps(work)
    def timed(*given: Any, **named: Any) -> Any:
        with clock.step(step):
            return work(*given, **named)

    return timed


def _print_line(name: str, taken: Sequence[Taken]) -> None:
    milliseconds = statistics.fmean(each.milliseconds for each in taken)
    statements = statistics.fmean(each.statements for each in taken)
    print(f"{name:38} {milliseconds:7.2f} {statements:11.1f}")


def _sum(run: dict[str, Taken]) -> Taken:
    return Taken(sum(each.milliseconds for each in run.values()), sum(each.statements for each in run.values()))


if __name__ == "__main__":
    main()
