"""Generated hostile calls: whatever a model sends, it gets a result that can be sent back, and no error escapes."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from flask import Flask
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.extensions import db
from app.models import Refinement
from app.refinement.functions import ACTIONS
from tests.support.factories import Running, begin, make_agent, remember

pytestmark = [pytest.mark.slow, pytest.mark.timeout(0 if os.environ.get("WHETSTONE_LONG") else 300)]

LONG_RUN = bool(os.environ.get("WHETSTONE_LONG"))
BATCH, ENOUGH = (2000, 100_000) if LONG_RUN else (400, 400)

ODD = st.sampled_from(
    [
        *(
            "",
            " ",
            "1",
            "1,2",
            "1, 2,3",
            "01",
            "1_0",
            "١٢",
            "-1",
            "1.0",
            "NaN",
            "null",
            "\x00",
            "\ud800",
            "a\udfffb",
            "%",
            "_",
        ),
        *(
            "2026-03-23",
            "2026-02-30",
            "9999-12-31T23:59:59-23:59",
            "0001-01-01T00:00:00+23:59",
            "9" * 5000,
            "x" * 10_001,
        ),
        *("' OR 1=1 --", "</ledger>", "{{ 7*7 }}", "%s%n", "\u202e\u2028", "a" * 2000, "content", "Ann likes tea."),
    ]
)
NUMBERS = st.sampled_from(
    [0, 1, 2, 3, -1, 2**31, 2**63, 2**64, 10**18, 10**400, 0.0, -0.0, 1.5, 1e308, True, False, None]
)
VALUES = st.recursive(
    ODD | NUMBERS | st.text(max_size=20) | st.integers(0, 15) | st.floats(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(
    [
        "id",
        "ids",
        "content",
        "query",
        "since",
        "until",
        "summary",
        "note_to_admins",
        "action",
        "carried_by",
        "confirm_loss",
    ]
)
ARGUMENTS = st.dictionaries(KEYS, VALUES, max_size=4) | st.dictionaries(KEYS | ODD, VALUES, max_size=5)
IDS = st.integers(1, 300) | VALUES
TEXT = st.sampled_from(["Ann likes tea.", "Ann likes tea and rum, she says."]) | VALUES
CONFIRM = {"confirm_loss": st.booleans() | VALUES}
FITTING = {
    "search": st.fixed_dictionaries({"query": TEXT}, optional={"since": VALUES, "until": VALUES}),
    "consolidate": st.fixed_dictionaries(
        {"ids": st.lists(IDS, min_size=1, max_size=3) | VALUES, "content": TEXT}, optional=CONFIRM
    ),
    "update": st.fixed_dictionaries({"id": IDS, "content": TEXT}, optional=CONFIRM),
    "delete": st.fixed_dictionaries({"id": IDS, "carried_by": IDS}),
    "protect": st.fixed_dictionaries({"id": IDS}),
    "complete": st.fixed_dictionaries({"summary": TEXT}, optional={"note_to_admins": TEXT}),
}
NAMES = st.sampled_from(list(ACTIONS)) | ODD | st.text(max_size=30)


@st.composite
def hostile_calls(draw: st.DrawFn) -> tuple[str, dict[str, Any], str]:
    """A name, arguments that fit it or not, and their JSON, some of it broken off, doubled, wrapped or nested."""
    name = draw(NAMES)
    fitting = FITTING.get(ACTIONS.get(name, ""))
    arguments = draw(fitting) if fitting is not None and draw(st.integers(0, 3)) else draw(ARGUMENTS)
    written = json.dumps(arguments)
    return name, arguments, written if draw(st.booleans()) else draw(broken(written))


def broken(written: str) -> st.SearchStrategy[str]:
    return (
        st.sampled_from(
            [
                *(written, written, written, written, written[: len(written) // 2], written + written, f"[{written}]"),
                *(
                    written.replace(":", ":" + "[" * 2000, 1),
                    written.replace("{", '{"id": 1, "id": 2, ', 1),
                    repr(written),
                ),
                *(
                    f"```json\n{written}\n```",
                    written.encode("utf-8").decode("latin-1"),
                    "\ufeff" + written,
                    written + "\x00",
                ),
            ]
        )
        | ODD
        | st.text(max_size=40)
    )


def assert_a_result(result: dict[str, Any]) -> None:
    json.dumps(result, ensure_ascii=False, allow_nan=False).encode()
    assert set(result) >= {"type", "changes_left", "retention"}
    if result["type"] == "error":
        assert result["error"].strip()


def test_no_call_whatever_it_holds_raises(app: Flask) -> None:
    agent = make_agent()
    remember(agent, *(f"Ann likes tea {n}." * 5 for n in range(300)))
    held: list[Running] = [begin(agent)]
    made = [0, 0]

    @settings(
        max_examples=BATCH,
        deadline=None,
        database=None,
        derandomize=not LONG_RUN,
        suppress_health_check=list(HealthCheck),
    )
    @given(hostile_calls(), st.booleans())
    def call(wanted: tuple[str, dict[str, Any], str], by_action: bool) -> None:
        name, arguments, raw = wanted
        if held[0].tool.is_over:
            held[0] = begin(agent)
        tool = held[0].tool
        action = ACTIONS.get(name, name)
        result = tool.execute(action, **arguments) if by_action else tool.call(name, raw)
        assert_a_result(result)
        made[0] += 1
        made[1] += result["type"] == "error"

    while made[0] < ENOUGH:
        call()
        print(f"{made[0]:,} calls, {made[1]:,} refused, 0 uncaught", flush=True)  # noqa: T201 - for `pytest -s`
    assert 0 < made[1] < made[0]
    assert db.session.scalar(db.select(db.func.max(Refinement.mutations))) <= 10  # type: ignore[operator]
