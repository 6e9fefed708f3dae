"""Erasing one memory: nobody can read any of it again, the log still proves itself, and nothing undoes it."""

from __future__ import annotations

import pytest
from flask import Flask
from sqlalchemy import func, select

from app.asking.replies import ConsentAnswer
from app.errors import Invalid, NotFound, Refused
from app.exchange.blind import blind_rows
from app.exchange.bundle import export_bundle
from app.extensions import db, writing
from app.grants import opening
from app.grants.request import decide_grant, request_access
from app.history.chain import Difference
from app.history.erasing import (
    LONGEST_REASON,
    MOST_A_DAY,
    Erasure,
    MemoryErased,
    TooManyErasures,
    erase_memory,
    find_due_data_keys,
    renew_data_key,
)
from app.history.plan import NothingToUndo, Target, preview_plan
from app.history.statement_proof import prove_agent
from app.history.undo import roll_back
from app.history.verify import verify
from app.keys.agent_keys import open_keys
from app.keys.shredding import is_due, shred_files
from app.models import (
    COMMAND_LINE,
    WORKER,
    AccessGrant,
    AccessView,
    Action,
    Agent,
    AuditLog,
    ContentKey,
    Memory,
    MemoryState,
    MemoryText,
    Refinement,
)
from app.models.memory_text import texts_of
from app.models.statement_errors import AgentStopped
from app.models.statement_log import current_of
from app.models.user import ADMIN
from app.silo import AgentKeys, SealBroken
from app.silo.sealed import version_of_key
from tests.grants.conftest import WISH
from tests.support.canary import canary
from tests.support.clock import FakeClock
from tests.support.databases import SERVER
from tests.support.factories import Running, begin, make_agent, make_user, remember, toggle
from tests.support.tampering import tamper
from tests.support.workers import everything_in

LATER = "erased_at = '2040-01-01 00:00:00.000000'"
BALLAST = "We met in Lisbon. " * 100
"""Heavy enough that no refinement here trips its latch."""


@pytest.fixture
def agent(app: Flask) -> Agent:
    return make_agent()


def erase(agent: Agent, memory_id: int, reason: str = "It was never meant to be kept.") -> Erasure:
    db.session.rollback()
    return erase_memory(agent.id, memory_id, by=COMMAND_LINE, reason=reason)


def finished(agent: Agent, *changes: tuple[str, dict[str, object]]) -> Refinement:
    run: Running = begin(agent)
    for name, arguments in changes:
        done = run.tool.execute(name, **arguments)
        assert done["type"] not in ("error", "would_lose"), done
    run.tool.execute("complete", summary="Tidied.")
    db.session.rollback()
    return run.refinement


def texts(agent: Agent) -> list[str]:
    db.session.rollback()
    keys, mine = open_keys(agent), db.session.scalars(Memory.active(agent.id)).all()
    return [keys.reveal_memory(memory.id, memory.content) for memory in mine]


def open_again(agent_id: int) -> None:
    """As a worker does before it opens anything."""
    with writing():
        open_keys(Agent.lock(agent_id))


def count(*conditions: object) -> int:
    return db.session.scalar(select(func.count()).where(*conditions)) or 0  # type: ignore[arg-type]


def test_it_leaves_no_text_no_hash_and_no_key_of_any_state_and_the_rest_as_it_was(app: Flask, agent: Agent) -> None:
    first, *_ = remember(agent, "Ann really likes tea.", "Bob likes rum.", BALLAST)
    finished(agent, ("update", {"id": first, "content": "Ann likes tea."}))
    assert count(MemoryText.memory_id == first) == 2

    receipt = erase(agent, first)

    db.session.rollback()
    assert (receipt.memory_id, receipt.states, receipt.made, receipt.copies) == (first, 2, [], [])
    assert [count(model.memory_id == first) for model in (MemoryText, ContentKey)] == [0, 0]
    assert "Bob likes rum." in texts(agent)
    assert not any("Ann likes" in text for text in texts(agent))
    assert db.session.get_one(Memory, first).discarded_at is not None
    entry = db.session.get_one(AuditLog, receipt.entry)
    assert (entry.action, entry.actor, entry.at) == (Action.ERASE, str(COMMAND_LINE), receipt.at)
    assert verify().ok, verify().first_problem


