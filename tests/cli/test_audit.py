"""`whetstone audit` and `verify`: the record as programs read it, and the alarm when it was altered."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from flask import Flask
from sqlalchemy import text

from app.config import Settings
from app.extensions import is_sqlite, writing
from app.models import Account, Agent
from tests.cli.conftest import Whetstone
from tests.support.factories import make_agent, remember

KEYS = {"id", "at", "actor", "action", "agent", "refinement", "subject", "data", "hash", "previous_hash"}
CANARY = "the canary sang at dawn"


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent("ezra")
    remember(made, CANARY, CANARY)
    return made


def test_entries_are_json_lines_oldest_first_and_chained(agent: Agent, whetstone: Whetstone) -> None:
    whetstone("agents", "pause", "ezra")

    entries = whetstone("audit", "--agent", "ezra", "--json").lines

    assert [entry["action"] for entry in entries] == ["agent_create", "memory_create", "agent_pause"]
    assert all(set(entry) == KEYS for entry in entries)
    assert entries[0]["previous_hash"] == ""
    assert [entry["previous_hash"] for entry in entries[1:]] == [entry["hash"] for entry in entries[:-1]]
    assert entries[0]["at"].endswith("Z")
    assert (entries[2]["actor"], entries[2]["agent"]) == ("system:command line", "ezra")


def test_it_can_be_narrowed_to_an_agent_a_refinement_or_the_newest(agent: Agent, whetstone: Whetstone) -> None:
    make_agent("void")
    number = whetstone("refine", "ezra", "--mode", "dedup_only", "--wait", "--json").json["id"]

    of_it = whetstone("audit", "--refinement", number, "--json").lines
    assert {entry["refinement"] for entry in of_it} == {number}
    assert "memory_dedup" in [entry["action"] for entry in of_it]
    assert {entry["agent"] for entry in whetstone("audit", "--agent", "void", "--json").lines} == {"void"}
    everything = whetstone("audit", "--json").lines
    assert whetstone("audit", "--last", "3", "--json").lines == everything[-3:]
    assert whetstone("audit", "--last", "999", "--json").lines == everything
    assert whetstone("audit", "--agent", "void", "--refinement", number, "--json").out == ""


def test_a_log_longer_than_a_page_comes_whole(
    agent: Agent, whetstone: Whetstone, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = whetstone("audit", "--json").lines

    for page in (1, 2, len(everything) - 1, len(everything)):
        monkeypatch.setattr("app.cli.audit.PAGE", page)
        assert whetstone("audit", "--json").lines == everything
    assert len(everything) == 4


def test_one_account_does_not_show_the_other(agent: Agent, whetstone: Whetstone) -> None:
    with writing():
        other = Account.create("Other")
    make_agent("elsewhere", account_id=other.id)

    assert "elsewhere" not in whetstone("audit", "--json").out
    assert {entry["agent"] for entry in whetstone("audit", "--account", "Other", "--json").lines} == {None, "elsewhere"}


def test_people_get_a_line_an_entry_and_no_content(agent: Agent, whetstone: Whetstone) -> None:
    said = whetstone("audit", "--agent", "ezra")

    assert len(said.out.splitlines()) == 2 + 2
    assert "memory_create" in said.out
    assert CANARY not in said.out + whetstone("audit", "--json").out


def test_verify_says_ok_with_the_number_of_entries(agent: Agent, whetstone: Whetstone) -> None:
    whole, one = whetstone("verify", "--json"), whetstone("verify", "--agent", "ezra", "--json")

    assert (whole.status, whole.json["ok"], whole.json["first_problem"]) == (0, True, None)
    assert one.json == {"ok": True, "entries": 2, "first_problem": None, "forgotten": 0, "warnings": []}
    assert whole.json["entries"] > 2
    assert "All is well" in whetstone("verify").out


def test_verify_needs_no_web_process_on_a_machine_with_the_master_key(
    agent: Agent, settings: Settings, whetstone: Whetstone
) -> None:
    settings.pinned_path.unlink()

    said = whetstone("verify", "--json")

    assert (said.status, said.json["ok"], said.json["warnings"]) == (0, True, [])
    assert not settings.pinned_path.exists()


def test_verify_of_a_copy_without_any_key_says_whom_it_believed(
    agent: Agent, settings: Settings, whetstone: Whetstone
) -> None:
    fingerprint = whetstone("keys", "check").out.split("installation key ")[1].split()[0]
    settings.pinned_path.unlink()
    settings.master_key_path.rename(settings.data / "elsewhere")

    said = whetstone("verify", "--json")

    assert (said.status, said.json["ok"]) == (0, True)
    (warning,) = said.json["warnings"]
    assert "the database was believed" in warning and fingerprint in warning
    assert not settings.pinned_path.exists()


def test_verify_exits_with_1_and_names_the_first_difference(agent: Agent, whetstone: Whetstone) -> None:
    with writing() as session:
        session.execute(text("UPDATE agents SET core_token_usage = core_token_usage + 1"))

    said = whetstone("verify", "--agent", "ezra", "--json")

    assert said.status == 1
    assert said.json["ok"] is False
    assert "token" in said.json["first_problem"]
    people = whetstone("verify")
    assert people.status == 1
    assert said.json["first_problem"] in people.out
    assert CANARY not in people.out


def test_verify_can_be_asked_of_one_account(agent: Agent, whetstone: Whetstone) -> None:
    with writing():
        Account.create("Other")
    with writing() as session:
        session.execute(text("UPDATE agents SET core_token_usage = core_token_usage + 1"))

    assert whetstone("verify", "--account", "Other", "--json").json == {
        "ok": True,
        "entries": 1,
        "first_problem": None,
        "forgotten": 0,
        "warnings": [],
    }
    assert whetstone("verify", "--account", "Home", "--json").status == 1
    assert "1 entries of the account Other are as they were written" in whetstone("verify", "--account", "Other").out
    said = whetstone("verify", "--account", "Home")
    assert said.status == 1
    assert "entries of the account Home:" in said.out
    assert "compare: ./whetstone audit --account Home --json" in said.out


def test_verify_tells_a_missing_trigger(agent: Agent, whetstone: Whetstone) -> None:
    with writing() as session:
        session.execute(text("DROP TRIGGER wt_audit_log_no_update" + ("" if is_sqlite(session) else " ON audit_log")))

    said = whetstone("verify", "--json")

    assert said.status == 1
    assert "wt_audit_log_no_update" in said.json["first_problem"]


def test_a_checkpoint_is_printed_written_and_held_against_the_log(
    agent: Agent, whetstone: Whetstone, tmp_path: Path
) -> None:
    kept = tmp_path / "kept.note"
    said = whetstone("audit", "checkpoint", "--out", str(kept))
    as_json = whetstone("audit", "checkpoint", "--json").json

    assert (said.status, kept.read_text().rstrip("\n")) == (0, said.out.rstrip("\n"))
    assert as_json["note"].startswith(f"{as_json['origin']}\n{as_json['size']}\n")
    assert as_json["size"] > int(kept.read_text().split("\n")[1])
    checked = whetstone("verify", "--checkpoint", str(kept))
    assert checked.status == 0
    assert f"It extends the checkpoint of {kept.read_text().splitlines()[1]} leaves that was kept." in checked.out


def test_a_checkpoint_that_is_none_of_this_log_is_a_difference(
    agent: Agent, whetstone: Whetstone, tmp_path: Path
) -> None:
    kept = tmp_path / "kept.note"
    kept.write_text(whetstone("audit", "checkpoint").out.replace("\n", "\n1", 1))

    said = whetstone("verify", "--checkpoint", str(kept))

    assert said.status == 1
    assert "none of this installation's" in said.out
    assert whetstone("verify", "--agent", "ezra", "--checkpoint", str(kept)).status == 2


def test_verify_exits_with_1_where_nobody_signed_the_log_for_two_hours(
    agent: Agent, whetstone: Whetstone, monkeypatch: pytest.MonkeyPatch
) -> None:
    whetstone("audit", "checkpoint")
    assert whetstone("verify").status == 0
    monkeypatch.setattr("app.statements.checkpointing.OVERDUE", timedelta(0))

    said = whetstone("verify", "--json")

    assert said.status == 1
    assert "No checkpoint of the log of statements was made since" in said.json["first_problem"]
    assert whetstone("verify", "--agent", "ezra").status == 0
