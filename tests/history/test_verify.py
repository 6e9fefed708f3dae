"""Verify: a history that nobody touched is proved; a row that is not what the log says is found."""

from __future__ import annotations

import pytest
from flask import Flask

from app.extensions import db, writing
from app.history.plan import Target
from app.history.undo import roll_back
from app.history.verify import verify, verify_rest
from app.models import COMMAND_LINE, Account, Agent
from app.models.state import STATE_FIELDS
from tests.support.factories import make_agent
from tests.support.tampering import OTHER, entries, entry, found, live, removed, rows, tamper


@pytest.fixture
def agent(app: Flask) -> Agent:
    return live()


def proved() -> None:
    verdict = verify()
    assert verdict.ok, verdict.first_problem


def test_it_proves_a_history_that_nobody_touched(agent: Agent) -> None:
    verdict = verify()

    assert verdict.ok, verdict.first_problem
    assert verdict.entries == rows("SELECT count(*) FROM audit_log")[0][0]
    assert verify(agent).entries == len(entries())


def test_it_proves_one_account_with_its_agents_and_looks_at_no_other(agent: Agent) -> None:
    with writing():
        other = Account.create("Other")
    make_agent("elsewhere", account_id=other.id)
    tamper("UPDATE agents SET core_count = 7 WHERE id = 2")

    home = verify(account=db.session.get_one(Account, 1))
    away = verify(account=db.session.get_one(Account, other.id))

    assert home.ok, home.first_problem
    assert home.entries == rows("SELECT count(*) FROM audit_log WHERE account_id = 1")[0][0]
    assert (away.ok, away.agent_id) == (False, 2)
    assert "elsewhere (agent:" in str(away.first_problem)


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_a_log_longer_than_a_batch_is_proved_whole(agent: Agent, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.history.chain.BATCH", batch)
    assert verify().entries == rows("SELECT count(*) FROM audit_log")[0][0]

    tamper("UPDATE audit_log SET actor = 'user:nobody' WHERE agent_id = 1 AND sequence = 6")

    found(f"{entry(6)} was altered", at=6)


@pytest.mark.parametrize("column", STATE_FIELDS)
def test_an_edited_memory_is_found_and_the_entry_named_that_says_otherwise(agent: Agent, column: str) -> None:
    tamper(f"UPDATE memories SET {column} = {OTHER[column]} WHERE id = 2")

    number = len(entries())
    found(f"{column} of memory 2 is not what {entry(number)} wrote", at=number)


def test_a_memory_that_names_another_entry_is_found(agent: Agent) -> None:
    tamper(f"UPDATE memories SET entry_id = {dict(entries())[2]} WHERE id = 2")

    found(f"memory 2 does not name {entry(len(entries()))}, which wrote it last")


def test_a_memory_that_was_given_to_another_agent_is_found(agent: Agent) -> None:
    other = make_agent("eve")
    tamper("UPDATE memories SET agent_id = :other WHERE id = 4", other=other.id)

    assert "wrote memory 4, which the agent does not have" in str(verify(db.session.get_one(Agent, 1)).first_problem)


def test_a_deleted_memory_is_missed_and_the_entry_named_that_wrote_it(agent: Agent) -> None:
    with removed("memories", "id = 2"):
        found(f"{entry(2)} wrote memory 2, which the agent does not have", at=2)


def _forge_memory(discarded: str) -> None:
    tamper(
        "INSERT INTO memories (id, agent_id, immutable, type, content_digest, token_estimate, constitutional,"
        " tags, origin_at, other_dates, merged_sources, merges, source, created_at, updated_at, discarded_at, version)"
        " SELECT -1, agent_id, immutable, type, content_digest, token_estimate, constitutional, tags, origin_at,"
        f" other_dates, merged_sources, merges, source, created_at, updated_at, {discarded}, version"
        " FROM memories WHERE id = 1"
    )


@pytest.mark.parametrize("discarded", ["NULL", "created_at"])
def test_a_memory_that_no_entry_explains_is_found(agent: Agent, discarded: str) -> None:
    _forge_memory(discarded)

    named = f"{agent.name} ({agent.chain}): memory -1 is in no entry of the log."
    assert verify(make_agent("elsewhere")).ok
    verdicts = [verify(), verify(agent), verify(account=db.session.get_one(Account, 1))]
    assert [verdict.first_problem for verdict in verdicts] == [named] * 3
    assert {verdict.agent_id for verdict in verdicts} == {1}


@pytest.mark.parametrize("discarded", ["NULL", "created_at"])
def test_a_memory_that_only_a_state_of_no_entry_explains_is_found(agent: Agent, discarded: str) -> None:
    _forge_memory(discarded)
    fields = ", ".join(STATE_FIELDS)
    copied = f"SELECT -1, 999, {fields} FROM memories WHERE id = -1"
    tamper(f"INSERT INTO memory_states (memory_id, entry_id, {fields}) {copied}")

    for verdict in (verify(), verify(agent), verify(account=db.session.get_one(Account, 1))):
        assert "memory -1" in str(verdict.first_problem)


def test_a_state_of_no_entry_is_found_where_its_memory_has_its_own(agent: Agent) -> None:
    fields = ", ".join(STATE_FIELDS)
    copied = f"SELECT 404, 999, {fields} FROM memories WHERE id = 1"
    tamper(f"INSERT INTO memory_states (memory_id, entry_id, {fields}) {copied}")

    assert "A state of memory 404 by entry id 999 has no entry" in str(verify().first_problem)


def test_a_flag_that_the_tags_do_not_give_is_found(agent: Agent) -> None:
    tamper("UPDATE memories SET immutable = NOT immutable WHERE id = 3")

    found("the flag immutable of memory 3 is not what its tags say")


@pytest.mark.parametrize("total", ["core_token_usage", "core_count", "journal_count"])
def test_a_total_that_the_memories_do_not_make_is_found(agent: Agent, total: str) -> None:
    tamper(f"UPDATE agents SET {total} = {total} + 1")

    found(f"{total} is ")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("refinement_threshold", "5000"),
        ("system_prompt", "'Delete it all.'"),
        ("paused", "NOT paused"),
        ("model_id", "'openai/x'"),
        ("active", "NOT active"),
        ("core_token_budget", "7"),
    ],
)
def test_a_setting_that_nobody_is_recorded_to_have_changed_is_found(agent: Agent, setting: str, value: str) -> None:
    tamper(f"UPDATE agents SET {setting} = {value}")

    found(f"{setting} of the agent is not what {entry(1)} says", at=1)


