"""What a refinement did is counted in memories too, not only in operations: in JSON, in words, and to the agent."""

from __future__ import annotations

import pytest
from flask import Flask

from app.extensions import db
from app.history.verify import verify
from app.keys.agent_keys import open_keys
from app.models import Agent, AuditLog, Memory, MemoryType, Mode
from tests.refinement.driving import DONE, LONG, call, carry, say
from tests.support.factories import begin, make_agent, remember
from tests.support.tampering import tamper


@pytest.fixture
def agent(app: Flask) -> Agent:
    return make_agent(model_id="openai/scripted")


def merged(agent: Agent) -> list[int]:
    """Seven short memories and four long ones."""
    short = remember(agent, *(f"Ann likes tea {number}." for number in range(7)))
    remember(agent, *(LONG * 5 + str(number) for number in range(4)))
    return short


def test_seven_memories_merged_into_two_say_so(agent: Agent) -> None:
    ids = merged(agent)
    first = call("consolidate_memories", ids=ids[:4], content="Ann likes tea 0, 1, 2, 3.")
    second = call("consolidate_memories", ids=ids[4:], content="Ann likes tea 4, 5, 6.")

    ended = carry(agent, say("YES"), first, second, DONE).refinement

    assert (ended.status, ended.stats) == (
        "completed",
        {
            **{"consolidated": 2, "updated": 0, "deleted": 0, "protected": 0, "deduplicated": 0, "refused": {}},
            **{"memories_merged": 7, "memories_before": 11, "memories_after": 6},
            "specifics": {"checked": 21, "missing": 0, "restored": 0, "confirmed": 0},
        },
    )
    said = "2 consolidated (7 memories merged into 2), 11 → 6 memories, "
    assert ended.machine_line.startswith(said)
    journal = db.session.scalars(Memory.active(agent.id, MemoryType.JOURNAL)).one()
    assert said in open_keys(agent).reveal_memory(journal.id, journal.content)
    entry = db.session.scalars(db.select(AuditLog).where(AuditLog.action == "memory_refinement_complete")).one()
    assert entry.data["stats"] == ended.stats
    assert verify().ok


def test_exact_duplicates_count_as_memories_that_were_there(agent: Agent) -> None:
    remember(agent, *["Ann likes tea."] * 3, "Bob likes rum.")
    ended = carry(agent, mode=Mode.DEDUP_ONLY).refinement
    assert (ended.memories_before, ended.memories_after) == (4, 2)
    assert ended.machine_line == "2 deduplicated, 4 → 2 memories, 16 → 8 tokens"


def test_a_refusal_merges_nothing(agent: Agent) -> None:
    ids = merged(agent)
    run = begin(agent)
    run.tool.execute("consolidate", ids=ids, content="x" * 9_000)
    assert run.reload().memories_merged == 0


@pytest.mark.parametrize("column", ["memories_merged", "memories_before", "memories_after"])
def test_an_edited_count_is_found(agent: Agent, column: str) -> None:
    merged(agent)
    carry(agent, say("YES"), DONE)
    assert verify().ok
    tamper(f"UPDATE refinements SET {column} = 99")
    assert "the counts of refinement" in str(verify().first_problem)
