"""Merge depth: how many memories stand behind one, over how many merges; who changes it, who sees it, who can't."""

from __future__ import annotations

import json

import pytest
from flask import Flask

from app.asking.prompt_memories import fit_ledger, read_entries
from app.exchange.blind import blind_rows
from app.exchange.bundle import export_bundle
from app.exchange.draft import ImportRefused
from app.exchange.taking_in import receive_file, take_in
from app.extensions import db, now, writing
from app.history.plan import Target
from app.history.undo import roll_back
from app.history.verify import verify
from app.keys.agent_keys import open_keys
from app.models import COMMAND_LINE, Agent, Memory, MemoryType, Mode
from app.models.audit import Action, record
from app.values.merge_depth import NEVER_MERGED, MergeDepth
from tests.history.going_back import everything
from tests.refinement.driving import LONG, carry
from tests.refinement.soundness import assert_sound
from tests.support.factories import begin, make_agent, promote, remember, toggle
from tests.support.tampering import tamper

pytestmark = pytest.mark.once

TEA = "Ann drinks green tea at dawn."
PLAIN = (0, 0)


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent(refinement_threshold="0.5")
    remember(made, *(f"{LONG}{number}" for number in range(8)))
    return made


def depth(memory_id: int) -> tuple[int, int]:
    memory = db.session.get_one(Memory, memory_id, populate_existing=True)
    return memory.merged_sources, memory.merges


def merge(agent: Agent, *ids: int, content: str = TEA) -> int:
    """One refinement that merges these and ends; the id of what it made."""
    run = begin(agent)
    result = run.tool.execute("consolidate", ids=list(ids), content=content)
    assert result["type"] == "consolidated", result
    run.tool.execute("complete", summary="I am done.")
    merged: int = result["id"]
    return merged


def deduplicate(agent: Agent) -> None:
    carry(agent, mode=Mode.DEDUP_ONLY)
    db.session.rollback()


def shown(agent: Agent, memory_id: int) -> dict[str, object]:
    """Its entry in the ledger, as the agent reads it."""
    lines, _ = fit_ledger(read_entries(agent.id, open_keys(agent)), None)
    (found,) = (said for said in map(json.loads, lines) if said["id"] == memory_id)
    return dict(found)


def test_a_plain_memory_is_one_source_and_each_merge_is_one_more() -> None:
    twice, thrice = MergeDepth(2, 1), MergeDepth(3, 1)
    assert MergeDepth.merged([NEVER_MERGED, NEVER_MERGED]) == twice
    assert MergeDepth.merged([NEVER_MERGED] * 3) == thrice
    assert MergeDepth.merged([twice, NEVER_MERGED]) == MergeDepth(3, 2)
    assert MergeDepth.merged([twice, thrice]) == MergeDepth(5, 3)


def test_of_exact_copies_the_deepest_counts_as_a_whole_and_none_is_added() -> None:
    assert MergeDepth.deepest([MergeDepth(2, 1), MergeDepth(3, 1), MergeDepth(2, 2)]) == MergeDepth(3, 1)
    assert MergeDepth.deepest([]) == MergeDepth.deepest([NEVER_MERGED] * 9) == NEVER_MERGED


def test_its_words_are_empty_where_there_is_nothing_to_say() -> None:
    told = [each.words for each in (NEVER_MERGED, MergeDepth(2, 1), MergeDepth(1_200, 3))]
    assert told == ["", "merged from 2 over 1 merge", "merged from 1,200 over 3 merges"]


def test_a_chain_of_merges_counts_every_memory_that_it_came_from(app: Flask, agent: Agent) -> None:
    ids = remember(agent, *[TEA] * 7)
    pair, three = merge(agent, *ids[:2]), merge(agent, *ids[2:5])
    assert (depth(pair), depth(three)) == ((2, 1), (3, 1))
    both = merge(agent, pair, three)
    assert depth(both) == (5, 3)
    last = merge(agent, ids[5], both, ids[6])
    assert depth(last) == (7, 4)
    assert {depth(number) for number in ids} == {PLAIN}, "what was merged keeps its own"
    assert verify().ok
    assert_sound(app)