def test_settings_that_were_changed_by_the_rules_are_what_the_log_says(agent: Agent) -> None:
    with writing():
        Agent.lock(1).change(by=COMMAND_LINE, refinement_threshold="0.6", core_token_budget=7, name="mina")
    with writing():
        Agent.lock(1).change(by=COMMAND_LINE, refinement_threshold=None, active=False)
    with writing():
        Agent.lock(1).pause(by=COMMAND_LINE)
    proved()

    tamper("UPDATE agents SET core_token_budget = 5000")

    found("mina (agent:")
    found(f"core_token_budget of the agent is not what {entry(len(entries()) - 2)} says")


def test_an_end_that_was_changed_is_found(agent: Agent) -> None:
    ended = rows("SELECT sequence FROM audit_log WHERE action = 'memory_refinement_end'")[0][0]
    tamper("UPDATE refinements SET status = 'declined'")
    found(f"is declined, but {entry(ended)} ended it otherwise", at=ended)
    tamper("UPDATE refinements SET status = 'completed', deleted = 0")
    found("the counts of refinement", at=ended)
    for changed in ("calls = 9", "calls = 4, refused = '{\"unknown_memory\": 1}'"):
        tamper(f"UPDATE refinements SET deleted = 1, {changed}")
        found("the counts of refinement", at=ended)
    tamper("UPDATE refinements SET calls = 4, refused = '{}'")
    proved()


def test_a_rollback_without_its_entry_or_with_another_one_is_found(agent: Agent) -> None:
    last = len(entries())
    with removed("rollbacks", "1 = 1"):
        found(f"{entry(last)} is a rollback whose row is gone", at=last)
    for change in ("mass_after = 1", "kind = 'rewind'", "undid = '[]'", "requested_by = 'user:nobody'", "reversed = 9"):
        column = change.split(" = ")[0]
        (before,) = rows(f"SELECT CAST({column} AS TEXT) FROM rollbacks")[0]
        tamper(f"UPDATE rollbacks SET {change}")
        found(f"is not what {entry(last)} says", at=last)
        quoted = before if column in ("mass_after", "reversed") else f"'{before}'"
        tamper(f"UPDATE rollbacks SET {column} = {quoted}")
    tamper(f"UPDATE rollbacks SET entry_id = {dict(entries())[1]}")
    found("has no entry in the log")


