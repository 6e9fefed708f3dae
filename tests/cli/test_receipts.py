"""`audit receipt` and `audit check-receipt`: made where the master key is, checked anywhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from flask import Flask

from app.models import Agent
from app.models.statement_log import current_of, statement_log
from tests.cli.conftest import Whetstone
from tests.support.factories import make_agent


@pytest.fixture
def agent(app: Flask) -> Agent:
    return make_agent()


def index_of(agent: Agent) -> str:
    stated = current_of(agent.id, agent.uuid).model
    assert stated is not None
    return str(stated.position)


def test_a_receipt_is_written_once_and_checked_without_any_database(
    agent: Agent, whetstone: Whetstone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, vkey, index = tmp_path / "receipt.txt", statement_log().keys.verifier.vkey, index_of(agent)
    made = whetstone("audit", "receipt", index, "--out", str(file))
    assert made.status == 0
    assert file.read_text() == whetstone("audit", "receipt", index).out
    assert whetstone("audit", "receipt", index, "--out", str(file)).status == 1

    monkeypatch.setenv("WHETSTONE_DATA_DIR", str(tmp_path / "nothing"))
    monkeypatch.setenv("DATABASE_URL", "")
    checked = whetstone("audit", "check-receipt", str(file), "--key", vkey, "--json")

    assert (checked.status, checked.json["ok"]) == (0, True)
    assert (checked.json["index"], checked.json["kind"]) == (int(index), "model")
    assert checked.json["body"]["model_id"] == agent.model_id
    assert "It holds" in whetstone("audit", "check-receipt", str(file), "--key", vkey).out
    assert not (tmp_path / "nothing").exists()


def test_one_that_was_changed_proves_nothing(agent: Agent, whetstone: Whetstone, tmp_path: Path) -> None:
    file, vkey = tmp_path / "receipt.txt", statement_log().keys.verifier.vkey
    whetstone("audit", "receipt", index_of(agent), "--out", str(file))
    file.write_text(file.read_text().replace("whetstone/offline", "openai/gpt-5"))

    said = whetstone("audit", "check-receipt", str(file), "--key", vkey, "--json")

    assert (said.status, said.json["ok"]) == (1, False)
    assert "altered" in said.json["problem"]
    assert whetstone("audit", "check-receipt", str(file), "--key", vkey).out.startswith("It proves nothing")


def test_the_keys_may_come_as_the_file_that_anybody_can_fetch(
    agent: Agent, web: Flask, whetstone: Whetstone, tmp_path: Path
) -> None:
    file, keys = tmp_path / "receipt.txt", tmp_path / "whetstone.json"
    whetstone("audit", "receipt", index_of(agent), "--out", str(file))
    keys.write_bytes(web.test_client().get("/.well-known/whetstone.json").data)

    assert whetstone("audit", "check-receipt", str(file), "--key", str(keys)).status == 0


@pytest.mark.parametrize("key", ["", "no key", "ab" * 32, "name+00000000+AAAA"])
def test_what_is_no_key_is_wrong_usage(whetstone: Whetstone, tmp_path: Path, key: str) -> None:
    (tmp_path / "receipt.txt").write_text("anything")
    (tmp_path / "keys.json").write_text(json.dumps({"signing_keys": [{"vkey": key}]}))
    for given in (key, str(tmp_path / "keys.json")):
        assert whetstone("audit", "check-receipt", str(tmp_path / "receipt.txt"), "--key", given).status == 2


def test_what_is_not_there_has_no_receipt(agent: Agent, whetstone: Whetstone) -> None:
    assert whetstone("audit", "receipt", "4711").status == 1
    assert whetstone("audit", "receipt", agent.uuid).status == 1
    assert whetstone("audit", "receipt", index_of(agent), "--json").json["index"] == int(index_of(agent))
