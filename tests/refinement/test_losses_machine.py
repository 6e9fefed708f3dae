"""Any sequence of calls: no text loses what was not named in an earlier reply, and no deletion loses anything."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from typing import Any

import pytest
from flask import Flask
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.extensions import db
from app.meaning import ChangeKind, Specific, missing
from app.models import Memory
from tests.support.factories import Running, begin, make_agent, remember

LONG_RUN = bool(os.environ.get("WHETSTONE_LONG"))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(0 if LONG_RUN else 300)]

TEXTS = (
    "Ann pays 1,200 euros of rent in May.",
    "Ann pays 1,250 euros of rent in May.",
    "Ann pays rent.",
    "Ann pays 1,200 euros of rent in May, and Bob does not like it.",
    "Bob likes it.",
    "Bob does not like it.",
    "Bob does not like it, and moved to Oslo on Tuesday.",
    "Perhaps Cleo should call Bob before noon.",
    "Cleo calls Bob.",
    "Never push to main: Cleo should call Bob before noon, perhaps on Tuesday.",
)
PLACES = st.integers(0, 3)
CONTENT = st.sampled_from(TEXTS)
CALLS = st.one_of(
    st.tuples(st.just("update_memory"), PLACES, PLACES, CONTENT, st.booleans()),
    st.tuples(st.just("consolidate_memories"), PLACES, PLACES, CONTENT, st.booleans()),
    st.tuples(st.just("delete_memory"), PLACES, PLACES, CONTENT, st.booleans()),
    st.tuples(st.just("again"), PLACES, PLACES, CONTENT, st.just(True)),
)
"""`again` is the last call once more, with `confirm_loss`."""

REPLIES = st.lists(st.lists(CALLS, min_size=1, max_size=3), min_size=1, max_size=8)
Key = tuple[str, frozenset[int]]


class Walk:
    """One refinement, beside what it must keep to: what was named, by function and ids, in earlier replies."""

    def __init__(self, run: Running, ids: list[int]) -> None:
        self._run, self._ids = run, ids
        self._read: dict[Key, set[tuple[int, Specific]]] = defaultdict(set)
        self._named: dict[Key, set[tuple[int, Specific]]] = defaultdict(set)
        self._last = ("update_memory", 0, 0, TEXTS[0], False)
        self.confirmed = 0

    def reply(self, calls: list[tuple[str, int, int, str, bool]]) -> None:
        for call in calls:
            name, one, other, content, confirm = self._last = (*self._last[:4], True) if call[0] == "again" else call
            self._call(name, self._ids[one], self._ids[other], content, confirm)
        self._run.tool.settle()
        for key, losses in self._named.items():
            self._read[key] |= losses
        self._named.clear()

    def _call(self, name: str, one: int, other: int, content: str, confirm: bool) -> None:
        before = self._texts()
        key, arguments = self._arguments(name, one, other, content, confirm)
        result = self._run.tool.call(name, json.dumps(arguments))
        if result["type"] in ("would_lose", "error"):
            assert self._texts() == before
        if result["type"] in ("error", "refinement_rolled_back"):
            return
        new = before[other] if name == "delete_memory" else content
        old = key[1] - {other} if name == "delete_memory" else key[1]
        kind = ChangeKind(name.partition("_")[0])
        losses = {(number, each) for number in old for each in missing(before[number], new, kind=kind)}
        if result["type"] == "would_lose":
            assert losses
            self._named[key] |= losses
            return
        assert losses <= (self._read[key] if confirm and name != "delete_memory" else set())
        self.confirmed += bool(losses)
        self._read.pop(key, None)
        self._named.pop(key, None)
        if name == "consolidate_memories":
            self._ids[self._ids.index(one)] = int(result["id"])

    def _arguments(self, name: str, one: int, other: int, content: str, confirm: bool) -> tuple[Key, dict[str, Any]]:
        if name == "delete_memory":
            return (name, frozenset({one, other})), {"id": one, "carried_by": other}
        flag = {"confirm_loss": True} if confirm else {}
        if name == "update_memory":
            return (name, frozenset({one})), {"id": one, "content": content} | flag
        return (name, frozenset({one, other})), {"ids": [one, other], "content": content} | flag

    def _texts(self) -> dict[int, str]:
        query = db.select(Memory).where(Memory.agent_id == self._run.agent.id, Memory.discarded_at.is_(None))
        memories = db.session.scalars(query.execution_options(populate_existing=True)).all()
        found = {each.id: self._run.tool._keys.reveal_memory(each.id, each.content) for each in memories}
        db.session.rollback()
        return found


def test_nothing_is_lost_that_was_not_named_in_an_earlier_reply(app: Flask) -> None:
    numbers = iter(range(10**6))

    @settings(
        max_examples=2000 if LONG_RUN else 40,
        deadline=None,
        database=None,
        derandomize=not LONG_RUN,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(CONTENT, min_size=4, max_size=4), REPLIES)
    def any_replies(texts: list[str], replies: list[list[tuple[str, int, int, str, bool]]]) -> None:
        agent = make_agent(f"agent-{next(numbers)}", refinement_threshold="0.5")
        ids = remember(agent, *texts, "A long text that keeps the mass, whatever else becomes shorter. " * 20)
        run = begin(agent)
        walk = Walk(run, ids[:4])
        for reply in replies:
            walk.reply(reply)
        row = run.reload()
        assert row.confirmed_losses == walk.confirmed <= 3
        assert row.specifics_missing >= row.specifics_restored + row.specifics_confirmed
        run.tool.execute("complete", summary="Done.")

    any_replies()
