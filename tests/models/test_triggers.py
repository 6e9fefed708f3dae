"""The database's own promises: whatever code or hand does, the log is append-only, the constitution and ends hold."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from flask import Flask
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from app.extensions import WRITES, db, writing
from app.history.plan import Target
from app.history.undo import roll_back
from app.models import COMMAND_LINE, Agent, MemoryState, Refinement, Rollback, Status
from migrations.triggers import declared, drop_triggers, install_triggers, missing_triggers
from tests.support.databases import SERVER
from tests.support.factories import Running, begin, make_agent, remember

sqlite_only = pytest.mark.skipif(bool(SERVER), reason="REPLACE and pragmas are SQLite's")
postgresql_only = pytest.mark.skipif(not SERVER, reason="TRUNCATE is PostgreSQL's")


@pytest.fixture
def rollback(run: Running) -> Rollback:
    """What an undo of the run left."""
    done = roll_back(Target.refinement(run.refinement.id), by=COMMAND_LINE).rollback
    db.session.rollback()
    assert done is not None
    return done


@pytest.fixture
def called(run: Running) -> Rollback:
    """A refinement that left a note to the admins, and that a human took back."""
    run.tool.execute("complete", summary="Done.", note_to_admins="Mind the stone.")
    done = roll_back(Target.refinement(run.refinement.id), by=COMMAND_LINE).rollback
    db.session.rollback()
    assert done is not None
    return done


@pytest.fixture
def run(app: Flask) -> Running:
    agent = make_agent()
    remember(agent, "We never lie.", constitutional=True)
    remember(agent, "Ann likes tea." * 10, "Bob likes rum.")
    run = begin(agent)
    run.tool.execute("update", id=2, content="Ann likes tea! " * 9)
    db.session.rollback()
    return run


@contextmanager
def by_hand() -> Iterator[Connection]:
    """A connection as somebody with the database's address has it: past every rule of the code."""
    with db.engine.connect().execution_options(**WRITES) as connection:
        yield connection


def refuses(statement: str, *reasons: str, **values: object) -> None:
    with by_hand() as connection, pytest.raises(DBAPIError) as refusal:
        connection.execute(text(statement), values)
    assert any(reason in str(refusal.value.orig) for reason in reasons), (statement, str(refusal.value.orig))


def count(table: str) -> int:
    with by_hand() as connection:
        return int(connection.scalar(text(f"SELECT count(*) FROM {table}")) or 0)


@pytest.mark.parametrize(("table", "column"), [("audit_log", "actor"), ("memory_states", "token_estimate")])
def test_the_log_and_the_states_are_append_only(run: Running, table: str, column: str) -> None:
    rows = count(table)
    refuses(f"UPDATE {table} SET {column} = {column}", "append-only")
    refuses(f"UPDATE {table} SET {column} = {column} WHERE 1 = 1", "append-only")
    refuses(f"DELETE FROM {table}", "append-only")
    assert count(table) == rows > 0


COPY = (
    "INSERT INTO audit_log (chain, sequence, account_id, actor_kind, actor, action, subject, data, at, previous_hash,"
    " hash) SELECT {chain}, {sequence}, account_id, actor_kind, actor, action, subject, data, at, {previous}, hash"
    " FROM audit_log WHERE agent_id = 1 ORDER BY sequence DESC LIMIT 1"
)


@pytest.mark.parametrize(
    ("chain", "sequence", "previous"),
    [
        ("chain", "0", "previous_hash"),
        ("chain", "-1", "hash"),
        ("chain", "sequence + 2", "hash"),
        ("chain", "sequence + 1", "previous_hash"),
        ("chain", "sequence", "previous_hash"),
        ("chain", "1", "substr(hash, 1, 0)"),
        ("'account:7'", "2", "hash"),
        ("'account:7'", "1", "hash"),
    ],
)
def test_the_log_grows_at_its_end_only(run: Running, chain: str, sequence: str, previous: str) -> None:
    refuses(COPY.format(chain=chain, sequence=sequence, previous=previous), "whetstone: ", "duplicate key")