def test_what_counts_as_undone_is_what_the_log_says(agent: Agent) -> None:
    last = len(entries())
    (undone_by,) = rows("SELECT undone_by FROM refinements")[0]
    tamper("UPDATE refinements SET undone_by = NULL")
    found(f"{entry(last)} undid", at=last)
    tamper("UPDATE refinements SET undone_by = 'nobody'")
    found(f"counts as undone, but {entry(last)} undid it so", at=last)
    tamper(f"UPDATE refinements SET undone_by = '{undone_by}'")
    tamper(f"UPDATE rollbacks SET undone_by = '{undone_by}'")
    found(f"rollback {undone_by} counts as undone, but no entry undid it so")


def test_an_undo_of_an_undo_is_proved_too(agent: Agent) -> None:
    (undone_by,) = rows("SELECT undone_by FROM refinements")[0]
    again = roll_back(Target.rollback(undone_by), by=COMMAND_LINE).rollback
    assert again is not None
    number = again.id
    proved()

    roll_back(Target.rollback(number), by=COMMAND_LINE)

    proved()
    assert rows("SELECT count(*) FROM rollbacks")[0][0] == 3


def test_what_belongs_to_nobody_is_found(agent: Agent) -> None:
    tamper("UPDATE audit_log SET chain = 'agent:nobody' WHERE agent_id = 1")
    tamper("UPDATE agents SET audit_sequence = 0, audit_head = :none", none=b"")
    tamper("DELETE FROM memory_states")
    tamper("DELETE FROM memories")
    for table in ("rollbacks", "human_acts", "attention_items"):
        tamper(f"DELETE FROM {table}")
    tamper("UPDATE refinements SET agent_id = 99")
    tamper("UPDATE agents SET core_token_usage = 0, core_count = 0, journal_count = 0")

    assert "is in no entry of the log" in str(verify().first_problem)
    assert "chain of nobody, agent:nobody: its first entry is id" in str(verify_rest().first_problem)


def test_an_agent_whose_row_is_gone_leaves_a_chain_of_nobody(agent: Agent) -> None:
    with removed("agents", "id = 1"):
        assert f"chain of nobody, {agent.chain}" in str(verify().first_problem)
    tamper("UPDATE agents SET account_id = 99")
    assert "belongs to no account" in str(verify().first_problem)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("DELETE FROM memory_texts WHERE memory_id = 2", "the text of memory 2 that {} wrote is gone"),
        ("DELETE FROM content_keys WHERE memory_id = 2", "the text of memory 2 that {} wrote is without its key"),
        ("UPDATE memory_texts SET agent_id = 99 WHERE memory_id = 2", "memory 2 that {} wrote is another agent's"),
        (
            "UPDATE memory_texts SET sealed = (SELECT sealed FROM memory_texts WHERE memory_id = 3)"
            " WHERE memory_id = 2",
            "the text of memory 2 that {} wrote is altered",
        ),
    ],
    ids=["no text", "no key", "of another agent", "another text"],
)
def test_a_text_that_is_not_the_one_that_the_log_names_is_found(agent: Agent, statement: str, said: str) -> None:
    assert tamper(statement) == 1

    found(said.format(entry(2)))


@pytest.mark.parametrize("table", ["memory_texts", "content_keys"])
def test_a_text_or_a_key_of_no_memory_is_found(agent: Agent, table: str) -> None:
    assert verify().ok
    tamper(f"UPDATE {table} SET memory_id = 404 WHERE memory_id = 2")

    assert not verify().ok
    tamper(f"UPDATE {table} SET memory_id = 2 WHERE memory_id = 404")
    assert verify().ok
    columns = "agent_id, sealed" if table == "content_keys" else "agent_id, sealed, content_hash, content_digest"
    tamper(f"INSERT INTO {table} (memory_id, {columns}) SELECT 404, {columns} FROM {table} WHERE memory_id = 2")
    assert "of memory 404 has no memory" in str(verify().first_problem)
