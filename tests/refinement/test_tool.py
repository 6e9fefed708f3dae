"""The Knife's successes: what each function does, what it answers, and what it writes down."""

from __future__ import annotations

from datetime import timedelta

from flask import Flask

from app.extensions import db, now
from app.models import Action, Agent, AuditLog, Event, Memory, MemoryType, Refinement, Status
from app.refinement.functions import ACTIONS, specifications
from app.refinement.tool import MAX_RESULT_CHARACTERS, MAX_RESULTS
from tests.refinement.driving import LONG, alike
from tests.refinement.soundness import assert_sound
from tests.support.factories import begin, ledger, make_agent, remember

SHORTER = "On the third of May, we promised to tell the truth, even small and unwelcome."


def entries(refinement: Refinement, action: Action) -> list[AuditLog]:
    query = db.select(AuditLog).where(AuditLog.refinement_id == refinement.id, AuditLog.action == action)
    return list(db.session.scalars(query))


def test_it_consolidates_into_one_memory_with_the_earliest_date_and_all_tags(agent: Agent) -> None:
    filler = remember(agent, *(LONG * 3 + str(n) for n in range(8)))
    first = remember(agent, "Ann likes tea.", tags=["ann", "tea"])
    second = remember(agent, "Ann likes tea in the morning.", tags=["morning"])
    origin = db.session.get_one(Memory, first[0]).origin_at
    run = begin(agent)

    result = run.tool.execute("consolidate", ids=[second[0], first[0]], content="Ann likes tea, in the morning.")

    retention = result.pop("retention")
    assert result == {"type": "consolidated", "id": result["id"], "merged_count": 2, "changes_left": 9}
    assert "0.75" < retention < "1.0000"
    merged = db.session.get_one(Memory, result["id"])
    assert (merged.origin_at, merged.tags, merged.token_estimate) == (origin, ["ann", "morning", "tea"], 8)
    assert not merged.constitutional
    assert run.tool._keys.reveal_memory(merged.id, merged.content) == "Ann likes tea, in the morning."
    assert {row[0] for row in ledger(agent)} == {*filler, merged.id}
    assert not db.session.get_one(Memory, first[0], populate_existing=True).is_active
    (entry,) = entries(run.refinement, Action.REFINEMENT_CONSOLIDATE)
    assert entry.data["sources"] == sorted([first[0], second[0]])
    assert entry.data["tokens"] == [4 + 8, 8]
    assert entry.actor == "agent:ezra"


def test_an_immutable_tag_keeps_a_consolidation_away_from_its_memory_only(agent: Agent) -> None:
    remember(agent, LONG * 3)
    plain = remember(agent, "Tea is good.", "Tea is good, Ann says.")
    voice = remember(agent, "Tea is good!", tags=["voice"])
    run = begin(agent)
    assert run.tool.execute("consolidate", ids=[*plain, *voice], content="Tea is good.")["type"] == "error"
    assert run.tool.execute("consolidate", ids=plain, content="Tea is good, Ann says.")["type"] == "consolidated"


def test_it_updates_deletes_and_protects_one_memory_each(agent: Agent) -> None:
    ids = remember(agent, *alike(10))
    run = begin(agent)

    updated = run.tool.execute("update", id=ids[0], content=SHORTER)
    deleted = run.tool.execute("delete", id=str(ids[1]), carried_by=str(ids[3]))
    protected = run.tool.execute("protect", id=ids[2])

    assert updated | {"retention": ""} == {
        **{"type": "updated", "id": ids[0], "tokens_before": 25, "tokens_after": 20},
        **{"changes_left": 9, "retention": ""},
    }
    assert deleted | {"retention": ""} == {
        "type": "deleted",
        "id": ids[1],
        "carried_by": ids[3],
        "changes_left": 8,
        "retention": "",
    }
    assert protected | {"retention": ""} == {"type": "protected", "id": ids[2], "changes_left": 8, "retention": ""}
    assert [updated["retention"], deleted["retention"], protected["retention"]] == ["0.9800", "0.8800", "0.8800"]
    row = run.reload()
    assert (row.mutations, row.stats) == (
        2,
        {
            **{"consolidated": 0, "updated": 1, "deleted": 1, "protected": 1, "deduplicated": 0, "refused": {}},
            **{"memories_merged": 0, "memories_before": 10, "memories_after": None},
            "specifics": {"checked": row.specifics_checked, "missing": 0, "restored": 0, "confirmed": 0},
        },
    )
    memory = db.session.get_one(Memory, ids[0], populate_existing=True)
    assert (memory.version, memory.updated_at) == (2, now())
    assert db.session.get_one(Memory, ids[2], populate_existing=True).constitutional