def test_at_its_end_an_entry_that_names_the_last_hash_is_taken(run: Running) -> None:
    with by_hand() as connection:
        connection.execute(text(COPY.format(chain="chain", sequence="sequence + 1", previous="hash")))


@pytest.mark.parametrize("entry", ["min(entry_id)", "max(entry_id) + 999"])
def test_states_come_with_the_last_entry_only(run: Running, entry: str) -> None:
    columns = ", ".join(column.name for column in MemoryState.__table__.columns if column.name != "entry_id")
    refuses(
        f"INSERT INTO memory_states ({columns}, entry_id) SELECT {columns.replace('memory_id', '3', 1)},"
        f" (SELECT {entry} FROM memory_states) FROM memory_states WHERE memory_id = 1",
        "append-only",
    )


def test_memories_are_never_removed_and_keep_their_identity(run: Running) -> None:
    refuses("DELETE FROM memories WHERE id = 3", "never removed")
    refuses("DELETE FROM memories", "never removed")
    refuses("UPDATE memories SET id = 99 WHERE id = 3", "its number and its agent")
    refuses("UPDATE memories SET agent_id = 2 WHERE id = 3", "its number and its agent")


def test_of_a_rollback_only_who_undid_it_changes_and_none_is_removed(rollback: Rollback) -> None:
    refuses("DELETE FROM rollbacks", "never removed")
    fixed = [column.name for column in Rollback.__table__.columns if column.name != "undone_by"]
    for name, other in {
        **dict.fromkeys(("id", "refinement_id", "rollback_id", "requested_by", "kind"), "'other'"),
        **dict.fromkeys(("account_id", "agent_id", "target_entry_id", "entry_id"), "99"),
        **dict.fromkeys(("reversed", "mass_before", "mass_after"), "99"),
        **dict.fromkeys(("undid", "redid"), """'["other"]'"""),
        "at": "'2026-01-01 00:00:00.000000'",
    }.items():
        fixed.remove(name)
        refuses(f"UPDATE rollbacks SET {name} = {other}", "only who undid it")
        refuses(f"UPDATE rollbacks SET undone_by = 'other', {name} = {other}", "only who undid it")
    assert fixed == []
    with by_hand() as connection:
        assert connection.execute(text("UPDATE rollbacks SET undone_by = 'other', reversed = reversed")).rowcount == 1
        assert connection.execute(text("UPDATE rollbacks SET undone_by = NULL")).rowcount == 1


def test_what_calls_for_attention_and_what_humans_did_is_never_removed_nor_moved(called: Rollback) -> None:
    for table in ("attention_items", "human_acts"):
        assert count(table) == 1
        refuses(f"DELETE FROM {table}", "never removed")
        for name in ("id", "agent_id", "entry_id"):
            refuses(f"UPDATE {table} SET {name} = 99", "keeps its entry")
    refuses("UPDATE attention_items SET kind = 'unfinished'", "keeps its entry and kind")
    with by_hand() as connection:
        connection.execute(text("UPDATE attention_items SET seen_at = at, seen_by = 'user:1'"))
        connection.execute(text("UPDATE human_acts SET told_at = at"))


def test_a_constitutional_memory_keeps_content_life_and_type(run: Running) -> None:
    for change in (
        "content_digest = (SELECT content_digest FROM memories WHERE id = 3)",
        *("discarded_at = created_at", "type = 'journal'", "discarded_at = created_at, constitutional = false"),
    ):
        refuses(f"UPDATE memories SET {change} WHERE id = 1", "constitutional memory")
    refuses("DELETE FROM memories WHERE id = 1", "never removed")
    with by_hand() as connection:
        connection.execute(text("UPDATE memories SET tags = tags, version = version + 1 WHERE id = 1"))
        connection.execute(text("UPDATE memories SET discarded_at = created_at WHERE id = 3"))


def test_an_end_state_is_never_left_and_counts_no_more(run: Running) -> None:
    for status in sorted(Status, key=lambda status: status == Status.DECLINED):  # last: a NO rests
        if status in ("queued", "asking", "running"):
            continue
        run = begin(run.agent) if not run.reload().is_open else run
        with writing():
            Refinement.lock(run.refinement.id).end(Agent.lock(run.agent.id), status)
        number = run.refinement.id
        for other in ("queued", "asking", "running", "completed", "stopped", ""):
            if other != status:
                refuses("UPDATE refinements SET status = :status WHERE id = :id", "never left", status=other, id=number)
        refuses("UPDATE refinements SET mutations = mutations + 1 WHERE id = :id", "never left", id=number)
        refuses("DELETE FROM refinements WHERE id = :id", "never removed", id=number)


