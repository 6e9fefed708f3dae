"""`whetstone memories`: import of all or none, and lists and exports that show everything but the content."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from flask import Flask

from app.config import Settings
from app.extensions import db
from app.history.verify import verify
from app.keys.agent_keys import open_keys
from app.models import Agent, Memory
from tests.cli.conftest import Whetstone
from tests.exchange.files import agent_file, block, bundle, mem0, remembered
from tests.support.factories import begin, make_agent, remember

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
    path = written(tmp_path, line("Ann likes tea."), line(" Ann likes tea. "), line("Bob likes rum."))

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


def test_it_says_what_a_file_was_recognised_as_and_what_was_left_out(
    agent: Agent, whetstone: Whetstone, tmp_path: Path
) -> None:
    path = written(tmp_path, json.dumps(agent_file(block("human", CANARY), block("todo", "", 2))))

    said = whetstone("memories", "import", path, "--agent", "ezra")

    assert said.status == 0
    assert "Detected format: a Letta agent file." in said.out
    assert "Imported 1 memory: 1 core, 0 journal." in said.out
    assert "Left out: 3 messages, 1 system prompt, 2 tools, 1 empty text." in said.out
    assert CANARY not in said.out + said.err
    assert verify(db.session.get_one(Agent, agent.id, populate_existing=True)).ok


@pytest.mark.parametrize(
    ("document", "expected", "left_out"),
    [
        (mem0(remembered("Ann likes tea.", categories=["x" * 41])), "mem0", {"tags": 1}),
        (
            bundle({"content": "A vow.", "constitutional": True}, settings={"system_prompt": "Me."}),
            "bundle",
            {"settings": 1},
        ),
        ({"content": "Ann likes tea."}, "jsonl", {}),
    ],
)
def test_programs_read_the_format_and_the_counts(
    agent: Agent, whetstone: Whetstone, tmp_path: Path, document: object, expected: str, left_out: dict[str, int]
) -> None:
    path = written(tmp_path, json.dumps(document))

    for asked in ("auto", expected):
        said = whetstone("memories", "import", path, "--agent", "ezra", "--format", asked, "--json").json
        assert (said["imported"], said["format"], said["left_out"]) == (1, expected, left_out)


def test_an_admin_who_imports_a_bundle_keeps_its_flags_and_changes_no_setting(
    agent: Agent, whetstone: Whetstone, tmp_path: Path
) -> None:
    document = bundle({"content": "A vow.", "constitutional": True}, settings={"system_prompt": "Me."})

    whetstone("memories", "import", written(tmp_path, json.dumps(document)), "--agent", "ezra")

    assert [each["constitutional"] for each in whetstone("memories", "list", "ezra", "--json").json] == [True]
    assert db.session.get_one(Agent, agent.id, populate_existing=True).system_prompt is None


def test_plain_text_from_standard_input_has_to_be_named(agent: Agent, whetstone: Whetstone) -> None:
    text = f"{CANARY}\n\nBob likes rum.\n".encode()

    unsure = whetstone("memories", "import", "-", "--agent", "ezra", "--json", stdin=text)
    named = whetstone("memories", "import", "-", "--agent", "ezra", "--format", "text", "--json", stdin=text)

    assert (unsure.status, unsure.error["code"]) == (1, "format_not_recognised")
    assert CANARY not in unsure.err
    assert (named.json["imported"], named.json["format"]) == (2, "text")


def test_a_file_that_is_named_wrong_is_refused_and_nothing_written(
    agent: Agent, whetstone: Whetstone, tmp_path: Path
) -> None:
    path = written(tmp_path, json.dumps(mem0(remembered(CANARY))))

    for wrong in ("af", "bundle", "jsonl"):
        said = whetstone("memories", "import", path, "--agent", "ezra", "--format", wrong)
        assert (said.status, CANARY in said.err) == (1, False)
    assert whetstone("memories", "import", path, "--agent", "ezra", "--format", "yaml").status == 2
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
    assert [each["source"] for each in said.json] == ["import:ledger.jsonl"] * 2
    assert "import:ledger.jsonl" in whetstone("memories", "list", "ezra").out
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


def test_an_export_is_the_list_as_json_lines_without_content(agent: Agent, whetstone: Whetstone) -> None:
    remember(agent, CANARY, CANARY, "Bob likes rum.", tags=["bob"])
    whetstone("refine", "ezra", "--mode", "dedup_only", "--wait")

    active = whetstone("memories", "export", "ezra")
    everything = whetstone("memories", "export", "ezra", "--discarded", "--json")

    assert active.lines == whetstone("memories", "list", "ezra", "--json").json
    assert everything.lines == whetstone("memories", "list", "ezra", "--discarded", "--json").json
    assert (len(active.lines), len(everything.lines)) == (2, 3)
    for said in (active, everything):
        assert CANARY not in said.out
        assert "hash" not in said.out


def test_an_export_needs_no_key_and_an_agent_that_is_there(
    agent: Agent, whetstone: Whetstone, settings: Settings
) -> None:
    remember(agent, CANARY)
    settings.master_key_path.unlink()

    assert len(whetstone("memories", "export", "ezra").lines) == 1
    assert whetstone("memories", "export", "nobody").status == 1
    assert whetstone("memories", "export", "ezra", "--own").status == 2


def test_it_erases_one_for_good_and_names_what_stays(agent: Agent, whetstone: Whetstone) -> None:
    one, two = remember(agent, CANARY, "Bob likes rum.")

    said = whetstone("memories", "erase", str(one), "--agent", "ezra", "--reason", "A slip.", "--json")

    assert said.status == 0
    assert (said.json["id"], said.json["reason"], said.json["made"], said.json["shredded"]) == (
        one,
        "A slip.",
        [],
        True,
    )
    assert [row["id"] for row in whetstone("memories", "list", "ezra", "--discarded", "--json").json] == [two]
    again = whetstone("memories", "erase", str(one), "--agent", "ezra", "--reason", "A slip.")
    assert again.status == 3
    assert f"Memory {one} was erased for good by the command line" in again.err
    assert whetstone("verify", "--json").json["ok"] is True


@pytest.mark.parametrize("words", [("404", "--reason", "x"), ("1",), ("1", "--reason", " "), ("one", "--reason", "x")])
def test_it_erases_nothing_without_a_number_and_a_reason(
    agent: Agent, whetstone: Whetstone, words: tuple[str, ...]
) -> None:
    assert remember(agent, CANARY) == [1]
    said = whetstone("memories", "erase", *words, "--agent", "ezra")
    assert said.status not in (0, 3)
    assert [row["id"] for row in whetstone("memories", "list", "ezra", "--json").json] == [1]


def test_lists_and_exports_tell_how_deep_a_memory_was_merged(agent: Agent, whetstone: Whetstone) -> None:
    remember(agent, CANARY, CANARY, "It rained in Lisbon. " * 20)
    tool = begin(agent).tool
    merged = tool.execute("consolidate", ids=[1, 2], content=CANARY)["id"]
    tool.execute("complete", summary="I am done.")

    listed, table = whetstone("memories", "list", "ezra", "--json"), whetstone("memories", "list", "ezra")
    exported = whetstone("memories", "export", "ezra")

    rows = [each for each in listed.json if each["type"] == "core"]
    assert [(row["id"], row["merged_sources"], row["merges"]) for row in rows] == [(merged, 2, 1), (3, 0, 0)]
    assert table.out.count("merged from 2 over 1 merge") == 1
    assert exported.out.count('"merged_sources": 2, "merges": 1') == 1
    assert CANARY not in table.out + exported.out
