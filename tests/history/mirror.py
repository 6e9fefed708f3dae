"""The product's rows beside the reference's states: the same memories and entries, byte for byte."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from sqlalchemy import and_, bindparam, func, select

from app.extensions import db
from app.models import Agent, Memory, MemoryState, MemoryText
from app.models.memory_text import texts_of
from app.silo import AgentKeys
from tests.history.past import State
from tests.history.reference import Reference

IMMUTABLE = {"audio", "somatic", "voice"}
Row = dict[str, Any]


class Mirror:
    """Knows which row stands for which number. Digests are learnt where a text is first written, and kept."""

    def __init__(self, agent: Agent, keys: AgentKeys, reference: Reference) -> None:
        self.ids: list[int] = []
        """By the reference's memory."""
        self.entry_ids: dict[int, int] = {}
        """By the reference's entry, of those that wrote memories."""
        self._agent_id = agent.id
        self._keys = keys
        self._reference = reference
        self._digests: dict[int, bytes] = {}
        self._compared = 0
        self._all: Row = {"agent": agent.id, "since": db.session.scalar(select(func.max(Memory.id))) or 0}

    def compare(self) -> None:
        """Every state ever written, every memory as it stands, and the totals."""
        memories = self._memories()
        assert len(memories) == len(self._reference.past)
        self.ids += [row["id"] for row in memories[len(self.ids) :]]
        self._compare_entries()
        for memory, row in enumerate(memories):
            self._compare_state(row, self._reference.now(memory))
            assert row["immutable"] == bool(IMMUTABLE & set(row["tags"])), f"memory {memory}"
            assert row["entry_id"] == self.entry_ids[self._reference.past[memory][-1]], f"memory {memory}"
        assert self._reference.shows_what_a_guard_reversed() == []
        assert tuple(db.session.execute(_TOTALS, {"agent": self._agent_id}).one()) == self._reference.totals()
        db.session.rollback()

    def ids_of(self, memories: Iterable[int]) -> list[int]:
        return [self.ids[memory] for memory in sorted(memories)]

    def newest_text(self) -> str:
        newest = select(Memory).where(Memory.agent_id == self._agent_id)
        ((number, content),) = Memory.read_contents(newest.order_by(Memory.id.desc()).limit(1))
        return self._keys.reveal_memory(number, content)

    def _memories(self) -> list[Row]:
        rows = db.session.execute(_MEMORIES, self._all)
        return [dict(row) for row in rows.mappings()]

    def _compare_entries(self) -> None:
        """What each new entry wrote. Entries of one step are told apart by the memories that they wrote."""
        written: dict[tuple[int, ...], list[tuple[int, dict[int, Row]]]] = defaultdict(list)
        for entry_id, states in self._new_entries().items():
            written[tuple(sorted(states))].append((entry_id, states))
        for number in range(self._compared, len(self._reference.entries)):
            wrote = self._reference.entries[number].wrote
            if wrote:
                found = written[tuple(self.ids_of(wrote))]
                assert found, f"no entry wrote {sorted(wrote)}"
                self.entry_ids[number], states = found.pop(0)
                for memory, state in wrote.items():
                    self._learn(states[self.ids[memory]], state)
                    self._compare_state(states[self.ids[memory]], state)
        assert not any(written.values()), f"entries {dict(written)}"
        self._compared = len(self._reference.entries)

    def _new_entries(self) -> dict[int, dict[int, Row]]:
        newest = max(self.entry_ids.values(), default=0)
        rows = db.session.execute(_STATES, self._all | {"newest": newest})
        entries: dict[int, dict[int, Row]] = defaultdict(dict)
        for row in rows.mappings():
            entries[row["entry_id"]][row["memory_id"]] = dict(row)
        return entries

    def _learn(self, row: Row, state: State) -> None:
        if state.writing not in self._digests:
            memory, digest, text = row["memory_id"], row["content_digest"], self._reference.texts[state.writing]
            sealed = texts_of(MemoryText.memory_id == memory)[memory, digest]
            assert self._keys.reveal_memory(memory, sealed) == text
            assert sealed.content_hash == self._keys.content_hash(text)
            self._digests[state.writing] = digest

    def _compare_state(self, row: Row, state: State) -> None:
        text = self._reference.texts[state.writing]
        expected = {
            "type": state.type,
            "content_digest": self._digests[state.writing],
            "token_estimate": -(-len(text) // 4),
            "constitutional": state.constitutional,
            "tags": list(state.tags),
            "origin_at": state.origin_at,
            "other_dates": list(state.other_dates),
            "merged_sources": state.merged_sources,
            "merges": state.merges,
            "source": state.source,
            "created_at": state.created_at,
            "updated_at": state.updated_at,
            "discarded_at": state.discarded_at,
            "version": state.version,
        }
        assert {name: row[name] for name in expected} == expected


_MEMORY, _STATE = Memory.__table__, MemoryState.__table__
_MINE = and_(_MEMORY.c.agent_id == bindparam("agent"), _MEMORY.c.id > bindparam("since"))
"""Ids only grow: those before the agent need not be looked through."""
_MEMORIES = select(_MEMORY).where(_MINE).order_by(_MEMORY.c.id)
_STATES = (
    select(_STATE)
    .where(_STATE.c.entry_id > bindparam("newest"), _STATE.c.memory_id.in_(select(_MEMORY.c.id).where(_MINE)))
    .order_by(_STATE.c.entry_id)
)
_TOTALS = select(Agent.core_token_usage, Agent.core_count, Agent.journal_count).where(Agent.id == bindparam("agent"))