def test_of_an_ended_refinement_only_who_undid_it_changes(run: Running) -> None:
    run.tool.execute("complete", summary="Done.")
    fixed = [column.name for column in Refinement.__table__.columns if column.name not in ("id", "undone_by")]
    others = {
        **dict.fromkeys(("trigger", "mode", "status", "started_by", "model_id", "reason", "failure"), "'other'"),
        **dict.fromkeys(("worker", "stop_requested_by"), "'other'"),
        **dict.fromkeys(("mass_before", "kept_mass", "mass_after", "snapshot_entry_id", "threshold", "turns"), "99"),
        **dict.fromkeys(("calls", "consolidated", "updated", "deleted", "deduplicated", "account_id"), "99"),
        **dict.fromkeys(("deduplicated_tokens", "prompt_tokens", "completion_tokens", "cost_usd"), "99"),
        **dict.fromkeys(("memories_merged", "memories_before", "memories_after"), "99"),
        **dict.fromkeys(("specifics_checked", "specifics_missing", "specifics_restored", "specifics_confirmed"), "99"),
        **{"confirmed_losses": "1", "max_confirmed_losses": "9"},
        **dict.fromkeys(("erosion_floor", "erosion_cut", "erosion_base", "agent_id"), "99"),
        **dict.fromkeys(("specifics_checked", "specifics_missing", "specifics_restored", "specifics_confirmed"), "99"),
        **dict.fromkeys(("cap", "mutations", "protected", "probes_asked", "probes_kept"), "2"),
        **dict.fromkeys(("missing_named", "missing_held"), "2"),
        **dict.fromkeys(("confirmed_losses", "max_confirmed_losses"), "2"),
        **dict.fromkeys(("reader_model", "reader_action", "ending"), "'other'"),
        **dict.fromkeys(("heartbeat_at", "stop_requested_at", "requested_at", "started_at"), "'2026-01-01 00:00:00'"),
        **{
            "ended_at": "'2026-01-01 00:00:00'",
            "refused": """'{"invalid": 1}'""",
            "second_reading": "'{}'",
            "summary": "NULL",
        },
    }
    for name in fixed:
        refuses(f"UPDATE refinements SET {name} = {others[name]}", "only who undid it", "its number and its agent")
        refuses(f"UPDATE refinements SET undone_by = 'x', {name} = {others[name]}", "only who undid it", "its agent")
    with by_hand() as connection:
        same = ", ".join(f"{name} = {name}" for name in fixed)
        assert connection.execute(text(f"UPDATE refinements SET undone_by = 'other', {same}")).rowcount == 1
        assert connection.execute(text("UPDATE refinements SET undone_by = NULL")).rowcount == 1


def test_the_database_counts_no_further_than_the_cap_and_the_cap_no_further_than_ten(run: Running) -> None:
    refuses("UPDATE refinements SET mutations = 11", "ck_refinements_cap")
    refuses("UPDATE refinements SET mutations = -1", "ck_refinements_cap")
    refuses("UPDATE refinements SET cap = 11", "ck_refinements_cap")
    refuses("UPDATE refinements SET cap = 0", "ck_refinements_cap")
    with by_hand() as connection:
        connection.execute(text("UPDATE refinements SET mutations = 10"))


def test_the_index_itself_refuses_a_second_open_refinement(run: Running) -> None:
    columns = ", ".join(column.name for column in Refinement.__table__.columns)
    copied = columns.replace("id,", ":id,", 1)
    second = f"INSERT INTO refinements ({columns}) SELECT {copied} FROM refinements"
    with db.engine.execution_options(**WRITES).begin() as connection:
        drop_triggers(connection)
    for status in ("queued", "asking", "running"):
        with writing():
            Refinement.lock(run.refinement.id).status = Status(status)
        with (
            by_hand() as connection,
            pytest.raises(IntegrityError, match=r"uq_refinements_one_open|refinements\.agent_id"),
        ):
            connection.execute(text(second), {"id": "second"})
    with writing():
        Refinement.lock(run.refinement.id).end(Agent.lock(run.agent.id), Status.STOPPED)
    with by_hand() as connection:
        connection.execute(text(second), {"id": "second"})


