"""Whatever is altered in the log or in the states behind the product's back is found, and the entry is named."""

from __future__ import annotations

import pytest
from flask import Flask
from sqlalchemy import select, text

from app.extensions import WRITES, db, writing
from app.history.verify import verify
from app.models import COMMAND_LINE, Agent, AuditLog, MemoryState
from app.models.state import STATE_FIELDS
from tests.support.databases import SERVER
from tests.support.tampering import OTHER, entries, entry, found, hash_anew, live, removed, rows, tamper

sqlite_only = pytest.mark.skipif(bool(SERVER), reason="PostgreSQL keeps no text where a number, date or JSON belongs")


@pytest.fixture
def agent(app: Flask) -> Agent:
    return live()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("actor", "'user:nobody'"),
        ("actor_kind", "'user'"),
        ("user_id", "1"),
        ("action", "'memory_create'"),
        ("subject", "'memory:7'"),
        ("refinement_id", "CASE WHEN refinement_id IS NULL THEN (SELECT id FROM refinements) END"),
        ("data", """'{"id": 7}'"""),
        ("at", "'2026-01-01 00:00:00.000000'"),
        ("account_id", "2"),
        ("agent_id", "NULL"),
        ("hash", "previous_hash"),
        ("previous_hash", "hash"),
    ],
)
def test_an_edited_entry_is_named_whatever_was_edited(agent: Agent, column: str, value: str) -> None:
    number = 3
    named = entry(number)

    assert tamper(f"UPDATE audit_log SET {column} = {value} WHERE agent_id = 1 AND sequence = {number}") == 1

    assert named in str(verify().first_problem)
    assert named in str(verify(db.session.get_one(Agent, 1)).first_problem)


def test_every_deleted_entry_is_missed(agent: Agent) -> None:
    for number, _ in entries()[:-1]:
        follower = entry(number + 1)
        with removed("audit_log", f"agent_id = 1 AND sequence = {number}"):
            found(f"entry {number} is missing: what comes is {follower}")
    assert verify().ok


def test_a_log_cut_off_at_its_end_is_missed_however_much_of_it_went(agent: Agent) -> None:
    written = entries()[-1][0]
    for number, _ in entries()[1:]:
        last = entry(number - 1)
        with removed("audit_log", f"agent_id = 1 AND sequence >= {number}"):
            found(f"the log ends at {last}, but {written} were written", at=number - 1)
    with removed("audit_log", "agent_id = 1"):
        found(f"the log ends at no entry, but {written} were written")
    assert verify().ok


COPY = (
    "INSERT INTO audit_log (id, chain, sequence, account_id, agent_id, actor_kind, actor, user_id, action, subject,"
    " refinement_id, data, at, previous_hash, hash) SELECT 999, chain, {sequence}, account_id, agent_id, actor_kind,"
    " actor, user_id, action, subject, refinement_id, data, at, {previous}, hash FROM audit_log"
    " WHERE agent_id = 1 AND sequence = 2"
)


@pytest.mark.parametrize("sequence", [0, -1])
def test_an_entry_inserted_before_all_others_is_named(agent: Agent, sequence: int) -> None:
    tamper(COPY.format(sequence=sequence, previous="previous_hash"))

    found(f"entry {sequence} (id 999) was inserted: number 1 was to come", at=sequence)


def test_an_entry_inserted_between_two_is_named(agent: Agent) -> None:
    tamper("UPDATE audit_log SET sequence = sequence + 1000 WHERE agent_id = 1 AND sequence > 3")
    tamper("UPDATE audit_log SET sequence = sequence - 999 WHERE agent_id = 1 AND sequence > 1000")
    tamper(COPY.format(sequence=4, previous="(SELECT hash FROM audit_log WHERE agent_id = 1 AND sequence = 3)"))

    found("entry 4 (id 999) was altered", at=4)


def test_an_entry_appended_with_a_hash_that_fits_is_named(agent: Agent) -> None:
    number = len(entries()) + 1
    tamper(COPY.format(sequence=number, previous="previous_hash"))
    sequence, head = rows("SELECT audit_sequence, audit_head FROM agents")[0]
    hash_anew(agent)
    tamper("UPDATE agents SET audit_sequence = :sequence, audit_head = :head", sequence=sequence, head=head)

    found(f"entry {number} (id 999) was appended by hand: {number - 1} were written", at=number)