def test_the_totals_lose_an_active_one_and_nothing_for_a_discarded_one(app: Flask, agent: Agent) -> None:
    first, second, _ = remember(agent, "Ann likes tea.", "Bob likes rum. Ann likes tea.", BALLAST)
    finished(agent, ("delete", {"id": first, "carried_by": second}))
    before = db.session.get_one(Agent, agent.id, populate_existing=True).core_count
    erase(agent, first)
    assert db.session.get_one(Agent, agent.id, populate_existing=True).core_count == before == 2
    erase(agent, second)
    assert db.session.get_one(Agent, agent.id, populate_existing=True).core_count == 1
    assert verify().ok


def test_erased_once_it_is_gone_with_its_receipt(agent: Agent) -> None:
    (number,) = remember(agent, "Ann likes tea.")
    receipt = erase(agent, number, "  It was \n hers. ")

    assert Erasure.find(agent.id, number) == receipt
    assert receipt.reason == "It was hers."
    with pytest.raises(MemoryErased) as gone:
        erase(agent, number)
    assert (gone.value.http_status, gone.value.receipt) == (410, receipt.as_json())
    assert count(AuditLog.action == Action.ERASE) == 1


def test_another_agents_and_none_at_all_are_not_found(agent: Agent) -> None:
    (hers,) = remember(make_agent("eve"), "Eve likes gin.")
    for number in (hers, 404):
        with pytest.raises(NotFound):
            erase(agent, number)
    assert count(MemoryText.memory_id == hers) == 1


def test_never_while_a_refinement_is_open(agent: Agent) -> None:
    (number,) = remember(agent, "Ann likes tea.")
    run = begin(agent)
    with pytest.raises(Refused, match=rf"Refinement {run.refinement.id} is open.*Nothing was erased"):
        erase(agent, number)
    run.tool.execute("complete", summary="Fine.")
    erase(agent, number)


def test_a_constitutional_one_only_when_an_admin_released_it(agent: Agent) -> None:
    (number,) = remember(agent, "We never lie.", constitutional=True)
    with pytest.raises(Refused, match="constitutional"):
        erase(agent, number)
    toggle(agent, number, on=False)
    erase(agent, number)
    assert verify().ok


def test_an_agent_erases_ten_a_day_and_a_human_is_not_counted(agent: Agent, clock: FakeClock) -> None:
    ids = remember(agent, *(f"Number {number}." for number in range(MOST_A_DAY + 3)))
    erase(agent, ids.pop())
    for number in ids[:MOST_A_DAY]:
        erase_memory(agent.id, number, by=agent.as_actor)
    with pytest.raises(TooManyErasures, match=r"10 memories within 24 hours.*Nothing was erased"):
        erase_memory(agent.id, ids[-1], by=agent.as_actor)
    clock.advance(hours=24, seconds=1)
    erase_memory(agent.id, ids[-1], by=agent.as_actor)


def test_a_reason_is_a_line_of_text_and_not_too_long(agent: Agent) -> None:
    (number,) = remember(agent, "Ann likes tea.")
    for wrong in ("x" * (LONGEST_REASON + 1), "\x00", 7):
        with pytest.raises(Invalid):
            erase_memory(agent.id, number, by=COMMAND_LINE, reason=wrong)
    assert texts(agent) == ["Ann likes tea."]


