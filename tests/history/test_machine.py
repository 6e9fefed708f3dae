"""Any history of saves, refinements, toggles, undos and rewinds ends byte for byte where a plain Python model says.

`WHETSTONE_LONG=1 python -m pytest -s tests/history/test_machine.py` tries 10,000 histories, in runs that can each be
repeated; with WHETSTONE_TEST_DATABASE_URL on PostgreSQL.
"""

from __future__ import annotations

import itertools
import os
import time
from decimal import Decimal
from typing import Any

import pytest
from flask import Flask
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st

from app.extensions import db
from tests.history.walk import Walk, seen
from tests.support.clock import MONDAY, FakeClock

LONG_RUN = bool(os.environ.get("WHETSTONE_LONG"))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(0 if LONG_RUN else 300), pytest.mark.usefixtures("nothing_missing")]

EXAMPLES = 500 if LONG_RUN else 30
RUNS = range(int(os.environ.get("WHETSTONE_FIRST_RUN", "0")), 20) if LONG_RUN else range(1)

STEPS = [
    *("save", "save", "toggle", "toggle", "promote", "dedup", "queue", "end", "tell", "tell"),
    *("update", "delete", "consolidate", "protect") * 2,
    *("undo", "undo", "undo_entry", "undo_entry", "undo_rollback", "undo_rollback", "rewind", "rewind", "again"),
]
PICK = st.integers(0, 99)
WAIT = st.sampled_from([0, 1, 3600, 86_400])
STEP = st.tuples(st.sampled_from(STEPS), PICK, PICK, st.booleans(), WAIT)
HISTORY = st.lists(STEP, min_size=5, max_size=40)
THRESHOLD = st.sampled_from(["0.01", "0.01", "0.5", "0.75"])
TWO = st.sampled_from([False] * 4 + [True])
EVERYTHING = {
    *("updated", "deleted", "consolidated", "protected", "refinement_rolled_back", "error"),
    *(f"{kind}: {end}" for kind in ("refinement", "entry", "rollback") for end in ("applied", "conflict")),
    *(f"{kind}: nothing to do" for kind in ("refinement", "entry", "rollback", "rewind")),
    *("rewind: applied", "entry: final", "refinement: final", "told"),
}
made = itertools.count(1)


def live(clock: FakeClock, threshold: str, two: bool, history: list[tuple[str, int, int, bool, int]]) -> None:
    """Take every step, by one agent or by two in turn, and compare after each; in the end the log proves it all."""
    clock.at = MONDAY
    walks = [Walk(f"agent {next(made)}", clock, threshold) for _ in range(1 + two)]
    try:
        for what, a, b, more, wait in history:
            clock.advance(seconds=wait)
            getattr(walks[a % len(walks)], what)(a // len(walks), b, more)
            for other in walks if two else ():
                other.mirror.compare()
        for walk in walks:
            walk.prove()
    except BaseException:
        note("\n".join(line for walk in walks for line in walk.said))
        raise
    finally:
        db.session.rollback()
        db.session.expunge_all()


def run(number: int, clock: FakeClock) -> None:
    """One run of Hypothesis; the same number makes the same histories."""
    how = settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )

    @seed(number)
    @how
    @given(THRESHOLD, TWO, HISTORY)
    def histories(threshold: str, two: bool, history: list[tuple[str, int, int, bool, int]]) -> None:
        live(clock, threshold, two, history)

    histories()


def test_any_history_ends_where_the_model_says(app: Flask, clock: FakeClock, record_property: Any) -> None:
    """Guards are low, so that most refinements keep their work, and some are rolled back by the latch."""
    low = {"min_threshold": Decimal("0.01"), "erosion_floor": None}
    app.extensions["settings"] = app.extensions["settings"].model_copy(update=low)
    seen.clear()
    began, first = time.monotonic(), next(made)
    for number in RUNS:
        run(number, clock)
        took = time.monotonic() - began
        print(f"run {number}: {EXAMPLES * (number + 1):,} histories, {took:,.0f} s: {dict(seen)}", flush=True)  # noqa: T201
    record_property("agents", next(made) - first)
    assert set(seen) >= (
        EVERYTHING if LONG_RUN else {"rewind: applied", "refinement: applied", "rollback: applied", "told"}
    )