def test_a_change_announces_numbers_and_no_content(agent: Agent) -> None:
    ids = remember(agent, *alike(10))
    run = begin(agent)
    run.tool.execute("delete", id=ids[0], carried_by=ids[-1])
    event = db.session.scalars(db.select(Event).where(Event.kind == "refinement.operation")).one()
    assert event.data["id"] == ids[0]
    assert event.data["carrier"] == ids[-1]
    assert event.data["tokens"] == [25, 0]
    checked = run.reload().specifics_checked
    assert checked > 0
    assert event.data["specifics"] == {"checked": checked, "missing": 0, "restored": 0, "confirmed": 0}
    assert "promised" not in str(event.data)


def test_search_finds_text_in_any_case_and_takes_percent_and_underscore_literally(agent: Agent) -> None:
    ids = remember(agent, "Ann likes 50% rum.", "Bob likes 5 rums.", "snake_case", "snakeXcase", "STRASSE", "a\\b")
    remember(agent, "tea in the journal", type_=MemoryType.JOURNAL)
    remember(make_agent("eve"), "Eve likes rum.")
    run = begin(agent)

    def hits(query: str) -> list[int]:
        result = run.tool.execute("search", query=query)
        assert result["type"] == "search_results"
        assert set(result) == {"type", "query", "count", "results", "changes_left", "retention"}
        assert result["query"] == query.strip()
        assert result["count"] == len(result["results"])
        return [one["id"] for one in result["results"]]

    assert hits("LIKES") == ids[:2]
    assert hits("%") == hits("50% r") == ids[:1]
    assert hits("_") == hits("snake_") == [ids[2]]
    assert hits("straße") == [ids[4]]
    assert hits("\\") == [ids[5]]
    assert hits("tea") == hits("Eve") == hits("nothing") == hits("' OR 1=1 --") == []
    (found,) = run.tool.execute("search", query="snake_")["results"]
    assert set(found) == {"id", "date", "tokens", "content"}
    assert run.reload().mutations == 0


def test_search_keeps_to_the_days_asked_for_and_says_what_is_flagged(agent: Agent) -> None:
    ids = remember(agent, *(f"tea {n}" for n in range(24)))
    flagged = remember(agent, "tea flagged", constitutional=True, tags=["voice"])
    run = begin(agent)
    first = (now() - timedelta(days=30)).date()

    def found(**days: str) -> set[int]:
        return {one["id"] for one in run.tool.execute("search", query="tea", **days)["results"]}

    on_first, on_second = set(ids[:10]), {*ids[10:22], *flagged}
    assert found(until=first.isoformat()) == on_first
    assert (
        found(since=(first + timedelta(days=1)).isoformat(), until=(first + timedelta(days=1)).isoformat()) == on_second
    )
    assert found(since=(first + timedelta(days=2)).isoformat() + "T00:00:00Z") == set(ids[22:])
    assert found(since="2030-01-01") == found(since="2026-12-01", until="2026-01-01") == set()
    (one,) = run.tool.execute("search", query="flagged")["results"]
    assert (one["constitutional"], one["tags"]) == (True, ["voice"])


def test_a_broad_search_says_how_many_and_shows_the_oldest_that_fit(agent: Agent) -> None:
    remember(agent, *(f"tea {n}" for n in range(MAX_RESULTS + 5)))
    remember(agent, *("rum " * 2400 for _ in range(8)))
    run = begin(agent)
    result = run.tool.execute("search", query="tea")
    assert (result["count"], len(result["results"])) == (MAX_RESULTS + 5, MAX_RESULTS)
    result = run.tool.execute("search", query="rum")
    assert result["count"] == 8
    assert 0 < sum(len(one["content"]) for one in result["results"]) <= MAX_RESULT_CHARACTERS