def test_an_entry_that_is_rewritten_with_a_hash_that_fits_breaks_the_chain_behind_it(agent: Agent) -> None:
    """Whoever edits an entry and its hash has to write anew all that follows."""
    tamper("UPDATE audit_log SET subject = 'memory:7' WHERE agent_id = 1 AND sequence = 3")
    third = db.session.scalars(select(AuditLog).where(AuditLog.agent_id == 1, AuditLog.sequence == 3)).one()
    written = select(MemoryState).where(MemoryState.entry_id == third.id).order_by(MemoryState.memory_id)
    fits = third.digest(list(db.session.scalars(written)))
    tamper("UPDATE audit_log SET hash = :hash WHERE agent_id = 1 AND sequence = 3", hash=fits)

    found(f"{entry(4)} does not follow from the entry before it", at=4)


@pytest.mark.parametrize(("column", "value"), [("account_id", "2"), ("agent_id", "NULL")])
def test_an_entry_that_names_somebody_else_is_found_whatever_its_hash_says(
    agent: Agent, column: str, value: str
) -> None:
    (number,), *_ = rows("SELECT id FROM audit_log WHERE agent_id = 1 AND sequence = 3")
    tamper(f"UPDATE audit_log SET {column} = {value} WHERE id = {number}")
    hash_anew(agent)

    assert f"entry 3 (id {number}) names another account or agent" in str(verify().first_problem)


@pytest.mark.parametrize("moved", ["sequence", "id"])
def test_entries_that_changed_places_are_named(agent: Agent, moved: str) -> None:
    last, (first, second) = len(entries()), entries()[-2:]
    one, other = (first[0], second[0]) if moved == "sequence" else (first[1], second[1])
    for of, to in ((one, -1), (other, one), (-1, other)):
        tamper(f"UPDATE audit_log SET {moved} = {to} WHERE agent_id = 1 AND {moved} = {of}")

    found(f"entry {last - 1} (id", at=last - 1)


def test_ids_that_changed_places_are_named_even_where_no_hash_holds_them(agent: Agent) -> None:
    with writing():
        Agent.lock(1).pause(by=COMMAND_LINE)
    with writing():
        Agent.lock(1).resume(by=COMMAND_LINE)
    (_, one), (last, other) = entries()[-2:]
    for of, to in ((one, -1), (other, one), (-1, other)):
        tamper(f"UPDATE audit_log SET id = {to} WHERE id = {of}")

    found(f"entry {last} (id {one}) was moved: the entry before it has the id {other}", at=last)


def test_a_head_that_was_changed_is_found(agent: Agent) -> None:
    tamper("UPDATE agents SET audit_head = (SELECT hash FROM audit_log WHERE agent_id = 1 AND sequence = 1)")

    found(f"the head that its row keeps is not the hash of {entry(len(entries()))}")


def test_an_account_s_own_chain_is_proved_too(agent: Agent) -> None:
    number = rows("SELECT min(id) FROM audit_log WHERE agent_id IS NULL")[0][0]
    tamper("UPDATE audit_log SET subject = 'nobody' WHERE id = :id", id=number)

    assert f"Home (account:1): entry 1 (id {number}) was altered" in str(verify().first_problem)
    assert verify(agent).ok