def test_two_merges_of_one_refinement_count_like_those_of_two(agent: Agent) -> None:
    ids = remember(agent, *[TEA] * 3)
    run = begin(agent)
    first = run.tool.execute("consolidate", ids=ids[:2], content=TEA)["id"]
    second = run.tool.execute("consolidate", ids=[first, ids[2]], content=TEA)["id"]
    assert (depth(first), depth(second)) == ((2, 1), (3, 2))


def test_an_update_a_protection_a_toggle_and_a_promotion_keep_it(agent: Agent) -> None:
    merged = merge(agent, *remember(agent, *[TEA] * 2))
    run = begin(agent)
    assert run.tool.execute("update", id=merged, content="At dawn Ann drinks green tea.")["type"] == "updated"
    assert run.tool.execute("protect", id=merged)["type"] == "protected"
    run.tool.execute("complete", summary="I am done.")
    toggle(agent, merged, on=False)
    (noted,) = remember(agent, "Bob likes rum.", type_=MemoryType.JOURNAL)
    promote(agent, noted)
    assert (depth(merged), depth(noted)) == ((2, 1), PLAIN)
    assert verify().ok


def test_exact_copies_of_plain_memories_leave_a_plain_one(agent: Agent) -> None:
    first, *_ = remember(agent, *[TEA] * 4)
    deduplicate(agent)
    assert depth(first) == PLAIN


def test_the_copy_that_stays_has_the_depth_of_the_deepest(app: Flask, agent: Agent) -> None:
    (kept,) = remember(agent, TEA, constitutional=True)
    merged = merge(agent, *remember(agent, *[f"{TEA[:-1]}!"] * 3))
    remember(agent, TEA)
    before = everything(agent)
    deduplicate(agent)
    after = everything(agent)
    assert depth(kept) == (3, 1)
    assert after[merged]["discarded_at"] is not None
    assert after[kept]["version"] == before[kept]["version"] + 1
    assert verify().ok
    assert_sound(app)


def test_a_copy_of_the_same_date_and_more_depth_changes_the_one_that_stays(agent: Agent) -> None:
    """Nothing else of it changes, so only the depth can say that it must be written."""
    at = now()
    merge(agent, *remember(agent, *[TEA] * 2, at=at))
    (kept,) = remember(agent, TEA, at=at, constitutional=True)
    before = everything(agent)[kept]
    deduplicate(agent)
    after = everything(agent)[kept]
    assert {name for name in before if after[name] != before[name]} == {"merged_sources", "merges", "version"}
    assert depth(kept) == (2, 1)


def test_a_memory_that_carries_another_one_gets_its_dates_and_not_its_depth(agent: Agent) -> None:
    merged = merge(agent, *remember(agent, *[TEA] * 2))
    (carrier,) = remember(agent, f"{TEA} Bob drinks rum.")
    with writing():
        locked = Agent.lock(agent.id)
        found = Memory.lock_active_core(agent.id, [merged, carrier])
        found[carrier].take_over(locked, [found[merged]])
        found[merged].discard(locked)
        record(Action.CREATE, actor=COMMAND_LINE, of=locked, subject=locked.subject, memories=list(found.values()))
    db.session.rollback()
    assert depth(carrier) == PLAIN
    assert len(db.session.get_one(Memory, carrier).other_dates) == 2
    assert verify().ok


def test_undo_redo_and_rewind_are_exact_to_the_byte(app: Flask, agent: Agent) -> None:
    ids = remember(agent, *[TEA] * 4)
    seen = [everything(agent)]
    first = merge(agent, *ids[:2])
    begun = db.session.get_one(Memory, first).entry_id
    seen.append(everything(agent))
    second = merge(agent, first, *ids[2:])
    last = _refinements(agent)[-1]
    seen.append(everything(agent))

    undone = roll_back(Target.refinement(last), by=COMMAND_LINE)
    assert begun is not None
    assert _stands(agent, seen[1]) == seen[1]
    assert (depth(first), depth(second)) == ((2, 1), (4, 2))
    assert undone.rollback is not None
    roll_back(Target.rollback(undone.rollback.id), by=COMMAND_LINE)
    assert _stands(agent, seen[2]) == seen[2]
    roll_back(Target.rewind(_refinements(agent)[0]), by=COMMAND_LINE)
    assert _stands(agent, seen[0]) == seen[0]
    assert verify().ok
    assert_sound(app)