def test_what_was_made_from_it_and_copies_of_its_words_are_named_and_stay(agent: Agent) -> None:
    said = ("Ann likes tea a lot.", "Ann likes milk a lot.", "Bob likes rum.", "Cy left.", BALLAST)
    together = "Ann likes tea a lot, and milk. Bob likes rum"
    one, two, three, four, _ = remember(agent, *said)
    run = begin(agent)
    merged = run.tool.execute("consolidate", ids=[one, two], content="Ann likes tea a lot, and milk.")["id"]
    again = run.tool.execute("consolidate", ids=[merged, three], content=together)["id"]
    run.tool.execute("complete", summary="Merged.")
    (copy,) = remember(agent, "Ann likes tea a lot.")

    receipt = erase(agent, one)

    assert (receipt.made, receipt.copies) == ([merged, again], [copy])
    assert f"Made from it, and still there: {merged}, {again}. The same words stand in: {copy}." in receipt.sentence
    assert together in texts(agent)
    assert erase(agent, merged).made == [again]
    assert erase(agent, four).made == []


def test_all_other_content_keys_are_under_a_new_data_key_and_older_ones_open_no_memory(agent: Agent) -> None:
    first, second = remember(agent, "Ann likes tea.", "Bob likes rum.")
    copied = open_keys(agent)
    stolen = AgentKeys(copied.agent_uuid, dict(copied._data), copied._dedup)
    db.session.rollback()

    erase(agent, first)

    db.session.rollback()
    keys = dict(db.session.execute(select(ContentKey.memory_id, ContentKey.sealed)).tuples().all())
    assert {version_of_key(sealed) for sealed in keys.values()} == {2}
    for number, sealed in Memory.read_contents(select(Memory).where(Memory.agent_id == agent.id)):
        with pytest.raises(SealBroken):
            stolen.reveal_memory(number, sealed)
    assert texts(agent) == ["Bob likes rum."]
    rotation = db.session.scalars(select(AuditLog).where(AuditLog.action == Action.AGENT_KEY_ROTATE)).one()
    assert (rotation.data["version"], rotation.data["rewrapped"]) == (2, len(keys))
    assert second in keys


def test_a_process_without_the_master_key_leaves_the_data_key_to_a_worker_and_it_is_done_once(
    app: Flask, agent: Agent
) -> None:
    first, _ = remember(agent, "Ann likes tea.", "Bob likes rum.")
    db.session.rollback()
    master = app.extensions.pop("master_key")
    erase(agent, first)
    assert find_due_data_keys() == [agent.id]
    db.session.rollback()

    app.extensions["master_key"] = master
    for _ in range(2):
        renew_data_key(agent.id, by=WORKER)
        db.session.rollback()

    assert (find_due_data_keys(), open_keys(agent).versions) == ([], [1, 2])
    assert texts(agent) == ["Bob likes rum."]
    assert verify().ok


def test_the_files_are_to_be_cleaned_and_are(agent: Agent) -> None:
    (number,) = remember(agent, "Ann likes tea.")
    erase(agent, number)
    assert is_due()
    assert shred_files()
    assert not is_due()
    assert verify().ok


def test_undo_redo_and_rewind_leave_it_out_say_so_and_apply_the_rest(app: Flask, agent: Agent) -> None:
    said = ("Ann really likes tea.", "Bob really likes rum.", "Cy left for good.", "Cy left for good. Dan stays.")
    one, two, three, carrier, _ = remember(agent, *said, BALLAST)
    refinement = finished(
        agent,
        ("update", {"id": one, "content": "Ann likes tea."}),
        ("update", {"id": two, "content": "Bob likes rum."}),
        ("delete", {"id": three, "carried_by": carrier}),
    )
    erase(agent, one)
    db.session.rollback()

    target = Target.refinement(refinement.id)
    plan = preview_plan(target)
    assert (plan.erased, plan.conflicts) == ((one,), ())
    db.session.rollback()
    undone = roll_back(target, by=COMMAND_LINE)
    assert undone.applied
    assert undone.rollback is not None
    rollback_id, entry_id = undone.rollback.id, undone.rollback.entry_id
    assert db.session.get_one(AuditLog, entry_id).data["erased"] == [one]
    assert texts(agent)[:2] == ["Bob really likes rum.", "Cy left for good."]

    erase(agent, three)
    db.session.rollback()
    redone = roll_back(Target.rollback(rollback_id), by=COMMAND_LINE)
    assert (redone.applied, redone.plan.erased) == (True, (three,))
    assert texts(agent)[0] == "Bob likes rum."
    rewound = roll_back(Target.rewind(refinement.id), by=COMMAND_LINE)
    assert rewound.plan.erased == (one, three)
    assert texts(agent) == ["Bob really likes rum.", said[3], BALLAST]
    assert verify().ok, verify().first_problem