def test_the_database_holds_exactly_the_declared_triggers(run: Running) -> None:
    with db.engine.execution_options(**WRITES).begin() as connection:
        dialect = connection.dialect.name
        assert missing_triggers(connection) == set()
        drop_triggers(connection)
        assert missing_triggers(connection) == declared(dialect)
        install_triggers(connection)
        assert missing_triggers(connection) == set()
        connection.execute(text("DROP TRIGGER wt_refinements_end" + ("" if dialect == "sqlite" else " ON refinements")))
        assert missing_triggers(connection) == {"wt_refinements_end"}


@pytest.mark.parametrize("table", ["audit_log", "memory_states", "memories", "refinements", "rollbacks"])
def test_a_trigger_that_was_made_harmless_counts_as_missing(run: Running, table: str) -> None:
    name = f"wt_{table}_no_delete"
    with db.engine.execution_options(**WRITES).begin() as connection:
        if connection.dialect.name == "sqlite":
            connection.execute(text(f"DROP TRIGGER {name}"))
            connection.execute(text(f"CREATE TRIGGER {name} BEFORE DELETE ON {table} BEGIN SELECT 1; END"))
            assert missing_triggers(connection) == {name}
        else:
            harmless = "CREATE OR REPLACE FUNCTION wt_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN END $$"
            connection.execute(text(harmless))
            in_order = {"wt_audit_log_in_order", "wt_memory_states_in_order", "wt_log_leaves_in_order"}
            assert missing_triggers(connection) == declared("postgresql") - in_order


