"""Due agents among 100,000 with 10 million memories: the first 100, beside a GROUP BY over all memories.

    python -m benchmarks.due_agents [--agents N] [--memories N] [--rounds N] [--json]

The queries are the sweep's own. The other side is what one writes without running totals: it adds up the memories.
Agents are of every kind: never refined, refined lately or long ago, over budget, grown, paused, inactive, resting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from sqlalchemy import text

from app.extensions import db, end_reading, now
from app.models import Agent, Memory
from app.refinement.due import DueMoments, Queries, ask_due, due_by_schedule, due_hourly, ready_queries
from app.refinement.sweep import BATCH
from benchmarks.bulk import multiply_row, set_sequence
from benchmarks.figures import Figure
from benchmarks.scratch import is_sqlite, medians, run, scratch
from tests.support.factories import make_agent, remember

MOST_MS, LEAST_FASTER = 10.0, 100.0
GROUPED_ROUNDS = 1


def measure(agents: int = 100_000, memories: int = 10_000_000, rounds: int = 15) -> list[Figure]:
    with scratch():
        fill_agents(agents, memories)
        at = now()
        due = medians(rounds, schedule=lambda: first_due(due_by_schedule, at), budget=lambda: first_due(due_hourly, at))
        grouped = medians(GROUPED_ROUNDS, grouped=lambda: _grouped(at))["grouped"]
        found = (len(first_due(due_by_schedule, at)), len(first_due(due_hourly, at)), len(_grouped(at)))
    if found != (BATCH,) * 3:
        raise RuntimeError(f"due: {found}")
    size = f"{agents:,} agents, {memories:,} memories"
    limits = {"unit": "ms", "most": MOST_MS, "beside": "GROUP BY", "base": grouped, "most_ratio": 1 / LEAST_FASTER}
    return [
        Figure(f"first {BATCH} by schedule, {size}", due["schedule"], **limits),
        Figure(f"first {BATCH} over budget, {size}", due["budget"], **limits),
    ]


def first_due(rule: Callable[[DueMoments], Queries], at: datetime) -> Sequence[int]:
    """As the sweep asks: one query after the other, until a batch is full."""
    found: list[int] = []
    for query in ready_queries(rule):
        found += ask_due(query, at, most=BATCH - len(found))
        if len(found) >= BATCH:
            break
    end_reading()
    return found


def _grouped(at: datetime) -> Sequence[int]:
    with db.engine.connect() as connection:
        return connection.scalars(text(_GROUPED), {"limit": BATCH}).all()


_GROUPED = """
SELECT a.id FROM agents a JOIN (
    SELECT agent_id, sum(token_estimate) AS mass FROM memories
    WHERE discarded_at IS NULL AND type = 'core' GROUP BY agent_id
) AS m ON m.agent_id = a.id
WHERE a.active AND NOT a.paused AND m.mass > a.core_token_budget
ORDER BY a.last_look_at, a.id LIMIT :limit
"""


def fill_agents(agents: int, memories: int) -> None:
    agent = make_agent("the first")
    (memory,) = remember(agent, "We spoke about the harbour, and about the price of tin on that day.")
    db.session.remove()
    first, each = agent.id, memories // agents
    multiply_row(Agent, f"id = {first}", agents, _AGENT[is_sqlite()] | {"id": f"{first} + n"} | {
        "core_count": str(each), "core_token_usage": f"{each * 17}",
        "core_token_budget": f"CASE WHEN n % 5 = 0 THEN {each * 17 - 1} ELSE {each * 17 + 1000} END",
        "active": "n % 100 <> 7" if not is_sqlite() else "(n % 100 <> 7)",
        "paused": "(n % 50 = 9)",
    })  # fmt: skip
    multiply_row(Memory, f"id = {memory}", memories, {"id": f"{memory} + n", "agent_id": f"{first} + 1 + n % {agents}"})
    set_sequence("agents")
    set_sequence("memories")


_DAYS = {
    "last_refinement_at": "CASE WHEN n % 20 = 0 THEN NULL ELSE {n % 14} END",
    "last_attempt_at": "CASE WHEN n % 20 = 0 THEN NULL ELSE {n % 14} END",
    "last_look_at": "CASE WHEN n % 20 = 0 THEN NULL ELSE {n % 14} END",
    "last_look_mass": "CASE WHEN n % 20 = 0 THEN NULL WHEN n % 3 = 0 THEN 100 ELSE t.core_token_usage + 1600 END",
    "declined_at": "CASE WHEN n % 31 = 0 THEN {0} END",
}


def _dated(expression: str, of: str) -> str:
    head, opened, rest = expression.partition("{")
    if not opened:
        return expression
    days, _, tail = rest.partition("}")
    return head + of.format(days=days) + tail


def _agent_columns(days_ago: str, name: str) -> dict[str, str]:
    dated = {column: _dated(expression, days_ago) for column, expression in _DAYS.items()}
    return dated | {"name": "'fleet-' || n", "uuid": name}


_AGENT = {
    True: _agent_columns("strftime('%Y-%m-%d %H:%M:%f000', 'now', '-' || ({days}) || ' days')", "printf('%036d', n)"),
    False: _agent_columns("now() - ({days}) * interval '1 day'", "lpad(n::text, 36, '0')"),
}


if __name__ == "__main__":
    run(measure, __doc__, agents=100_000, memories=10_000_000, rounds=15)