def test_what_was_discarded_is_not_found_and_what_was_made_is(agent: Agent) -> None:
    ids = remember(agent, LONG * 3, "tea one", "tea two")
    run = begin(agent)
    run.tool.execute("consolidate", ids=f"{ids[1]}, {ids[2]}", content="tea one two")
    result = run.tool.execute("search", query="tea")
    assert [one["content"] for one in result["results"]] == ["tea one two"]


def test_complete_ends_it_with_the_true_counts_in_the_agents_journal(agent: Agent) -> None:
    ids = remember(agent, *alike(10))
    run = begin(agent)
    run.tool.execute("delete", id=ids[0], carried_by=ids[-1])

    result = run.tool.execute("complete", summary="I merged fifty memories.", note_to_admins="Thank  you.\n")

    stats = {"consolidated": 0, "updated": 0, "deleted": 1, "protected": 0, "deduplicated": 0, "refused": {}}
    stats |= {"memories_merged": 0, "memories_before": 10, "memories_after": 9}
    stats |= {"specifics": {"checked": run.reload().specifics_checked, "missing": 0, "restored": 0, "confirmed": 0}}
    assert result == {
        **{"type": "refinement_complete", "summary": "I merged fifty memories.", "stats": stats},
        **{"changes_left": 0, "retention": "0.9000"},
    }
    row = run.reload()
    assert (row.status, row.note_to_admins, row.mass_after) == (Status.COMPLETED, "Thank you.", 225)
    assert row.machine_line == "1 deleted, 10 → 9 memories, 250 → 225 tokens"
    assert row.summary is not None
    assert run.tool._keys.reveal(row.summary, purpose="summary", subject=row.id) == "I merged fifty memories."
    journal = db.session.scalars(Memory.active(agent.id, MemoryType.JOURNAL)).one()
    said = run.tool._keys.reveal_memory(journal.id, journal.content)
    assert "1 deleted, 10 → 9 memories, 250 → 225 tokens" in said
    assert "I merged fifty memories." in said
    assert db.session.get_one(Agent, agent.id, populate_existing=True).last_refinement_at == now()
    (entry,) = entries(row, Action.REFINEMENT_COMPLETE)
    assert entry.data["stats"] == stats
    assert "fifty" not in str(entry.data)


def test_completing_with_nothing_done_is_as_good(agent: Agent) -> None:
    remember(agent, "Ann likes tea.")
    run = begin(agent)
    assert run.tool.call("complete_refinement", '{"summary": "' + "s" * 10_000 + '"}')["type"] == "refinement_complete"
    row = run.reload()
    assert (row.status, row.machine_line) == (Status.COMPLETED, "no change, 4 → 4 tokens")


def test_functions_and_actions_do_the_same(app: Flask, agent: Agent) -> None:
    ids = remember(agent, *alike(20))
    run = begin(agent)
    assert [one["function"]["name"] for one in specifications()] == list(ACTIONS)
    types = [
        run.tool.call("search_memories", '{"query": "may", "since": null}')["type"],
        run.tool.call("consolidate_memories", f'{{"ids": "{ids[0]},{ids[1]}", "content": "{LONG}.,"}}')["type"],
        run.tool.call("update_memory", f'{{"id": "{ids[2]}", "content": "{LONG}"}}')["type"],
        run.tool.call("delete_memory", f'{{"id": {ids[3]}, "carried_by": {ids[5]}}}')["type"],
        run.tool.call("protect_memory", f'{{"id": {ids[4]}}}')["type"],
        run.tool.call("complete_refinement", '{"summary": "Done.", "note_to_admins": null}')["type"],
    ]
    assert types == ["search_results", "consolidated", "updated", "deleted", "protected", "refinement_complete"]
    assert_sound(app)
