"""Letta agent files: blocks and passages become memories; everything else is left out, and counted."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from flask import Flask

from app.errors import Invalid
from app.exchange.agent_file import divide_text, parse
from app.exchange.draft import ImportRefused
from app.exchange.parsed import ParsedFile
from app.models import MemoryType
from tests.exchange.files import CANARY, agent_file, block, older_agent_file, written

AT = datetime(2026, 1, 22, 2, 6, 35, 101954, tzinfo=UTC)


def parsed(document: object) -> ParsedFile:
    return parse(written(document))


def refusal(document: object) -> str:
    with pytest.raises(Invalid) as refused:
        parsed(document)
    return refused.value.sentence


def told(found: ParsedFile) -> list[tuple[str, tuple[str, ...]]]:
    return [(each.content, each.tags) for each in found.drafts]


def test_each_block_becomes_a_core_memory_tagged_with_its_label(bare: Flask) -> None:
    found = parsed(agent_file(block("human", "\nAnn likes tea.\n", 1), block("About_User", "Bob.", 2)))

    assert told(found) == [("Ann likes tea.", ("human",)), ("Bob.", ("about_user",))]
    assert {(each.type, each.constitutional, each.origin_at) for each in found.drafts} == {(MemoryType.CORE, False, AT)}


def test_messages_prompts_and_tools_are_left_out_and_counted(bare: Flask) -> None:
    found = parsed(agent_file(block("human", "Ann."), files=[{"id": "file-0"}]))

    assert found.left_out == {"messages": 3, "system_prompts": 1, "tools": 2, "files": 1}
    assert found.notes == ["Left out: 3 messages, 1 system prompt, 2 tools, 1 file."]
    assert CANARY not in repr(found)


def test_a_file_that_is_json_within_json_reads_the_same(bare: Flask) -> None:
    document = agent_file(block("human", "Ann."))

    assert parse(written(json.dumps(document, indent=2))) == parsed(document)


def test_the_older_generation_has_its_blocks_and_their_dates_in_the_agent(bare: Flask) -> None:
    dated = block("persona", "I am Sam.", created_at="2025-03-01T03:47:27")

    found = parsed(older_agent_file(dated, block("human", "Chad.")))

    assert told(found) == [("I am Sam.", ("persona",)), ("Chad.", ("human",))]
    assert [each.origin_at for each in found.drafts] == [
        datetime(2025, 3, 1, 3, 47, 27, tzinfo=UTC),
        datetime(2025, 4, 1, 3, 47, 27, tzinfo=UTC),
    ]
    assert found.left_out == {"messages": 1, "system_prompts": 1}


def test_blocks_may_stand_in_the_agent_itself(bare: Flask) -> None:
    inline = {"memory_blocks": [{"label": "human", "value": "Ann."}]}

    assert told(parsed(agent_file(block("persona", "Loop."), agent=inline))) == [
        ("Ann.", ("human",)),
        ("Loop.", ("persona",)),
    ]


def test_only_the_agents_own_blocks_are_taken(bare: Flask) -> None:
    blocks = [block("human", "Ann.", 1), block("other", "Not mine.", 2)]

    mine = parsed(agent_file(*blocks, agent={"block_ids": ["block-1"]}))
    unnamed = parsed(agent_file(*blocks, agent={"block_ids": None}))

    assert told(mine) == [("Ann.", ("human",))]
    assert mine.left_out["other_blocks"] == 1
    assert len(unnamed.drafts) == 2


def test_a_block_that_is_named_but_not_there_refuses_all(bare: Flask) -> None:
    said = refusal(agent_file(block("human", "Ann."), agent={"block_ids": ["block-0", "block-7"]}))

    assert "block_ids item 2: The file holds no block of this id." in said


def test_empty_blocks_are_skipped_and_counted(bare: Flask) -> None:
    found = parsed(agent_file(block("human", "Ann.", 1), block("notes", " \n", 2), block("todo", None, 3)))

    assert len(found.drafts) == 1
    assert found.left_out["empty"] == 2


def test_a_label_that_can_not_be_a_tag_costs_the_tag_only(bare: Flask) -> None:
    found = parsed(agent_file(block("x" * 41, "Ann.")))

    assert told(found) == [("Ann.", ())]
    assert "1 word that can't be a tag" in found.notes[0]


@pytest.mark.parametrize("key", ["passages", "archival_passages", "archival_memory"])
def test_archival_passages_become_core_memories_with_their_own_tags_and_dates(bare: Flask, key: str) -> None:
    passages = [
        {"text": "Ann moved.", "tags": ["Ann", "home"], "created_at": "2025-11-05 23:04:24.901468+00:00"},
        {"content": "Bob stayed.", "tags": None},
        {"text": "Gone.", "is_deleted": True},
    ]

    for document in (agent_file(block("human", "A."), **{key: passages}), agent_file(agent={key: passages})):
        found = parsed(document)
        moved, stayed = found.drafts[-2:]
        assert (moved.content, moved.tags, stayed.content, stayed.tags) == (
            "Ann moved.",
            ("ann", "home"),
            "Bob stayed.",
            (),
        )
        assert moved.origin_at == datetime(2025, 11, 5, 23, 4, 24, 901468, tzinfo=UTC)
        assert stayed.origin_at == AT
        assert found.left_out["deleted"] == 1


def test_without_any_date_the_moment_of_the_import_counts(bare: Flask) -> None:
    assert parsed(agent_file(block("human", "Ann."), created_at=None)).drafts[0].origin_at is None


def test_a_long_block_is_divided_at_blank_lines_and_loses_not_a_word(bare: Flask) -> None:
    paragraphs = [f"{number} " + "tea " * 600 for number in range(10)]

    found = parsed(agent_file(block("human", "\n \n".join(paragraphs))))

    assert len(found.drafts) == 3
    assert all(len(each.content) <= 10_000 and each.tags == ("human",) for each in found.drafts)
    assert " ".join(each.content for each in found.drafts).split() == " ".join(paragraphs).split()
    assert all(each.content[0].isdigit() for each in found.drafts)
    assert found.notes[-1].startswith("1 text longer than a memory may be became several")


def test_without_blank_lines_it_is_divided_at_line_ends() -> None:
    lines = ["x" * 6_000, "y" * 3_999, "z" * 10_000]

    assert divide_text("\n".join(lines)) == ["x" * 6_000 + "\n" + "y" * 3_999, "z" * 10_000]
    assert divide_text("\r\n".join(lines)) == ["x" * 6_000, "y" * 3_999, "z" * 10_000]


def test_exactly_as_long_as_a_memory_may_be_is_not_divided() -> None:
    text = "a\n\n" + "x" * 9_997

    assert divide_text(f"\n{text}\n") == [text]


def test_a_line_that_no_memory_can_hold_is_refused_and_named(bare: Flask) -> None:
    said = refusal(agent_file(block("human", "Fine.", 1), block("human", CANARY + "x" * 10_000, 2)))

    assert "blocks item 2: It has a line of more than 10,000 characters" in said
    assert CANARY not in said


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        (agent_file(block("human", 7)), "blocks item 1: The content must be text."),
        (agent_file(block("human", [CANARY])), "blocks item 1: The content must be text."),
        (agent_file(block("human", CANARY + "\x00")), "blocks item 1: The content holds a NUL character"),
        (agent_file(block("human", CANARY + "\ud800")), "blocks item 1: The content holds half of a surrogate pair"),
        (agent_file(block("human", CANARY, created_at=CANARY)), "blocks item 1: The created_at must be an ISO 8601"),
        (agent_file(block("human", CANARY, created_at="2027-01-01")), "The created_at lies in the future"),
        (older_agent_file(block("human", 7)), "core_memory item 1: The content must be text."),
        (agent_file(agent={"passages": [{"text": 7}]}), "passages item 1: The content must be text."),
        (agent_file(agent={"memory_blocks": [{"value": 7}]}), "memory_blocks item 1: The content must be text."),
        (agent_file(blocks={"a": CANARY}), "The blocks must be a list of JSON objects."),
        (agent_file(passages=[CANARY]), "The passages must be a list of JSON objects."),
        (agent_file(agents=[CANARY]), "The agents must be a list of JSON objects."),
        (agent_file(agents=[]), "It holds 0 agents"),
        (agent_file(agents=[{"name": CANARY}, {"name": "b"}]), "It holds 2 agents, and an import is for one"),
        (agent_file(), "There are no memories in it"),
        ({"name": CANARY}, "It is no Letta agent file"),
        ([CANARY], "It is no Letta agent file"),
    ],
)
def test_what_can_not_be_used_is_refused_in_words_without_content(bare: Flask, wrong: Any, word: str) -> None:
    said = refusal(wrong)

    assert word in said
    assert CANARY not in said


def test_all_problems_are_named_at_once(bare: Flask) -> None:
    with pytest.raises(ImportRefused) as refused:
        parsed(agent_file(*(block("human", 7, number) for number in range(25)), block("human", "Fine.", 99)))

    assert [str(each)[:16] for each in refused.value.problems[:2]] == ["blocks item 1: T", "blocks item 2: T"]
    assert "Nothing was imported: 25 items of 26 can't be used." in refused.value.sentence
    assert "and 15 more" in refused.value.sentence


def test_more_than_one_import_takes_is_refused(bare: Flask) -> None:
    passages = [{"text": "Ann."}] * 20_001

    assert "at most 20,000 memories" in refusal(agent_file(passages=passages))