def test_the_erasure_itself_can_not_be_undone(agent: Agent) -> None:
    (number,) = remember(agent, "Ann likes tea.")
    receipt = erase(agent, number)
    db.session.rollback()
    with pytest.raises(NothingToUndo, match="erased a memory for good"):
        roll_back(Target.entry(receipt.entry), by=COMMAND_LINE)


def test_the_import_that_brought_it_is_undone_without_it(agent: Agent) -> None:
    ids = remember(agent, "Ann likes tea.", "Bob likes rum.")
    brought = db.session.scalars(select(AuditLog.id).where(AuditLog.action == Action.CREATE)).one()
    erase(agent, ids[0])
    db.session.rollback()
    done = roll_back(Target.entry(brought), by=COMMAND_LINE)
    assert (done.applied, done.plan.erased, done.plan.memories) == (True, (ids[0],), (ids[1],))
    assert verify().ok


@pytest.mark.parametrize("change", ["discarded_at = NULL", "erased_at = NULL", "erased_at = '2020-01-01 00:00:00'"])
def test_the_database_itself_lets_nobody_bring_it_back(agent: Agent, change: str) -> None:
    (number,) = remember(agent, "Ann likes tea.")
    erase(agent, number)
    with pytest.raises(Exception, match="an erased memory stays erased"), writing() as session:
        session.execute(db.text(f"UPDATE memories SET {change} WHERE id = :id"), {"id": number})


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE memories SET erased_at = NULL WHERE id = 1", "erased memory 1, but its row does not say so"),
        (
            "UPDATE memories SET erased_at = '2020-01-01 00:00:00.000000' WHERE id = 1",
            "erased_at of memory 1 is not what entry",
        ),
        (
            "UPDATE memories SET erased_at = '2020-01-01 00:00:00.000000' WHERE id = 2",
            "erased_at of memory 2 is not what no entry says",
        ),
        (
            "INSERT INTO content_keys (memory_id, agent_id, sealed) SELECT 1, agent_id, sealed FROM content_keys"
            " WHERE memory_id = 2",
            "memory 1 was erased, but its text or its key is there again",
        ),
        (
            "INSERT INTO memory_texts (memory_id, content_digest, agent_id, sealed, content_hash)"
            " SELECT 1, content_digest, agent_id, sealed, content_hash FROM memory_texts WHERE memory_id = 2",
            "memory 1 was erased, but its text or its key is there again",
        ),
    ],
    ids=["not erased", "at another time", "another one", "a key", "a text"],
)
def test_verify_knows_what_was_erased_and_by_which_entry(agent: Agent, statement: str, said: str) -> None:
    assert remember(agent, "Ann likes tea.", "Bob likes rum.") == [1, 2]
    erase(agent, 1)
    assert verify().ok
    assert tamper(statement) == 1
    assert said in str(verify().first_problem)


@pytest.mark.parametrize(
    "columns",
    ["content_keys memory_id agent_id sealed", "memory_texts memory_id content_digest agent_id sealed content_hash"],
)
def test_the_log_of_statements_says_it_too(agent: Agent, columns: str) -> None:
    assert remember(agent, "Ann likes tea.", "Bob likes rum.") == [1, 2]
    erase(agent, 1)
    number, (table, key, *others) = agent.id, columns.split()
    rest = ", ".join(others)
    assert tamper(f"INSERT INTO {table} ({key}, {rest}) SELECT 1, {rest} FROM {table} WHERE {key} = 2") == 1
    with pytest.raises(Difference, match="Memory 1 of ezra was erased, and its text or its key is there again"):
        prove_agent(db.session.get_one(Agent, number))


