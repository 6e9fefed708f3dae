"""The same words on two days can be two events: whatever is merged or removed, no date of it is lost."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from flask import Flask

from app.asking.prompt_memories import read_entries
from app.exchange.bundle import export_bundle
from app.exchange.draft import ImportRefused
from app.exchange.taking_in import receive_file, take_in
from app.extensions import db, writing
from app.history.plan import Target
from app.history.undo import roll_back
from app.history.verify import verify
from app.keys.agent_keys import open_keys
from app.models import COMMAND_LINE, Agent, Memory, MemoryType, Mode, Source
from app.reflection.conversation import hand_in, reflect_on_conversation
from app.reflection.promotion import run_promotion
from app.values.dates import MOST_DATES, SHOWN_DAYS
from tests.history.going_back import everything
from tests.refinement.driving import DONE, LONG, call, carry, say
from tests.refinement.soundness import assert_sound
from tests.reflection.conftest import means_of
from tests.support.clock import FakeClock
from tests.support.factories import begin, import_lines, ledger, make_agent, remember, toggle

pytestmark = pytest.mark.once

EXAM = "I had an exam."
THIRTEENTH, NINETEENTH = datetime(2026, 1, 13, 9, tzinfo=UTC), datetime(2026, 1, 19, 9, tzinfo=UTC)


@pytest.fixture
def agent(app: Flask) -> Agent:
    return make_agent(model_id="openai/scripted", core_token_budget=1_000_000)


def core(agent: Agent) -> list[Memory]:
    db.session.rollback()
    query = Memory.active(agent.id, MemoryType.CORE).execution_options(populate_existing=True)
    return list(db.session.scalars(query))


def dates(agent: Agent) -> list[tuple[datetime, list[datetime]]]:
    return [(memory.origin_at, memory.other_dates) for memory in core(agent)]


def deduplicate(agent: Agent) -> str:
    return carry(agent, mode=Mode.DEDUP_ONLY).refinement.id


def bring(agent: Agent, *memories: dict[str, Any]) -> None:
    lines = (json.dumps({"content": EXAM} | each) for each in memories)
    import_lines(agent.id, lines, keys=open_keys(agent), by=COMMAND_LINE)


def days(*offsets: int) -> list[datetime]:
    return [THIRTEENTH + timedelta(days=offset) for offset in offsets]


def test_an_exact_duplicate_leaves_its_date_with_the_earlier_one(app: Flask, agent: Agent) -> None:
    remember(agent, EXAM, at=NINETEENTH)
    remember(agent, EXAM, at=THIRTEENTH)
    deduplicate(agent)
    assert dates(agent) == [(THIRTEENTH, [NINETEENTH])]
    assert_sound(app)
    assert verify().ok


def test_upper_and_lower_case_and_inner_space_make_another_memory(agent: Agent) -> None:
    ids = remember(agent, "May will come.", "may will come.", "May  will come.", "May will\ncome.")
    deduplicate(agent)
    assert [row[0] for row in ledger(agent)] == ids


def test_line_ends_alone_make_none(agent: Agent) -> None:
    first, _ = remember(agent, "Tea.\nRum.", "Tea.\r\nRum.")
    deduplicate(agent)
    assert [row[0] for row in ledger(agent)] == [first]


def test_a_constitutional_copy_stays_as_it_is_and_takes_the_earlier_dates_too(agent: Agent) -> None:
    remember(agent, EXAM, at=THIRTEENTH, tags=["school"])
    (kept,) = remember(agent, EXAM, at=NINETEENTH, constitutional=True)
    (also,) = remember(agent, EXAM, at=NINETEENTH + timedelta(days=1), constitutional=True)
    deduplicate(agent)
    assert [(m.id, m.origin_at, m.other_dates, m.tags, m.version) for m in core(agent)] == [
        (kept, NINETEENTH, [THIRTEENTH], ["school"], 2),
        (also, NINETEENTH + timedelta(days=1), [], [], 1),
    ]


def test_moments_of_one_day_are_kept_and_the_ledger_shows_the_day_once(agent: Agent) -> None:
    evening = THIRTEENTH + timedelta(hours=9, microseconds=7)
    for at in (THIRTEENTH, evening, NINETEENTH, NINETEENTH, NINETEENTH + timedelta(hours=1)):
        remember(agent, EXAM, at=at)
    deduplicate(agent)
    assert dates(agent) == [(THIRTEENTH, [evening, NINETEENTH, NINETEENTH + timedelta(hours=1)])]
    (entry,) = read_entries(agent.id, open_keys(agent))
    assert (entry.as_dict()["date"], entry.as_dict()["other_dates"]) == ("2026-01-13", ["2026-01-19"])


def test_copies_of_one_moment_change_nothing_of_the_one_that_stays(agent: Agent) -> None:
    (kept,) = remember(agent, EXAM, at=THIRTEENTH)
    remember(agent, EXAM, at=THIRTEENTH)
    before = [row for row in ledger(agent) if row[0] == kept]
    deduplicate(agent)
    assert ledger(agent) == before


def test_a_second_removal_finds_nothing_left_to_do(agent: Agent) -> None:
    for at in days(0, 6, 8):
        remember(agent, EXAM, at=at)
    deduplicate(agent)
    before = everything(agent)
    deduplicate(agent)
    assert everything(agent) == before


def test_the_undo_of_a_dedup_and_its_redo_are_exact_to_the_byte(app: Flask, agent: Agent) -> None:
    for at in days(6, 0, 8):
        remember(agent, EXAM, at=at)
    before = everything(agent)
    refinement_id = deduplicate(agent)
    after = everything(agent)
    undone = roll_back(Target.refinement(refinement_id), by=COMMAND_LINE)
    assert everything(agent) == before
    assert undone.rollback is not None
    roll_back(Target.rollback(undone.rollback.id), by=COMMAND_LINE)
    assert everything(agent) == after
    assert_sound(app)
    assert verify().ok


def test_a_consolidation_has_the_earliest_date_and_all_the_others(app: Flask, agent: Agent) -> None:
    for at in days(6, 8):
        remember(agent, EXAM, at=at, tags=["school"])
    deduplicate(agent)
    remember(agent, "I had an exam at school.", at=THIRTEENTH, tags=["ann"])
    ids = [memory.id for memory in core(agent)]
    remember(agent, LONG)
    run = begin(agent)
    before = everything(agent)
    assert run.tool.execute("consolidate", ids=ids, content="I had an exam at school.")["type"] == "consolidated"
    merged = next(memory for memory in core(agent) if memory.id not in before)
    assert (merged.origin_at, merged.other_dates) == (THIRTEENTH, days(6, 8))
    assert (merged.tags, merged.version) == (["ann", "school"], 1)
    roll_back(Target.refinement(run.refinement.id), by=COMMAND_LINE)
    assert {number: state for number, state in everything(agent).items() if number in before} == before
    assert_sound(app)


def test_a_latch_gives_the_dates_back_as_they_were(agent: Agent) -> None:
    ids = [remember(agent, text, at=at)[0] for text, at in ((EXAM * 20, NINETEENTH), (EXAM, THIRTEENTH))]
    before = dates(agent)
    trip = call("consolidate_memories", ids=ids, content=EXAM)
    assert carry(agent, say("YES"), trip, say("Oh.")).status == "rolled_back"
    assert dates(agent) == before


def test_a_memory_merged_a_thousand_times_is_full_and_the_rest_stays_beside_it(agent: Agent) -> None:
    bring(agent, *({"created_at": at.isoformat()} for at in days(*range(-MOST_DATES * 2, 50))))
    deduplicate(agent)
    held = dates(agent)
    assert [1 + len(others) for _, others in held] == [MOST_DATES, MOST_DATES, 50]
    assert sorted(at for own, others in held for at in (own, *others)) == days(*range(-MOST_DATES * 2, 50))
    before = everything(agent)
    deduplicate(agent)
    assert everything(agent) == before
    assert verify().ok


def test_a_consolidation_or_deletion_that_would_lose_dates_is_refused_and_costs_nothing(agent: Agent) -> None:
    bring(agent, *({"created_at": at.isoformat()} for at in days(*range(-MOST_DATES, 0))))
    deduplicate(agent)
    (full,) = (memory.id for memory in core(agent))
    extra, longer = remember(agent, EXAM + "!", f"{EXAM} {LONG}", at=NINETEENTH)
    run = begin(agent)
    before = everything(agent)
    merge = {"ids": [full, extra], "content": EXAM}
    for action, arguments in {"consolidate": merge, "delete": {"id": extra, "carried_by": full}}.items():
        refused = run.tool.execute(action, **arguments)
        assert (refused["type"], refused["changes_left"]) == ("error", 10)
        assert "1,001 dates" in refused["error"]
        assert everything(agent) == before
    assert run.tool.execute("delete", id=extra, carried_by=longer)["changes_left"] == 9


def test_the_agent_reads_the_latest_days_and_how_many_more_there_are(agent: Agent) -> None:
    bring(agent, *({"created_at": at.isoformat()} for at in days(*range(100))))
    deduplicate(agent)
    asked = carry(agent, say("YES"), call("search_memories", query="exam"), DONE).client.asked
    for told in (asked[1].messages[1]["content"], asked[2].messages[-1]["content"]):
        latest = json.dumps([at.date().isoformat() for at in days(*range(100))][-SHOWN_DAYS:])
        assert f'"date": "2026-01-13", "other_dates": {latest}, "more_dates": {99 - SHOWN_DAYS}' in told


def test_a_search_by_date_finds_a_memory_by_each_of_its_dates(agent: Agent) -> None:
    for at in days(0, 6):
        remember(agent, EXAM, at=at)
    deduplicate(agent)
    tool = begin(agent).tool
    found = {
        since: tool.execute("search", query="exam", since=since, until=since)["count"]
        for since in ("2026-01-13", "2026-01-19", "2026-01-14")
    }
    assert found == {"2026-01-13": 1, "2026-01-19": 1, "2026-01-14": 0}


def test_a_bundle_takes_the_dates_along_and_brings_them_back_once(agent: Agent) -> None:
    for at in days(0, 6):
        remember(agent, EXAM, at=at)
    deduplicate(agent)
    data = "".join(export_bundle(agent, open_keys(agent))).encode()
    assert json.loads(data)["memories"][0]["other_dates"] == ["2026-01-19T09:00:00Z"]
    other = make_agent("other")
    for each in (agent, other, other):
        take_in(receive_file(each.id, data, by=each.as_actor).intake_id)
    assert dates(agent) == dates(other) == [(THIRTEENTH, [NINETEENTH])]


@pytest.mark.parametrize(
    "wrong",
    ["2026-01-13", [7], [None], ["yesterday"], ["9999-01-01"], ["0001-01-01"], {"a": 1}, ["2026-01-01"] * MOST_DATES],
)
def test_dates_that_are_none_are_refused_without_being_told(agent: Agent, wrong: object) -> None:
    said = {"format": "whetstone-bundle/1", "memories": [{"content": EXAM, "other_dates": wrong}]}
    with pytest.raises(ImportRefused) as refused:
        receive_file(agent.id, json.dumps(said).encode(), by=agent.as_actor)
    assert "yesterday" not in refused.value.sentence


def test_a_file_that_comes_twice_adds_nothing_and_one_with_another_date_adds_that(agent: Agent) -> None:
    def brought(*memories: dict[str, Any]) -> int:
        data = "\n".join(json.dumps({"content": EXAM} | each) for each in memories).encode()
        before = len(core(agent))
        take_in(receive_file(agent.id, data, by=agent.as_actor).intake_id)
        return len(core(agent)) - before

    first, second = ({"created_at": at.isoformat()} for at in (THIRTEENTH, NINETEENTH))
    assert [brought(first), brought(first), brought(first, second), brought(second)] == [1, 0, 1, 0]
    deduplicate(agent)
    assert dates(agent) == [(THIRTEENTH, [NINETEENTH])]
    assert [brought(first, second), brought({}), brought({"content": EXAM.upper()} | first)] == [0, 0, 1]


def saved(agent: Agent, content: str, type_: MemoryType = MemoryType.CORE) -> tuple[Memory, bool]:
    with writing():
        locked = Agent.lock(agent.id)
        return Memory.save(locked, content, keys=open_keys(locked), by=locked.as_actor, type_=type_)


def test_what_is_saved_again_on_another_day_keeps_that_day(agent: Agent, clock: FakeClock) -> None:
    first = saved(agent, EXAM)[0]
    began = clock.at
    clock.advance(hours=1)
    assert saved(agent, EXAM) == (first, False)
    clock.advance(hours=24)
    later = clock.at
    assert saved(agent, EXAM)[1]
    deduplicate(agent)
    assert dates(agent) == [(began, [later])]
    assert not saved(agent, EXAM)[1]


def test_a_conversation_of_another_day_keeps_its_date(agent: Agent, clock: FakeClock) -> None:
    began = clock.at
    for _ in range(2):
        intake = hand_in(agent.id, [{"role": "user", "content": "Hello."}], agent.as_actor)
        for _ in range(2):
            reflect_on_conversation(intake.id, means_of(say(json.dumps({"journal": [], "core": [EXAM]})))[0])
        clock.advance(hours=24)
    deduplicate(agent)
    assert dates(agent) == [(began, [began + timedelta(hours=24)])]


def test_a_journal_entry_of_another_day_can_be_promoted_and_one_of_the_same_day_is_left(
    agent: Agent, clock: FakeClock
) -> None:
    saved(agent, EXAM)
    same = saved(agent, EXAM, MemoryType.JOURNAL)[0].id
    clock.advance(hours=24)
    other = saved(agent, EXAM, MemoryType.JOURNAL)[0].id
    run_promotion(agent.id, means_of(say(json.dumps({"promote": [same, other]})))[0])
    assert [memory.source for memory in core(agent)] == [Source.AGENT, Source.PROMOTION]
    deduplicate(agent)
    assert dates(agent) == [(clock.at - timedelta(hours=24), [clock.at])]


def test_a_flag_that_an_admin_sets_leaves_the_dates(agent: Agent) -> None:
    for at in days(0, 6):
        remember(agent, EXAM, at=at)
    refinement_id = deduplicate(agent)
    toggle(agent, core(agent)[0].id)
    assert dates(agent) == [(THIRTEENTH, [NINETEENTH])]
    roll_back(Target.refinement(refinement_id), by=COMMAND_LINE)
    assert sorted(at for at, _ in dates(agent)) == [THIRTEENTH, NINETEENTH]
    assert [others for _, others in dates(agent)] == [[], []]
