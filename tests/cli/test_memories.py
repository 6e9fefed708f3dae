"""`whetstone memories`: import of all or none, and lists that show everything but the content."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from flask import Flask

from app.extensions import db
from app.models import Agent, Memory, open_keys
from tests.cli.conftest import Whetstone
from tests.support.factories import make_agent, remember

CANARY = "the canary sang at dawn"


@pytest.fixture
def agent(app: Flask) -> Agent:
    return make_agent("ezra")


def written(tmp_path: Path, *lines: str) -> str:
    path = tmp_path / "ledger.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def line(content: str, **fields: object) -> str:
    return json.dumps({"content": content} | fields)


def test_it_imports_a_file(agent: Agent, whetstone: Whetstone, tmp_path: Path) -> None:
    path = written(tmp_path, line("Ann likes tea."), line("It rained.", type="journal"))

    said = whetstone("memories", "import", path, "--agent", "ezra", "--json")

    assert said.status == 0
    assert said.json["imported"] == 2
    held = [
        open_keys(agent).reveal_memory(each.id, each.content) for each in db.session.scalars(Memory.active(agent.id))
    ]
    assert sorted(held) == ["Ann likes tea.", "It rained."]
    assert whetstone("verify", "--json").json["ok"] is True


def test_it_imports_from_standard_input(agent: Agent, whetstone: Whetstone) -> None:
    said = whetstone("memories", "import", "-", "--agent", "ezra", "--json", stdin=line("Ünd ☃").encode())

    assert said.json["imported"] == 1


def test_it_says_how_many_are_exact_duplicates_and_how_to_remove_them(
    agent: Agent, whetstone: Whetstone, tmp_path: Path
) -> None:
    path = written(tmp_path, line("Ann likes tea."), line(" ANN LIKES TEA. "), line("Bob likes rum."))

    said = whetstone("memories", "import", path, "--agent", "ezra")

    assert "exact duplicates (1)" in said.out
    assert "refine ezra --mode dedup_only --wait" in said.out


def test_line_501_of_1000_is_named_and_none_is_imported(agent: Agent, whetstone: Whetstone, tmp_path: Path) -> None:
    lines = [line(f"{CANARY} {number}") for number in range(1000)]
    lines[500] = lines[500][:-2]
    before = whetstone("audit", "--json").out

    said = whetstone("memories", "import", written(tmp_path, *lines), "--agent", "ezra")

    assert said.status == 1
    assert "line 501" in said.err
    assert "Nothing was imported" in said.err
    assert CANARY not in said.err + said.out
    assert whetstone("memories", "list", "ezra", "--json").json == []
    assert whetstone("audit", "--json").out == before


@pytest.mark.parametrize(
    "wrong",
    [
        line("  "),
        line("x" * 10_001),
        line("a\x00b"),
        '{"content": "half \\ud800 of a pair"}',
        line("Ann.", mood="calm"),
        line("Ann.", type="dream"),
        line("Ann.", created_at="soon"),
    ],
)
def test_wrong_content_is_a_sentence_an_exit_of_1_and_nothing_written(
    agent: Agent, whetstone: Whetstone, tmp_path: Path, wrong: str
) -> None:
    said = whetstone("memories", "import", written(tmp_path, line("Fine."), wrong), "--agent", "ezra", "--json")

    assert said.status == 1
    assert said.out == ""
    assert said.error["code"] == "import_refused"
    assert "line 2: " in said.error["message"]
    assert whetstone("memories", "list", "ezra", "--json").json == []


def test_a_file_that_is_not_there_is_wrong_usage(agent: Agent, whetstone: Whetstone) -> None:
    said = whetstone("memories", "import", "/nowhere/at/all.jsonl", "--agent", "ezra")

    assert said.status == 2
    assert "/nowhere/at/all.jsonl" in said.err


def test_a_list_shows_what_programs_rely_on_and_no_content(agent: Agent, whetstone: Whetstone, tmp_path: Path) -> None:
    path = written(
        tmp_path,
        line(CANARY, created_at="2026-03-02T08:00:00Z", tags=["voice"], constitutional=True),
        line(CANARY + "!", created_at="2026-03-01T08:00:00Z", type="journal"),
    )
    whetstone("memories", "import", path, "--agent", "ezra")

    said = whetstone("memories", "list", "ezra", "--json")

    older, newer = said.json
    assert older["origin_at"] == "2026-03-01T08:00:00Z"
    assert {key: newer[key] for key in ("type", "tokens", "constitutional", "tags", "discarded", "version")} == {
        "type": "core", "tokens": 6, "constitutional": True, "tags": ["voice"], "discarded": False, "version": 1,
    }  # fmt: skip
    for shown in (said, whetstone("memories", "list", "ezra"), whetstone("audit", "--json")):
        assert CANARY not in shown.out + shown.err


def test_the_soft_deleted_are_listed_only_when_asked_for(app: Flask, agent: Agent, whetstone: Whetstone) -> None:
    remember(agent, "Ann likes tea.", "Ann likes tea.")
    whetstone("refine", "ezra", "--mode", "dedup_only", "--wait")

    assert len(whetstone("memories", "list", "ezra", "--json").json) == 1
    everything = whetstone("memories", "list", "ezra", "--discarded", "--json").json
    assert sorted(each["discarded"] for each in everything) == [False, True]
    assert whetstone("memories", "list", "ezra", "--type", "journal", "--json").json == []


def test_an_empty_list_says_how_to_fill_it(agent: Agent, whetstone: Whetstone) -> None:
    assert "memories import FILE --agent ezra" in whetstone("memories", "list", "ezra").out
