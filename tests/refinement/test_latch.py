"""The latch: below the threshold the whole refinement is reversed, and nothing hides a cut from it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from app.extensions import db, writing
from app.models import COMMAND_LINE, Action, Agent, AuditLog, Memory, MemoryType, Mode, Refinement, Status
from app.refinement.dedup import remove_exact_duplicates
from tests.support.factories import Running, begin, ledger, make_agent, promote, remember

pytestmark = pytest.mark.usefixtures("nothing_missing")
"""Exact masses are what counts here, whatever the texts say."""


def words(tokens: int, letter: str = "a") -> str:
    """A text of exactly so many tokens."""
    return letter * (4 * tokens)


def with_threshold(threshold: str, *weights: int) -> tuple[Running, list[int]]:
    agent = make_agent(f"agent {threshold} {sum(weights)}", refinement_threshold=threshold)
    ids = remember(agent, *(words(weight, chr(97 + n % 26)) for n, weight in enumerate(weights)))
    run = begin(agent)
    assert (run.refinement.threshold, run.refinement.mass_before) == (Decimal(threshold), sum(weights))
    return run, ids


def protect_as_admin(agent: Agent, number: int) -> None:
    with writing():
        locked = Agent.lock(agent.id)
        Memory.lock_core(locked, number).protect(locked, by=COMMAND_LINE)


@pytest.mark.usefixtures("app")
def test_exactly_at_the_threshold_passes_and_one_token_less_trips() -> None:
    for threshold, weights in {"0.75": (74, 1, 25), "0.5": (4, 1, 5), "0.7501": (2500, 2500, 2500, 1, 2499)}.items():
        run, ids = with_threshold(threshold, *weights)
        before = ledger(run.agent)
        at = run.tool.execute("delete", id=ids[-1], carried_by=ids[0])
        assert (at["type"], Decimal(at["retention"])) == ("deleted", Decimal(threshold))
        under = run.tool.execute("delete", id=ids[-2], carried_by=ids[0])
        assert (under["type"], Decimal(under["retention"]) < Decimal(threshold)) == ("refinement_rolled_back", True)
        assert (run.reload().status, ledger(run.agent)) == (Status.ROLLED_BACK, before)


@pytest.mark.usefixtures("app")
def test_a_threshold_of_one_allows_growth_and_no_loss() -> None:
    run, ids = with_threshold("1", 5, 5)
    assert run.tool.execute("update", id=ids[0], content=words(9))["retention"] == "1.0000"
    assert run.tool.execute("update", id=ids[1], content=words(5, "z"))["retention"] == "1.0000"
    assert run.tool.execute("update", id=ids[1], content=words(4))["type"] == "refinement_rolled_back"


def test_a_trip_reverses_everything_byte_by_byte(agent: Agent) -> None:
    ids = remember(agent, *(words(50, chr(97 + n)) for n in range(10)), tags=["tea"])
    extra = remember(agent, words(20, "y"), words(10, "z"))
    run = begin(agent)
    before, entries = ledger(agent), db.session.scalar(db.select(db.func.count(AuditLog.id)))

    assert run.tool.execute("update", id=ids[0], content=words(49, "q"))["type"] == "updated"
    merged = run.tool.execute("consolidate", ids=extra, content=words(30, "m"))
    assert run.tool.execute("update", id=merged["id"], content=words(29, "m"))["type"] == "updated"
    assert run.tool.execute("protect", id=ids[3])["type"] == "protected"
    assert run.tool.execute("protect", id=ids[0])["type"] == "protected"
    assert run.tool.execute("delete", id=ids[1], carried_by=ids[-1])["type"] == "deleted"
    assert run.tool.execute("delete", id=ids[2], carried_by=ids[-1])["type"] == "deleted"
    result = run.tool.execute("consolidate", ids=ids[4:8], content=words(100, "n"))

    counts = {"consolidated": 2, "updated": 2, "deleted": 2, "protected": 2, "deduplicated": 0, "refused": {}}
    counts |= {"specifics": {"checked": 0, "missing": 0, "restored": 0, "confirmed": 0}}
    stats = counts | {"memories_merged": 6, "memories_before": 12, "memories_after": None}
    assert set(result) == {"type", "reason", "stats", "changes_left", "retention"}
    assert (result["type"], result["stats"], result["changes_left"]) == ("refinement_rolled_back", stats, 0)
    assert "rolled back" in result["reason"]
    assert "terminated" in result["reason"]
    assert ledger(agent) == before
    row = run.reload()
    assert (row.status, row.mutations, row.mass_after) == (Status.ROLLED_BACK, 6, 530)
    assert row.stats == stats | {"memories_after": 12}
    assert not db.session.get_one(Memory, merged["id"], populate_existing=True).is_active
    written = db.session.scalars(db.select(AuditLog).order_by(AuditLog.id).offset(entries)).all()
    assert [entry.action for entry in written][-2:] == [Action.REFINEMENT_ROLLBACK, Action.REFINEMENT_END]
    rollback = written[-2]
    assert rollback.data["retention"] == result["retention"] == str(row.retention)
    assert rollback.data | {"x": 1} == rollback.data | {
        **{"x": 1, "threshold": "0.7500", "mass_before": 530, "stats": stats, "restored": 11, "removed": 2}
    }
    journal = db.session.scalars(Memory.active(agent.id, MemoryType.JOURNAL)).one()
    told = run.tool._keys.reveal_memory(journal.id, journal.content)
    for part in ("rolled back", "2 consolidated, 2 updated, 2 deleted, 2 protected", "limit of 75%", "530 tokens"):
        assert part in told
    assert f"{530 - row.kept_mass} tokens would have been cut" in told  # type: ignore[operator]


def test_a_merge_that_the_next_merge_took_in_is_gone_after_a_trip(agent: Agent) -> None:
    ids = remember(agent, *(words(50, chr(97 + n)) for n in range(4)))
    run = begin(agent)
    before = ledger(agent)
    first = run.tool.execute("consolidate", ids=ids[:2], content=words(100, "m"))
    second = run.tool.execute("consolidate", ids=[first["id"], ids[2]], content=words(150, "n"))
    assert run.tool.execute("update", id=second["id"], content=words(1))["type"] == "refinement_rolled_back"

    assert ledger(agent) == before
    for merged in (first, second):
        assert not db.session.get_one(Memory, merged["id"], populate_existing=True).is_active


def test_what_others_did_meanwhile_stays(agent: Agent) -> None:
    ids = remember(agent, *(words(50, chr(97 + n)) for n in range(4)))
    run = begin(agent)
    before = {row[0]: row for row in ledger(agent)}
    run.tool.execute("update", id=ids[0], content=words(49, "q"))
    protect_as_admin(agent, ids[0])
    protect_as_admin(agent, ids[1])
    (saved,) = remember(agent, words(500, "s"))
    assert run.tool.execute("update", id=saved, content=words(1, "s"))["type"] == "updated"
    assert run.tool.execute("delete", id=ids[2], carried_by=ids[-1])["type"] == "refinement_rolled_back"

    after = {row[0]: row for row in ledger(agent)}
    content_to_flag = slice(1, 4)
    assert set(after) == {*ids, saved}
    assert [after[one][content_to_flag] for one in ids] == [before[one][content_to_flag] for one in ids]
    assert [after[one][4] for one in ids] == [True, True, False, False]
    assert after[saved][2] == 500


def test_a_memory_saved_meanwhile_that_a_consolidation_took_comes_back(agent: Agent) -> None:
    ids = remember(agent, *(words(50, chr(97 + n)) for n in range(4)))
    run = begin(agent)
    (saved,) = remember(agent, words(500, "s"))
    before = ledger(agent)
    result = run.tool.execute("consolidate", ids=[ids[0], saved], content=words(400, "m"))
    assert (result["type"], result["retention"]) == ("consolidated", "1.0000")
    assert run.tool.execute("delete", id=result["id"], carried_by=ids[-1])["type"] == "deleted"
    assert run.tool.execute("delete", id=ids[1], carried_by=ids[-1])["type"] == "refinement_rolled_back"
    assert ledger(agent) == before


def kept_after(run: Running, *calls: tuple[str, dict[str, Any]]) -> int:
    for action, arguments in calls:
        assert run.tool.execute(action, **arguments)["type"] != "error"
    kept = run.reload().kept_mass
    assert kept is not None
    return kept


def test_padding_one_memory_does_not_hide_ten_deletions(agent: Agent) -> None:
    ids = remember(agent, *(words(10, chr(97 + n)) for n in range(20)))
    run = begin(agent)
    assert kept_after(run, ("update", {"id": ids[0], "content": words(2000, "p")})) == 200
    for number in range(1, 6):
        assert run.tool.execute("delete", id=ids[number], carried_by=ids[-1])["type"] == "deleted"
    assert run.tool.execute("delete", id=ids[6], carried_by=ids[-1])["type"] == "refinement_rolled_back"
    assert sum(row[2] for row in ledger(agent)) == 200


def test_kept_mass_only_ever_falls(agent: Agent) -> None:
    ids = remember(agent, *(words(100, chr(97 + n)) for n in range(10)))
    run = begin(agent)
    grown = kept_after(run, ("update", {"id": ids[0], "content": words(300)}))
    shrunk = kept_after(run, ("update", {"id": ids[0], "content": words(60)}))
    again = kept_after(run, ("update", {"id": ids[0], "content": words(200)}))
    assert (grown, shrunk, again) == (1000, 960, 960)
    (new,) = remember(agent, words(100, "n"))
    assert kept_after(run, ("delete", {"id": new, "carried_by": ids[-1]})) == 960
    first = run.tool.execute("consolidate", ids=ids[1:3], content=words(150, "m"))["id"]
    assert kept_after(run) == 910
    second = run.tool.execute("consolidate", ids=[first, ids[0]], content=words(205, "w"))["id"]
    assert kept_after(run) == 905
    assert kept_after(run, ("update", {"id": second, "content": words(250)})) == 905
    assert kept_after(run, ("protect", {"id": second})) == 905
    assert run.reload().retention == Decimal("0.9050")


def test_a_promoted_or_new_memory_starts_at_nothing(agent: Agent) -> None:
    ids = remember(agent, *(words(10, chr(97 + n)) for n in range(4)))
    run = begin(agent)
    new = remember(agent, words(100, "n"), words(100, "o"))
    merged = run.tool.execute("consolidate", ids=[ids[0], *new], content=words(200, "m"))["id"]
    assert kept_after(run) == 40
    assert kept_after(run, ("update", {"id": merged, "content": words(9)})) == 39


def test_a_journal_entry_that_is_promoted_during_the_run_starts_at_nothing(agent: Agent) -> None:
    (noted,) = remember(agent, words(100, "n"), type_=MemoryType.JOURNAL)
    ids = remember(agent, *(words(10, chr(97 + n)) for n in range(4)))
    run = begin(agent)
    promote(agent, noted)
    merged = run.tool.execute("consolidate", ids=[ids[0], noted], content=words(100, "m"))["id"]
    assert kept_after(run) == 40
    assert kept_after(run, ("delete", {"id": merged, "carried_by": ids[-1]})) == 30


def test_mass_nought_never_trips(agent: Agent) -> None:
    (old,) = remember(agent, "a")
    run = begin(agent)
    with writing():
        row = Refinement.lock(run.refinement.id)
        row.mass_before = row.kept_mass = 0
    (new,) = remember(agent, words(10))
    assert run.tool.execute("delete", id=new, carried_by=old)["retention"] == "1.0000"
    assert run.tool.execute("complete", summary="Done.")["type"] == "refinement_complete"


def test_complete_checks_again(agent: Agent) -> None:
    ids = remember(agent, *(words(10, chr(97 + n)) for n in range(10)))
    run = begin(agent)
    run.tool.execute("delete", id=ids[0], carried_by=ids[-1])
    before = {row[0] for row in ledger(agent)} | {ids[0]}
    with writing():
        Refinement.lock(run.refinement.id).threshold = Decimal("0.95")
    result = run.tool.execute("complete", summary="Done.")
    assert result["type"] == "refinement_rolled_back"
    assert {row[0] for row in ledger(agent)} == before
    assert run.reload().status == Status.ROLLED_BACK


def test_duplicates_removed_before_stay_removed_after_a_trip(agent: Agent) -> None:
    ids = remember(agent, "Ann likes tea.", "Ann likes tea. ", words(10, "b"), words(10, "c"))
    run = begin(agent, mode=Mode.FULL)
    with writing():
        row, locked = Refinement.lock(run.refinement.id), Agent.lock(agent.id)
        assert remove_exact_duplicates(row, locked) == 1
        row.mass_before = row.kept_mass = locked.core_token_usage
        row.snapshot_entry_id = db.session.scalar(db.select(db.func.max(AuditLog.id)))
    before = ledger(agent)
    assert run.tool.execute("delete", id=ids[2], carried_by=ids[-1])["type"] == "refinement_rolled_back"
    assert ledger(agent) == before
    assert [row[0] for row in before] == [ids[0], *ids[2:]]
    assert run.reload().stats["deduplicated"] == 1


def test_a_settings_change_meanwhile_does_not_move_the_threshold(agent: Agent) -> None:
    ids = remember(agent, *(words(10, chr(97 + n)) for n in range(10)))
    run = begin(agent)
    with writing():
        Agent.lock(agent.id).change(by=COMMAND_LINE, refinement_threshold="1.00")
    assert run.tool.execute("delete", id=ids[0], carried_by=ids[-1])["type"] == "deleted"