@postgresql_only
@pytest.mark.parametrize(
    "harmless",
    [
        "AFTER DELETE ON audit_log FOR EACH ROW EXECUTE FUNCTION wt_refuse('x')",
        "BEFORE DELETE ON audit_log FOR EACH STATEMENT EXECUTE FUNCTION wt_refuse('the audit log is append-only')",
        "BEFORE UPDATE ON audit_log FOR EACH ROW EXECUTE FUNCTION wt_refuse('the audit log is append-only')",
        "BEFORE DELETE ON audit_log FOR EACH ROW WHEN (OLD.id < 0) EXECUTE FUNCTION"
        " wt_refuse('the audit log is append-only')",
        "BEFORE DELETE ON audit_log FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    ],
)
def test_another_trigger_of_the_same_name_counts_as_missing(run: Running, harmless: str) -> None:
    with db.engine.execution_options(**WRITES).begin() as connection:
        connection.execute(text("DROP TRIGGER wt_audit_log_no_delete ON audit_log"))
        connection.execute(text(f"CREATE TRIGGER wt_audit_log_no_delete {harmless}"))
        assert missing_triggers(connection) == {"wt_audit_log_no_delete"}


@sqlite_only
@pytest.mark.parametrize("recursive", ["ON", "OFF"])
def test_replace_slips_past_nothing_not_even_from_another_program(app: Flask, called: Rollback, recursive: str) -> None:
    path = app.extensions["settings"].data / "whetstone.db"
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute(f"PRAGMA recursive_triggers={recursive}")
    for statement in (
        "INSERT OR REPLACE INTO audit_log SELECT * FROM audit_log",
        "REPLACE INTO audit_log (id, chain, sequence, account_id, actor_kind, actor, action, subject, data, at,"
        " previous_hash, hash) SELECT NULL, chain, sequence, account_id, actor_kind, 'x', action, subject, data, at,"
        " previous_hash, hash FROM audit_log",
        "REPLACE INTO memory_states SELECT * FROM memory_states",
        "REPLACE INTO memories SELECT * FROM memories",
        "REPLACE INTO refinements SELECT * FROM refinements",
        "REPLACE INTO rollbacks SELECT * FROM rollbacks",
        "REPLACE INTO attention_items SELECT * FROM attention_items",
        "REPLACE INTO human_acts SELECT * FROM human_acts",
        "UPDATE OR REPLACE attention_items SET entry_id = 1",
        "UPDATE OR REPLACE human_acts SET entry_id = 1",
        "UPDATE OR REPLACE rollbacks SET entry_id = 1",
        "UPDATE OR REPLACE memory_states SET entry_id = 3",
        "INSERT OR REPLACE INTO memory_states SELECT * FROM memory_states LIMIT 1",
        "INSERT INTO rollbacks SELECT * FROM rollbacks WHERE true ON CONFLICT (id) DO UPDATE SET reversed = 9",
        "INSERT INTO audit_log SELECT * FROM audit_log WHERE true ON CONFLICT DO NOTHING",
        "INSERT INTO memories SELECT * FROM memories WHERE true ON CONFLICT (id) DO UPDATE SET content_digest = x''",
        "UPDATE OR REPLACE memories SET id = 1 WHERE id = 3",
        "UPDATE OR REPLACE audit_log SET sequence = 1",
    ):
        with pytest.raises(sqlite3.IntegrityError, match="whetstone: "):
            raw.execute(statement)
    raw.close()


@sqlite_only
@pytest.mark.parametrize("recursive", ["ON", "OFF"])
def test_replace_can_not_push_an_open_refinement_aside(app: Flask, run: Running, recursive: str) -> None:
    path = app.extensions["settings"].data / "whetstone.db"
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute(f"PRAGMA recursive_triggers={recursive}")
    columns = ", ".join(column.name for column in Refinement.__table__.columns)
    copied = columns.replace("id,", "'second',", 1)
    for statement in (
        f"REPLACE INTO refinements ({columns}) SELECT {copied} FROM refinements",
        "UPDATE OR REPLACE refinements SET agent_id = 2",
        "UPDATE OR REPLACE refinements SET id = 'second'",
    ):
        with pytest.raises(sqlite3.IntegrityError, match="whetstone: "):
            raw.execute(statement)
    assert raw.execute("SELECT count(*), min(id) FROM refinements").fetchone() == (1, run.refinement.id)
    raw.close()


@postgresql_only
def test_truncate_and_upsert_slip_past_nothing(run: Running) -> None:
    for table in (
        "audit_log",
        "memory_states",
        "memories",
        "accounts CASCADE",
        "agents CASCADE",
        "refinements CASCADE",
        "rollbacks CASCADE",
        "attention_items",
        "human_acts",
    ):
        refuses(f"TRUNCATE {table}", "whetstone: ", "foreign key")
    refuses("TRUNCATE audit_log, memory_states, memories, refinements CASCADE", "whetstone: ")
    refuses(
        "INSERT INTO memories SELECT * FROM memories ON CONFLICT (id) DO UPDATE SET content_digest = ''", "whetstone: "
    )
    refuses("INSERT INTO audit_log SELECT * FROM audit_log ON CONFLICT (id) DO UPDATE SET actor = ''", "append-only")
    refuses("WITH gone AS (DELETE FROM audit_log RETURNING 1) SELECT * FROM gone", "append-only")
    refuses(
        "MERGE INTO audit_log a USING audit_log b ON a.id = b.id WHEN MATCHED THEN UPDATE SET actor = ''", "append-only"
    )


@postgresql_only
def test_a_trigger_that_was_switched_off_counts_as_missing(run: Running) -> None:
    with db.engine.execution_options(**WRITES).begin() as connection:
        connection.execute(text("ALTER TABLE audit_log DISABLE TRIGGER wt_audit_log_no_update"))
        assert missing_triggers(connection) == {"wt_audit_log_no_update"}
        connection.execute(text("ALTER TABLE audit_log ENABLE REPLICA TRIGGER wt_audit_log_no_update"))
        assert missing_triggers(connection) == {"wt_audit_log_no_update"}
        connection.execute(text("ALTER TABLE audit_log ENABLE ALWAYS TRIGGER wt_audit_log_no_update"))
        assert missing_triggers(connection) == set()
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        assert missing_triggers(connection) == declared("postgresql") - {"wt_audit_log_no_update"}