def test_a_page_that_waits_for_a_look_goes_too(agent: Agent) -> None:
    (number,) = remember(agent, "Ann likes tea.")
    ann = make_user("ann@example.org", ADMIN)
    grant = request_access(agent.id, WISH, for_user=ann, by=ann.actor)
    decide_grant(grant.id, ConsentAnswer(granted=True), agent_id=agent.id, by=agent.as_actor, keys=None)
    look = opening.look(db.session.get_one(AccessGrant, grant.id), ann)
    opening.answer_view(look.view_id)
    db.session.rollback()
    assert db.session.get_one(AccessView, look.view_id).sealed is not None

    erase(agent, number)

    db.session.rollback()
    assert db.session.get_one(AccessView, look.view_id, populate_existing=True).sealed is None


def test_no_list_no_export_and_no_prompt_shows_it(agent: Agent) -> None:
    first, second = remember(agent, canary("ledger"), "Bob likes rum.")
    pieces = export_bundle(agent, open_keys(agent))
    begun = next(pieces)
    erase(agent, first)
    whole = begun + "".join(pieces)
    assert (canary("ledger") in whole, "Bob likes rum." in whole) == (False, True)
    assert [row.id for row in blind_rows(agent.id, discarded=True) if row.type == "core"] == [second]


def test_states_stay_and_hold_nothing_but_digests(app: Flask, agent: Agent) -> None:
    (number,) = remember(agent, "Ann likes tea.")
    digests = set(db.session.scalars(select(MemoryState.content_digest).where(MemoryState.memory_id == number)))
    erase(agent, number)
    states = db.session.scalars(select(MemoryState).where(MemoryState.memory_id == number)).all()
    assert {state.content_digest for state in states} == digests
    assert len(states) == 2


def test_it_is_stated_in_the_log_and_what_comes_back_stops_the_agent(agent: Agent) -> None:
    first, second = remember(agent, "Ann likes tea.", "Bob likes rum.")
    erase(agent, first)
    db.session.rollback()
    stated = current_of(agent.id, agent.uuid).erased
    assert {number: dict(said.body) for number, said in stated.items()} == {
        str(first): {"by": str(COMMAND_LINE), "reason": "It was never meant to be kept.", "states": 1, "made": []}
    }
    assert texts(agent) == ["Bob likes rum."]
    number = agent.id
    tamper("UPDATE memories SET erased_at = NULL WHERE id = :id", id=first)
    with pytest.raises(AgentStopped, match=rf"memory {first} of ezra was erased, and its row says that it stands"):
        open_again(number)
    tamper("UPDATE memories SET erased_at = updated_at WHERE id IN (:first, :second)", first=first, second=second)
    with pytest.raises(AgentStopped, match=f"memory {second} of ezra is erased in its row, and by nobody"):
        open_again(number)


def test_neither_its_sealed_bytes_nor_its_hash_nor_its_key_are_left_in_the_files(app: Flask, agent: Agent) -> None:
    """Whoever kept an earlier data key opens nothing of it with what the database's files hold from now on."""
    first, second, _ = remember(agent, "Ann really likes tea.", "Bob likes rum.", BALLAST)
    refinement = finished(agent, ("update", {"id": first, "content": "Ann likes tea."}))
    sealed = texts_of(MemoryText.memory_id == first).values()
    gone = [part for each in sealed for part in (each.check_whole()[0].at_rest, *each.check_whole()[1:])]
    kept = next(iter(texts_of(MemoryText.memory_id == second).values())).check_whole()[0].at_rest
    db.session.rollback()

    erase(agent, first)
    done = roll_back(Target.refinement(refinement.id), by=COMMAND_LINE)
    assert done.plan.erased == (first,)
    db.session.rollback()
    assert shred_files()

    files = b"".join(content for _, content in everything_in(app.extensions["settings"].data))
    assert SERVER or kept in files
    assert len(gone) == 6
    assert not any(part in files for part in gone)
