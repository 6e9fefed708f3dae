"""`whetstone audit heads` and `verify --heads`: the export that is kept elsewhere, and the comparison with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from flask import Flask

from app.config import Settings
from app.extensions import writing
from app.models import Account, Agent
from tests.cli.conftest import Whetstone
from tests.support.factories import make_agent
from tests.support.tampering import entries, entry, hash_anew, live, tamper

KEYS = {"chain", "sequence", "hash", "at", "agent", "account"}


@pytest.fixture
def agent(app: Flask) -> Agent:
    return live()


@pytest.fixture
def kept(agent: Agent, whetstone: Whetstone, tmp_path: Path) -> Path:
    """The heads in a file of somebody else's."""
    path = tmp_path / "heads.jsonl"
    path.write_text(whetstone("audit", "heads", "--json").out)
    return path


def test_heads_are_json_lines_one_a_chain(agent: Agent, whetstone: Whetstone) -> None:
    heads = whetstone("audit", "heads", "--json").lines

    assert [set(head) for head in heads] == [KEYS, KEYS]
    assert [(head["chain"], head["agent"]) for head in heads] == [("account:1", None), (agent.chain, "ezra")]
    newest = whetstone("audit", "--agent", "ezra", "--json").lines[-1]
    assert (heads[1]["hash"], heads[1]["at"], heads[1]["sequence"]) == (newest["hash"], newest["at"], len(entries()))


def test_people_are_told_to_keep_them_elsewhere(agent: Agent, whetstone: Whetstone) -> None:
    said = whetstone("audit", "heads").out

    assert "ezra" in said
    assert "Store them where" in said
    assert "verify --heads" in said


def test_one_account_s_heads_name_no_other(agent: Agent, whetstone: Whetstone) -> None:
    with writing():
        other = Account.create("Other")
    make_agent("elsewhere", account_id=other.id)

    assert "elsewhere" not in whetstone("audit", "heads", "--account", "Home", "--json").out
    assert "ezra" not in whetstone("audit", "heads", "--account", "Other", "--json").out
    assert whetstone("audit", "heads", "--account", "None", "--json").error["code"] == "not_found"


def test_the_log_s_own_options_stand_by_the_log(agent: Agent, whetstone: Whetstone) -> None:
    for option in (["--agent", "ezra"], ["--last", "1"], ["--json"]):
        said = whetstone("audit", *option, "heads")
        assert said.status == 2
        assert "Put the options after" in said.err
    assert whetstone("audit", "tails").status == 2
    assert whetstone("audit", "--last", "1").status == 0


def test_a_log_that_goes_on_is_proved_with_its_heads(kept: Path, whetstone: Whetstone) -> None:
    whetstone("agents", "pause", "ezra")

    said = whetstone("verify", "--heads", str(kept), "--json")

    assert (said.status, said.json["ok"], said.json["first_problem"]) == (0, True, None)
    assert whetstone("verify", "--heads", "-", "--agent", "ezra", stdin=kept.read_bytes()).status == 0
    assert "2 exported heads still stand" in whetstone("verify", "--heads", str(kept)).out


def test_a_log_that_was_cut_off_with_care_is_found(agent: Agent, whetstone: Whetstone, tmp_path: Path) -> None:
    end = len(entries())
    for act in ("pause", "resume"):
        whetstone("agents", act, "ezra")
    heads = whetstone("audit", "heads", "--json").out
    tamper(f"DELETE FROM audit_log WHERE agent_id = 1 AND sequence > {end}")
    hash_anew(agent)

    assert whetstone("verify").status == 0
    said = whetstone("verify", "--heads", "-", "--json", stdin=heads.encode())

    assert (said.status, said.json["ok"]) == (1, False)
    assert f"entry {end + 2} is missing" in said.json["first_problem"]
    assert f"the log ends at {entry(end)}" in said.json["first_problem"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no heads"),
        (b"{}\n", "Line 1 names no chain"),
        (b"\xff\xfe", "not UTF-8"),
        (b"CHAIN  AGENT\n", "Line 1 is not a head"),
        (json.dumps({"chain": "account:1", "sequence": 1, "hash": "x"}).encode(), "Line 1 has no hash"),
    ],
)
def test_a_file_that_holds_no_heads_is_wrong_usage(
    agent: Agent, whetstone: Whetstone, tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "bad"
    path.write_bytes(content)

    for said in (
        whetstone("verify", "--heads", str(path), "--json"),
        whetstone("verify", "--heads", "-", "--json", stdin=content),
    ):
        assert said.status == 2
        assert said.error["code"] == "usage"
        assert reason in said.error["message"]


def test_a_file_that_is_not_there_is_wrong_usage(agent: Agent, whetstone: Whetstone, tmp_path: Path) -> None:
    assert whetstone("verify", "--heads", str(tmp_path / "none")).status == 2
    assert whetstone("verify", "--heads", str(tmp_path)).status == 2


def test_an_auditor_needs_no_key(kept: Path, whetstone: Whetstone, settings: Settings) -> None:
    settings.master_key_path.unlink()

    assert whetstone("verify", "--heads", str(kept)).status == 0
    assert whetstone("audit", "heads", "--json").lines == [json.loads(line) for line in kept.read_text().splitlines()]
    assert len(whetstone("audit", "--agent", "ezra", "--json").lines) == len(entries())
    assert whetstone("agents", "pause", "ezra").status != 0
