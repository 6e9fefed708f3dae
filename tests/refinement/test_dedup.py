"""Exact duplicates go by their hash, before anything else, and never the wrong copy."""

from __future__ import annotations

from app.extensions import db
from app.keys.agent_keys import open_keys
from app.models import Action, Agent, AuditLog, Memory, MemoryType, Mode
from tests.refinement.driving import carry
from tests.support.factories import begin, ledger, make_agent, remember
from tests.support.tampering import tamper


def removed(agent: Agent) -> list[AuditLog]:
    assert carry(agent, mode=Mode.DEDUP_ONLY).status == "completed"
    query = db.select(AuditLog).where(AuditLog.agent_id == agent.id, AuditLog.action == Action.DEDUP)
    return list(db.session.scalars(query.order_by(AuditLog.id)))


def left(agent: Agent) -> dict[int, tuple[bool, tuple[str, ...]]]:
    return {row[0]: (row[4], row[5]) for row in ledger(agent)}


def test_the_earliest_stays_with_the_tags_of_all(agent: Agent) -> None:
    (late,) = remember(agent, "Café at noon.", tags=["b"])
    early, unicode_, spaced = remember(agent, "x", "Cafe\u0301 at noon. ", "Café at noon.\n", tags=["a", "c"])
    (entry,) = removed(agent)
    assert left(agent) == {late: (False, ("a", "b", "c")), early: (False, ("a", "c"))}
    assert entry.data == {"kept": late, "removed": [unicode_, spaced], "tokens": 8}
    assert entry.subject == f"memory:{late}"


def test_every_constitutional_copy_stays_and_only_the_first_takes_the_tags(agent: Agent) -> None:
    (plain,) = remember(agent, "We never lie.", tags=["plain"])
    kept = remember(agent, "We never lie.", " We never lie.", constitutional=True)
    removed(agent)
    assert left(agent) == {kept[0]: (True, ("plain",)), kept[1]: (True, ())}
    assert not db.session.get_one(Memory, plain).is_active
    assert len(removed(agent)) == 1


def test_an_immutable_tag_is_no_obstacle_and_goes_on_protecting(agent: Agent) -> None:
    (plain,) = remember(agent, "A song.")
    remember(agent, "A song.", tags=["voice"])
    removed(agent)
    assert left(agent) == {plain: (False, ("voice",))}
    assert db.session.get_one(Memory, plain).immutable


def test_near_duplicates_journals_discarded_ones_and_other_agents_are_left_alone(agent: Agent) -> None:
    eve = make_agent("eve")
    mine = remember(agent, "Ann likes tea.", "Ann  likes tea.", "Ann likes tea", "Ann likes tea!", "ann LIKES tea.")
    remember(agent, "Ann likes tea.", "Ann likes tea.", type_=MemoryType.JOURNAL)
    hers = remember(eve, "Ann likes tea.", "Ann likes tea.")
    assert removed(agent) == []
    assert (list(left(agent)), list(left(eve))) == (mine, hers)
    assert db.session.get_one(Agent, agent.id, populate_existing=True).journal_count == 2


def test_a_rewritten_memory_is_a_duplicate_of_its_new_words_and_no_more_of_its_old_ones(agent: Agent) -> None:
    rewritten, other = remember(agent, "Ann really just likes tea.", "Ann likes tea.")
    again = remember(agent, "Ann really just likes tea.")
    run = begin(agent)
    run.tool.execute("update", id=rewritten, content="Ann likes tea.")
    run.tool.execute("complete", summary="I am done.")

    (entry,) = removed(agent)

    assert entry.data["removed"] == [other]
    assert list(left(agent)) == [rewritten, *again]


def test_the_words_that_a_rewritten_memory_had_are_saved_anew(agent: Agent) -> None:
    rewritten, _ = remember(agent, "Ann really just likes tea.", "We met in Lisbon. " * 10)
    run = begin(agent)
    assert run.tool.execute("update", id=rewritten, content="Ann likes tea.")["type"] == "updated"
    run.tool.execute("complete", summary="I am done.")
    keys, day = open_keys(agent), db.session.get_one(Memory, rewritten).origin_at

    same = Memory.same_core(agent.id, keys.content_hash("Ann likes tea."), day)
    assert same is not None
    assert same.id == rewritten
    assert Memory.same_core(agent.id, keys.content_hash("Ann really just likes tea."), day) is None


def test_two_hundred_copies_in_one_go_leave_one_each(agent: Agent) -> None:
    ids = remember(agent, *(f"Memory {n % 40}." for n in range(200)))
    entries = removed(agent)
    assert list(left(agent)) == ids[:40]
    assert len(entries) == 40
    assert sum(len(entry.data["removed"]) for entry in entries) == 160


def test_a_forged_hash_makes_no_memory_a_duplicate(agent: Agent) -> None:
    """The log proves what each memory says, but not the hash beside it."""
    ids = remember(agent, "Ann likes tea.", "Bob promised to come.")
    forged = "(SELECT content_hash FROM memory_texts WHERE memory_id = :first)"
    tamper(f"UPDATE memory_texts SET content_hash = {forged} WHERE memory_id = :second", first=ids[0], second=ids[1])

    done = carry(db.session.get_one(Agent, agent.id), mode=Mode.DEDUP_ONLY)

    assert (done.status, list(left(agent))) == ("interrupted", ids)
    assert "does not open" in (done.refinement.reason or "")
