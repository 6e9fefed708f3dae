"""Any sequence of calls, Stops, ends and other people's writes leaves the Knife where a plain Python model says.

The model knows masses, the cap and the latch; what a text would lose is not its matter (see test_losses.py).
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from decimal import ROUND_DOWN, Decimal
from fractions import Fraction
from typing import Any

import pytest
from flask import Flask
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from app.errors import Refused
from app.extensions import db, writing
from app.keys.agent_keys import open_keys
from app.models import COMMAND_LINE, Agent, Memory, MemoryType, Refinement, Status
from app.refinement.start import request_stop
from app.refinement.tool import RefinementTool
from tests.refinement.reference import Kept, Reference
from tests.support.factories import Running, begin, make_agent, remember

pytestmark = [pytest.mark.slow, pytest.mark.timeout(0 if os.environ.get("WHETSTONE_LONG") else 300)]

LONG_RUN = bool(os.environ.get("WHETSTONE_LONG"))
STEPS = 50
EXAMPLES = 100 if LONG_RUN else 15
ENOUGH = 100_000 if LONG_RUN else 1

CONTENT = st.text(alphabet="ab é%", min_size=0, max_size=90)
TAGS = st.sampled_from([[], [], [], ["tea"], ["ann", "tea"], ["voice"], ["audio", "tea"]])
PICK = st.integers(0, 30)
SELDOM = st.sampled_from([False] * 5 + [True])
NONSENSE: list[tuple[str, dict[str, Any]]] = [
    *(("delete", {"id": value, "carried_by": 1}) for value in (None, True, 1.0, "x", "1_0", "", [1], {}, -1, 10**30)),
    *(("delete", {"id": 1, "carried_by": value}) for value in (None, True, 1.0, "x", [2], -1, 10**30)),
    *(
        ("consolidate", {"ids": value, "content": "a"})
        for value in (None, [], [1], "1", "1,,2", ["1", "2"], 5, [1, None])
    ),
    *(("update", {"id": 1, "content": value}) for value in (None, "", " ", 5, "x" * 10_001, "a\x00", "\ud800")),
    *(("search", {"query": value}) for value in (None, "", 5, "x" * 2000, "\x00")),
    *(("complete", arguments) for arguments in ({}, {"summary": ""}, {"summary": "a", "force": 1}, {"summary": 5})),
    *(("protect", {}), ("burn", {"id": 1}), ("", {}), ("delete", {"id": 1}), ("delete", {"carried_by": 1})),
]
EVERYTHING = {
    *("consolidated", "updated", "deleted", "protected", "search_results", "refinement_complete", "query", "blank"),
    *(
        "refinement_rolled_back",
        "terminated",
        "Hard cap reached",
        "No active core memory",
        "never touched",
        "identical",
    ),
    *("longer than its sources", "two different ids", "constitutional already", "can't carry itself", ""),
}
seen: Counter[str] = Counter()
steps = [0]


class Machine(RuleBasedStateMachine):
    app: Flask

    @initialize(contents=st.lists(st.tuples(CONTENT, TAGS, SELDOM), min_size=1, max_size=16))
    def set_up(self, contents: list[tuple[str, list[str], bool]]) -> None:
        self.agent = make_agent(f"agent {steps[0]}")
        steps[0] += 1
        self.keys = open_keys(self.agent)
        self.reference = Reference()
        self.run: Running | None = None
        self.tool: RefinementTool | None = None
        self.earlier: RefinementTool | None = None
        for content, tags, constitutional in contents:
            self.save(content, tags, constitutional)

    def save(self, content: str, tags: list[str], constitutional: bool) -> None:
        text = content.strip() or "a"
        (number,) = remember(self.agent, text, tags=tags, constitutional=constitutional)
        self.reference.memories[number] = Kept(text, frozenset(tags), constitutional)

    def pick(self, index: int) -> int:
        """Mostly a memory that there is, sometimes one that was, seldom none."""
        numbers = sorted(self.reference.ledger if index < 26 else self.reference.memories)
        return numbers[index % len(numbers)] if index < 29 and numbers else 10**9 + index

    def check(self, result: dict[str, Any], expected: str) -> None:
        steps[0] += 1
        seen[expected if result["type"] == "error" else result["type"]] += 1
        if result["type"] == "error":
            assert expected in result["error"], (expected, result)
        else:
            assert result["type"] == expected
        assert result["changes_left"] == self.reference.changes_left
        run = self.reference.run
        assert run is not None
        floored = (Decimal(run.retention.numerator) / run.retention.denominator).quantize(Decimal("0.0001"), ROUND_DOWN)
        assert Decimal(result["retention"]) == floored

    @precondition(lambda self: self.reference.run is None or not self.reference.run.running)
    @rule(threshold=st.sampled_from([None, "0.5", "0.5", "0.75", "0.9", "1"]))
    def begin(self, threshold: str | None) -> None:
        if not self.reference.ledger:
            self.save("a", [], False)
        if self.run is not None:
            self.close(Status.STOPPED)
        with writing():
            Agent.lock(self.agent.id).change(by=COMMAND_LINE, refinement_threshold=threshold)
        self.run = begin(self.agent)
        self.earlier, self.tool = self.tool, self.run.tool
        self.reference.begin(Fraction(threshold or "0.75"))

    @precondition(lambda self: self.tool is not None)
    @rule(index=PICK, content=st.none() | CONTENT, as_text=st.booleans())
    def update(self, index: int, content: str | None, as_text: bool) -> None:
        number = self.pick(index)
        if content is None:
            content = self.reference.memories.get(number, Kept("a")).content[::-1]
        result = self.tool.execute("update", id=str(number) if as_text else number, content=content)
        self.check(result, self.reference.update(number, content))

    @precondition(lambda self: self.tool is not None)
    @rule(index=PICK, other=PICK)
    def delete(self, index: int, other: int) -> None:
        number, carrier = self.pick(index), self.pick(other)
        result = self.tool.execute("delete", id=number, carried_by=carrier)
        self.check(result, self.reference.delete(number, carrier))

    @precondition(lambda self: self.tool is not None)
    @rule(
        indexes=st.lists(PICK, min_size=2, max_size=3, unique=True), content=st.none() | CONTENT, as_text=st.booleans()
    )
    def consolidate(self, indexes: list[int], content: str | None, as_text: bool) -> None:
        numbers = [self.pick(index) for index in indexes]
        if content is None:
            content = "".join(self.reference.memories.get(number, Kept("a")).content for number in numbers)
        ids = ", ".join(map(str, numbers)) if as_text else numbers
        result = self.tool.execute("consolidate", ids=ids, content=content)
        new = result.get("id") or (db.session.scalar(db.select(db.func.max(Memory.id))) or 0) - 1
        expected = self.reference.consolidate(numbers, content, new)
        if expected == "refinement_rolled_back":
            self.reference.memories.pop(new, None)
        self.check(result, expected)

    @precondition(lambda self: self.tool is not None)
    @rule(
        what=st.sampled_from(
            [*("protect", "search", "nonsense", "late", "save", "flag", "unflag") * 3, "complete", "stop", "end"]
        ),
        index=PICK,
        content=CONTENT,
        tags=TAGS,
        nonsense=st.sampled_from(NONSENSE),
    )
    def do_something_else(self, what: str, index: int, content: str, tags: list[str], nonsense: Any) -> None:
        number = self.pick(index)
        match what:
            case "protect":
                self.check(self.tool.execute("protect", id=number), self.reference.protect(number))
            case "search":
                self.search(content)
            case "nonsense":
                result = self.tool.execute(nonsense[0], **nonsense[1])
                assert result["type"] == "error"
                self.check(result, "" if self.reference.run.running else "terminated")
            case "late":
                steps[0] += 1
                self.call_late(number)
            case "save":
                self.save(content, tags, False)
            case "flag" | "unflag":
                self.toggle_as_admin(number, what == "flag")
            case "complete":
                self.check(self.tool.execute("complete", summary="Done."), self.reference.complete())
            case "stop":
                request_stop(self.run.refinement.id, by=COMMAND_LINE)
                self.reference.end()
            case "end":
                self.close(Status.INTERRUPTED)

    def search(self, query: str) -> None:
        result, expected = self.tool.execute("search", query=query), self.reference.search(query)
        if isinstance(expected, list):
            assert sorted(one["id"] for one in result["results"]) == sorted(expected)
            expected = "search_results"
        self.check(result, expected)

    def call_late(self, number: int) -> None:
        for action, arguments in (
            ("delete", {"id": number, "carried_by": 1}),
            ("search", {"query": "a"}),
            ("complete", {}),
        ):
            assert self.earlier is None or "terminated" in self.earlier.execute(action, **arguments)["error"]

    def toggle_as_admin(self, number: int, on: bool) -> None:
        if number not in self.reference.ledger:
            return
        is_open = Refinement.open_of(self.agent.id) is not None
        was = self.reference.memories[number]
        with nullcontext() if on or not is_open or not was.constitutional else pytest.raises(Refused), writing():
            locked = Agent.lock(self.agent.id)
            memory = Memory.lock_core(locked, number)
            (memory.protect if on else memory.release)(locked, by=COMMAND_LINE)
        if on:
            self.reference.protect_as_admin(number)
        elif not is_open:
            self.reference.memories[number] = replace(was, constitutional=False)

    def close(self, status: Status) -> None:
        with writing():
            Refinement.lock(self.run.refinement.id).end(Agent.lock(self.agent.id), status)
        self.reference.end()

    @invariant()
    def the_ledger_is_as_the_model_says(self) -> None:
        if not hasattr(self, "reference"):
            return
        rows = db.session.scalars(
            Memory.active(self.agent.id, MemoryType.CORE).execution_options(populate_existing=True)
        ).all()
        found = {
            row.id: Kept(self.keys.reveal_memory(row.id, row.content), frozenset(row.tags), row.constitutional)
            for row in rows
        }
        assert found == self.reference.ledger
        if self.run is not None and self.reference.run is not None:
            row = db.session.get_one(Refinement, self.run.refinement.id, populate_existing=True)
            assert row.mutations == self.reference.run.mutations <= 10
            assert row.kept_mass == sum(self.reference.run.kept.values())
        db.session.rollback()


@pytest.mark.usefixtures("nothing_missing")
def test_any_sequence_of_calls_ends_where_the_model_says(app: Flask, record_property: Any) -> None:
    steps[0] = 0
    seen.clear()
    Machine.app = app
    how = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        derandomize=not LONG_RUN,
        suppress_health_check=list(HealthCheck),
    )
    while steps[0] < ENOUGH:
        run_state_machine_as_test(Machine, settings=how)
        print(f"{steps[0]:,} steps: {dict(seen)}", flush=True)  # noqa: T201 - for `pytest -s`
    record_property("steps", steps[0])
    assert {"updated", "deleted", "terminated", "search_results"} <= set(seen)
    assert LONG_RUN is False or set(seen) >= EVERYTHING, EVERYTHING - set(seen)