@pytest.mark.parametrize("column", [*STATE_FIELDS, "kept", "previous_entry_id", "restores_entry_id"])
def test_an_edited_state_is_found_and_the_entry_that_wrote_it_named(agent: Agent, column: str) -> None:
    value = OTHER.get(column, f"coalesce({column}, 1) + 1")
    states = rows(
        "SELECT s.memory_id, s.entry_id, a.sequence FROM memory_states s JOIN audit_log a ON a.id = s.entry_id"
        " WHERE s.restores_entry_id IS NULL ORDER BY s.entry_id, s.memory_id"
    )
    memory, entry_id, number = states[len(states) // 2]

    tamper(f"UPDATE memory_states SET {column} = {value} WHERE memory_id = {memory} AND entry_id = {entry_id}")

    found(f"entry {number} (id {entry_id}) was altered", at=number)


def test_every_deleted_state_is_missed_and_its_entry_named(agent: Agent) -> None:
    for memory, entry_id in rows("SELECT memory_id, entry_id FROM memory_states"):
        with removed("memory_states", f"memory_id = {memory} AND entry_id = {entry_id}"):
            found(f"(id {entry_id}) was altered")
    assert verify().ok


STATE = (
    "INSERT INTO memory_states (memory_id, entry_id, previous_entry_id, type, content_digest, token_estimate,"
    " constitutional, tags, origin_at, other_dates, merged_sources, merges, source, created_at, updated_at,"
    " discarded_at, version)"
    " SELECT {memory}, {entry}, {previous}, type, content_digest, token_estimate, constitutional, tags,"
    " origin_at, other_dates, merged_sources, merges, source, created_at, updated_at, discarded_at, version"
    " FROM memory_states"
    " WHERE memory_id = 1 LIMIT 1"
)


def test_a_state_inserted_with_an_entry_is_found_and_the_entry_named(agent: Agent) -> None:
    tamper(STATE.format(memory=4, entry=dict(entries())[1], previous="NULL"))

    found(f"{entry(1)} was altered", at=1)


def test_a_state_of_no_entry_is_found(agent: Agent) -> None:
    tamper(STATE.format(memory=4, entry=999, previous=1))

    found("memory 4 has a state of entry id 999, which is not in this chain")


def test_states_that_changed_places_are_found_and_the_entry_named(agent: Agent) -> None:
    (one,), (other,) = rows("SELECT entry_id FROM memory_states WHERE memory_id = 4 ORDER BY entry_id")[:2]
    for of, to in ((one, -1), (other, one), (-1, other)):
        tamper(f"UPDATE memory_states SET entry_id = {to} WHERE memory_id = 4 AND entry_id = {of}")

    found(f"(id {one}) was altered")


def test_states_cut_off_at_the_end_are_found_and_the_entry_named(agent: Agent) -> None:
    number, last = entries()[-1]
    tamper(f"DELETE FROM memory_states WHERE entry_id = {last}")

    found(f"entry {number} (id {last}) was altered", at=number)


@sqlite_only
@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("audit_log", "data = '{\"id\": '"),
        ("audit_log", "at = 'never'"),
        ("audit_log", "at = 7"),
        ("audit_log", "data = CAST(x'ff' AS TEXT)"),
        ("audit_log", "actor = CAST(x'ff' AS TEXT)"),
        ("audit_log", "hash = 'text'"),
        ("audit_log", "previous_hash = 'text'"),
        ("memory_states", "tags = '['"),
        ("memory_states", "origin_at = 'never'"),
        ("memory_states", "content_digest = 'text'"),
        ("memory_states", "content_digest = 7"),
    ],
)
def test_damaged_bytes_are_a_difference_and_no_crash(agent: Agent, table: str, change: str) -> None:
    named = dict(entries())[2]
    where = "id" if table == "audit_log" else "entry_id"
    assert tamper(f"UPDATE {table} SET {change} WHERE {where} = {named}")

    verdict = verify()

    assert not verdict.ok
    assert f"(id {named})" in str(verdict.first_problem)


@sqlite_only
def test_a_number_that_is_none_leaves_a_gap(agent: Agent) -> None:
    tamper("UPDATE audit_log SET sequence = 'three' WHERE agent_id = 1 AND sequence = 3")

    found(f"entry 3 is missing: what comes is {entry(4)}", at=4)


@sqlite_only
def test_damage_behind_an_altered_entry_does_not_hide_it(agent: Agent) -> None:
    tamper("UPDATE audit_log SET actor = 'user:nobody' WHERE agent_id = 1 AND sequence = 3")
    tamper("UPDATE audit_log SET data = '{' WHERE agent_id = 1 AND sequence = 4")

    found(f"{entry(3)} was altered", at=3)


@sqlite_only
@pytest.mark.parametrize("batch", [1, 2, 3, 4])
def test_damage_behind_whole_entries_of_the_same_reading_is_named(
    agent: Agent, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.history.chain.BATCH", batch)
    tamper("UPDATE audit_log SET data = '{' WHERE agent_id = 1 AND sequence = 4")

    found(f"{entry(4)} can't be read", at=4)


@sqlite_only
@pytest.mark.parametrize("change", ["created_at = 'never'", "name = CAST(x'ff' AS TEXT)"])
def test_a_damaged_agent_is_a_difference_and_no_crash(agent: Agent, change: str) -> None:
    tamper(f"UPDATE agents SET {change}")

    assert "The row of agent 1 can't be read" in str(verify().first_problem)


def test_a_missing_trigger_is_a_difference_where_nothing_else_is(agent: Agent) -> None:
    with db.engine.execution_options(**WRITES).begin() as connection:
        on = "" if connection.dialect.name == "sqlite" else " ON audit_log"
        connection.execute(text(f"DROP TRIGGER wt_audit_log_no_update{on}"))
    found("lacks the trigger wt_audit_log_no_update")

    with db.engine.execution_options(**WRITES).begin() as connection:
        connection.execute(text("UPDATE audit_log SET actor = 'user:nobody' WHERE agent_id = 1 AND sequence = 3"))

    found(f"{entry(3)} was altered", at=3)
