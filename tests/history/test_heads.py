"""Heads that are kept elsewhere find what the log alone can't: an end that was cut off, or a log written anew."""

from __future__ import annotations

import json

import pytest
from flask import Flask

from app.errors import Invalid
from app.extensions import db, writing
from app.history.heads import Head, HeadsDiffer, export_heads, parse_heads
from app.history.verify import verify
from app.models import COMMAND_LINE, Account, Agent
from tests.support.factories import make_agent
from tests.support.tampering import entries, entry, hash_anew, live, removed, rows, tamper


@pytest.fixture
def agent(app: Flask) -> Agent:
    return live()


def exported() -> list[Head]:
    """What the export gives, over its printed form and back."""
    return parse_heads([json.dumps(head.as_json()) for head in export_heads()])


def pause_and_resume(times: int = 1) -> None:
    """Entries that change no memory."""
    for _ in range(times):
        with writing():
            Agent.lock(1).pause(by=COMMAND_LINE)
        with writing():
            Agent.lock(1).resume(by=COMMAND_LINE)
    db.session.rollback()


def cut_off(agent: Agent, after: int) -> None:
    """As somebody does it who knows where the head stands."""
    tamper(f"DELETE FROM audit_log WHERE agent_id = 1 AND sequence > {after}")
    hash_anew(agent)


def test_every_chain_gives_its_head(agent: Agent) -> None:
    make_agent("void")

    heads = export_heads()

    assert [(head.chain, head.agent, head.account) for head in heads] == [
        ("account:1", None, "Home"),
        (agent.chain, "ezra", "Home"),
        (heads[2].chain, "void", "Home"),
    ]
    assert [head.sequence for head in heads][1:] == [len(entries()), 1]
    assert heads[1].hash == rows("SELECT hash FROM audit_log ORDER BY id DESC LIMIT 2")[1][0].hex()
    assert str(heads[1].at).endswith("Z")
    assert parse_heads([json.dumps(head.as_json()) for head in heads])


def test_one_account_s_heads_are_of_nobody_else(agent: Agent) -> None:
    with writing():
        other = Account.create("Other")
    make_agent("elsewhere", account_id=other.id)

    assert [head.agent for head in export_heads(other.id)] == [None, "elsewhere"]
    assert "elsewhere" not in [head.agent for head in export_heads(1)]


def test_heads_stand_while_the_log_grows(agent: Agent) -> None:
    heads = exported()
    pause_and_resume(3)

    verdict = verify(heads=[*heads, *exported()])

    assert verdict.ok, verdict.first_problem


def test_a_log_cut_off_with_care_is_found_by_heads_and_by_the_log_of_statements(agent: Agent) -> None:
    end = len(entries())
    pause_and_resume()
    heads = exported()
    cut_off(agent, after=end)

    assert verify().ok
    verdict = verify(heads=heads)

    assert not verdict.ok
    assert f"ezra ({agent.chain}): entry {end + 2} is missing" in str(verdict.first_problem)
    assert f"the log ends at {entry(end)}" in str(verdict.first_problem)


def test_a_log_written_anew_is_found_by_heads_only_and_the_entry_named(agent: Agent) -> None:
    pause_and_resume()
    heads = exported()
    tamper("UPDATE audit_log SET actor = 'user:nobody' WHERE agent_id = 1 AND sequence = 3")
    hash_anew(agent)

    assert verify().ok
    verdict = verify(heads=heads)

    last = len(entries())
    assert verdict.entry_id == dict(entries())[last]
    assert f"{entry(last)} has another hash than its exported head" in str(verdict.first_problem)


def test_heads_of_several_days_tell_since_when(agent: Agent) -> None:
    first, kept = exported(), len(entries())
    pause_and_resume()
    second = exported()
    tamper(f"UPDATE audit_log SET actor = 'user:nobody' WHERE agent_id = 1 AND sequence = {kept + 1}")
    hash_anew(agent)

    assert verify(heads=first).ok
    heads = parse_heads([json.dumps(head.as_json()) for head in (*second, *first)])
    assert f"after entry {kept}, the log was rewritten" in str(verify(heads=heads).first_problem)


def test_a_chain_that_is_gone_without_a_trace_is_found_by_heads_and_by_the_log_of_statements(agent: Agent) -> None:
    heads = exported()
    theirs = ("rollbacks", "refinements", "memory_states", "memory_texts", "content_keys", "memories", "events")
    for table in (*theirs, "agent_keys", "audit_log"):
        tamper(f"DELETE FROM {table} WHERE {'1 = 1' if table == 'memory_states' else 'agent_id = 1'}")
    tamper("DELETE FROM agents")

    assert "Leaf 1 of the log of statements stands in a row" in str(verify().first_problem)
    assert f"{agent.chain}: the whole chain is missing" in str(verify(heads=heads).first_problem)


def test_an_altered_row_comes_before_the_heads(agent: Agent) -> None:
    heads = exported()
    tamper("UPDATE audit_log SET actor = 'user:nobody' WHERE agent_id = 1 AND sequence = 3")

    assert f"{entry(3)} was altered" in str(verify(heads=heads).first_problem)


def test_a_log_that_ends_otherwise_gives_no_heads(agent: Agent) -> None:
    with removed("audit_log", f"agent_id = 1 AND sequence = {len(entries())}"), pytest.raises(HeadsDiffer) as refusal:
        export_heads()

    assert "verify" in refusal.value.sentence
    assert agent.chain in refusal.value.sentence
    tamper("UPDATE agents SET audit_head = :other", other=b"x" * 32)
    with pytest.raises(HeadsDiffer):
        export_heads()


GOOD = {"chain": "account:1", "sequence": 1, "hash": "0" * 64}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "no heads"),
        ("CHAIN  ENTRIES", "Line 1 is not a head"),
        ("[]", "Line 1 is not a head"),
        ("[" * 100_000, "Line 1 is not a head"),
        (json.dumps(GOOD | {"chain": "account:0"}), "Line 1 names no chain"),
        (json.dumps(GOOD | {"chain": "agent:x' OR 1=1"}), "Line 1 names no chain"),
        (json.dumps(GOOD | {"chain": None}), "Line 1 names no chain"),
        (json.dumps(GOOD | {"sequence": 0}), "Line 1 has no sequence"),
        (json.dumps(GOOD | {"sequence": True}), "Line 1 has no sequence"),
        (json.dumps(GOOD | {"sequence": "1"}), "Line 1 has no sequence"),
        (json.dumps(GOOD | {"sequence": 2**63}), "Line 1 has no sequence"),
        (json.dumps(GOOD | {"hash": "0" * 63}), "Line 1 has no hash"),
        (json.dumps(GOOD | {"hash": "G" * 64}), "Line 1 has no hash"),
        (json.dumps(GOOD) + "\n\n" + json.dumps({"chain": "account:1"}), "Line 3 has no sequence"),
    ],
)
def test_what_is_no_head_is_refused_with_its_line(line: str, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        parse_heads(line.split("\n"))