def _refinements(agent: Agent) -> list[str]:
    """Their ids, oldest first."""
    query = "SELECT id FROM refinements WHERE agent_id = :agent ORDER BY snapshot_entry_id"
    return [row[0] for row in db.session.execute(db.text(query), {"agent": agent.id})]


def _stands(agent: Agent, before: dict[int, dict[str, object]]) -> dict[int, dict[str, object]]:
    """What now is of the memories that were then."""
    return {number: state for number, state in everything(agent).items() if number in before}


@pytest.mark.parametrize("table", ["memories", "memory_states"])
@pytest.mark.parametrize("change", ["merged_sources = 9", "merges = 0", "merged_sources = 0, merges = 0"])
def test_a_number_that_was_altered_by_hand_is_found(agent: Agent, table: str, change: str) -> None:
    merged = merge(agent, *remember(agent, *[TEA] * 2))
    assert verify().ok
    here = f"WHERE {'id' if table == 'memories' else 'memory_id'} = {merged}"
    tamper(f"UPDATE {table} SET {change} {here}")
    problem = str(verify().first_problem)
    tamper(f"UPDATE {table} SET merged_sources = 2, merges = 1 {here}")
    assert f"of memory {merged} is not what" in problem if table == "memories" else "was altered" in problem


def test_the_ledger_shows_it_of_merged_memories_only(agent: Agent) -> None:
    (plain,) = remember(agent, "Bob likes rum.")
    pair = merge(agent, *remember(agent, *[TEA] * 2))
    merged = merge(agent, pair, *remember(agent, *[TEA] * 3))
    said = shown(agent, merged)
    assert (said["merged_sources"], said["merges"]) == (5, 2)
    assert {"merged_sources", "merges"}.isdisjoint(shown(agent, plain))
    (hit,) = begin(agent).tool.execute("search", query="green tea")["results"]
    assert (hit["merged_sources"], hit["merges"]) == (5, 2)


def test_the_blind_record_tells_the_numbers_and_never_the_words(agent: Agent) -> None:
    merged = merge(agent, *remember(agent, *[TEA] * 2))
    rows = {row.id: row.as_json() for row in blind_rows(agent.id)}
    assert (rows[merged]["merged_sources"], rows[merged]["merges"]) == (2, 1)
    assert {(row["merged_sources"], row["merges"]) for number, row in rows.items() if number != merged} == {PLAIN}
    assert "green tea" not in json.dumps(rows)


def test_no_model_can_name_it(agent: Agent) -> None:
    ids = remember(agent, *[TEA] * 2)
    tool = begin(agent).tool
    for key in ("merged_sources", "merges"):
        refused = tool.execute("consolidate", ids=ids, content=TEA, **{key: 1})
        assert refused["type"] == "error"
        assert depth(ids[0]) == PLAIN


@pytest.mark.parametrize("key", ["merged_sources", "merges"])
def test_no_file_can_name_it(agent: Agent, key: str) -> None:
    memory = {"content": TEA, key: 3}
    bundle = {"format": "whetstone-bundle/1", "memories": [memory]}
    before = everything(agent)
    for data in (json.dumps(memory), json.dumps(bundle)):
        with pytest.raises(ImportRefused, match=f"Unknown key '{key}'"):
            receive_file(agent.id, data.encode(), by=agent.as_actor)
    assert everything(agent) == before


def test_a_bundle_brings_a_merged_memory_back_as_a_plain_one(agent: Agent) -> None:
    """Only Whetstone says it, and a file is a client's word."""
    merge(agent, *remember(agent, *[TEA] * 2))
    data = "".join(export_bundle(agent, open_keys(agent))).encode()
    other = make_agent("other")
    take_in(receive_file(other.id, data, by=other.as_actor).intake_id)
    assert {(row.merged_sources, row.merges) for row in blind_rows(other.id)} == {PLAIN}
