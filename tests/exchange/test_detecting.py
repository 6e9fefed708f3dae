"""What a file is: told by its content, then by its name, and refused when neither says so."""

from __future__ import annotations

import json

import pytest
from flask import Flask
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.errors import Invalid
from app.exchange import file_text, formats
from app.exchange.formats import NotRecognised, detect_format, read_file
from app.exchange.parsed import ImportFormat
from tests.exchange.files import CANARY, agent_file, block, bundle, mem0, older_agent_file, remembered, written

LINES = b'{"content": "Ann likes tea."}\n{"content": "Bob likes rum."}\n'
AGENT_FILE = written(agent_file(block("human", "Ann likes tea.")))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (LINES, ImportFormat.JSON_LINES),
        (LINES[:30], ImportFormat.JSON_LINES),
        (b"\xef\xbb\xbf\n" + LINES, ImportFormat.JSON_LINES),
        (AGENT_FILE, ImportFormat.AGENT_FILE),
        (json.dumps(AGENT_FILE.decode()).encode(), ImportFormat.AGENT_FILE),
        (json.dumps("\n" + AGENT_FILE.decode()).encode(), ImportFormat.AGENT_FILE),
        (json.dumps(agent_file(block("human", "Tea.")), indent=2).encode(), ImportFormat.AGENT_FILE),
        (written(older_agent_file(block("human", "Ann likes tea."))), ImportFormat.AGENT_FILE),
        (written(mem0(remembered("Ann likes tea."))), ImportFormat.MEM0),
        (written([remembered("Ann likes tea.")]), ImportFormat.MEM0),
        (written(bundle({"content": "Ann likes tea."})), ImportFormat.BUNDLE),
    ],
)
@pytest.mark.parametrize("name", ["", "-", "memories", "memories.json", "memories.txt", "x.jsonl", "x.af"])
def test_content_decides_whatever_the_name_says(bare: Flask, data: bytes, expected: ImportFormat, name: str) -> None:
    assert detect_format(name, data) == expected
    assert read_file(data, name=name).format == expected


@pytest.mark.parametrize("name", ["notes.txt", "NOTES.TXT", "notes.text"])
def test_what_is_no_json_is_text_only_when_its_name_says_so(bare: Flask, name: str) -> None:
    assert detect_format(name, b"Ann likes tea.\n") == ImportFormat.TEXT
    for other in ("", "notes", "notes.md", "table.csv", "notes.json", "<stdin>"):
        with pytest.raises(NotRecognised, match="Name its format: jsonl, af, mem0, text, bundle"):
            detect_format(other, b"Ann likes tea.\n")


@pytest.mark.parametrize(
    "broken",
    [
        AGENT_FILE[:-40],
        json.dumps(AGENT_FILE.decode()).encode()[:-40],
        json.dumps(agent_file(block("human", CANARY)), indent=2).encode()[:-40],
        written([remembered(CANARY)])[:-2],
        b'{"content": "' + CANARY.encode(),
        b"[2026-03-01] " + CANARY.encode(),
        b"{" * 100_000,
        b'{"agents": [], "agents": []}',
    ],
)
@pytest.mark.parametrize("name", ["", "notes.txt", "x.json", "x.af"])
def test_broken_json_is_never_taken_for_text(bare: Flask, broken: bytes, name: str) -> None:
    with pytest.raises(NotRecognised, match=r"It begins like JSON\. It is not well-formed JSON") as refused:
        detect_format(name, broken)

    assert CANARY not in refused.value.sentence


@pytest.mark.parametrize("unknown", [b"{}", b"[1]", b'[{"content": "A."}]', b'{"results": 1}', b'"{}"', b'{"a": "b"}'])
def test_json_of_no_known_form_is_refused(bare: Flask, unknown: bytes) -> None:
    with pytest.raises(NotRecognised, match="of no form that is known here"):
        detect_format("x.json", unknown)


def test_json_lines_by_name_are_read_as_such_so_that_the_line_is_named(bare: Flask) -> None:
    for wrong in (b'{"content": \n' + LINES, b'{"text": "Ann."}', b"Ann likes tea.\n"):
        assert detect_format("x.jsonl", wrong) == ImportFormat.JSON_LINES
        with pytest.raises(Invalid, match="line 1: "):
            read_file(wrong, name="x.ndjson")


def test_a_broken_line_behind_a_whole_one_is_named_whatever_the_file_is_called(bare: Flask) -> None:
    with pytest.raises(Invalid, match="line 2: It is not well-formed JSON"):
        read_file(LINES[:-10], name="memories.json")


def test_a_format_that_is_named_is_the_only_one_tried(bare: Flask) -> None:
    assert [each.content for each in read_file(b"[1] Ann\n{", format=ImportFormat.TEXT).drafts] == ["[1] Ann", "{"]
    for wrong in (ImportFormat.AGENT_FILE, ImportFormat.MEM0, ImportFormat.BUNDLE):
        with pytest.raises(Invalid, match="It is no "):
            read_file(LINES[:30], format=wrong)


@pytest.mark.parametrize("blank", [b"", b"\n \t\n"])
def test_a_blank_file_holds_no_memories(bare: Flask, blank: bytes) -> None:
    with pytest.raises(Invalid, match="no memories"):
        read_file(blank, name="x.txt")


def test_too_much_is_refused_before_it_is_parsed(bare: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "MOST_BYTES", 1_000)
    with pytest.raises(Invalid, match="more than 0 MB is not taken; split it"):
        read_file(LINES * 100, name="x.jsonl")
    monkeypatch.setattr(file_text, "MOST_BYTES", 100)
    with pytest.raises(Invalid, match="JSON Lines are"):
        read_file(written([remembered("A." * 100)]))
    monkeypatch.setattr(file_text, "MOST_BYTES", 10_000)
    monkeypatch.setattr(file_text, "MOST_PARTS", 10)
    with pytest.raises(Invalid, match="too many parts"):
        read_file(written([remembered("Ann likes tea.")] * 5))


def test_what_is_no_utf_8_is_refused(bare: Flask) -> None:
    for data, name in (
        (b'{"content": "\xff"}', "x.json"),
        ("Ann".encode("utf-16"), "x.txt"),
        (b"PK\x03\x04\xff", "a.txt"),
    ):
        with pytest.raises(Invalid, match="not UTF-8 text"):
            read_file(data, name=name)


_PIECES = st.sampled_from(
    [
        *map(bytes, zip(b'{}[]":,\n\x00\xff', strict=True)),
        *(b"null", b"1e999", b"NaN", b"\\ud800", b"\\u0000"),
        *(b'"agents"', b'"core_memory"', b'"results"', b'"memory"', b'"content"', b'"blocks"', b'"value"', b'"tags"'),
        *(
            b'{"agents": [{',
            b'{"core_memory": [',
            b'{"results": [{',
            b'{"format": "whetstone-bundle/1"',
            b'"memories": [',
        ),
    ]
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.lists(_PIECES, max_size=12).map(b"".join), name=st.sampled_from(["", "x.txt", "x.jsonl", "x.af"]))
def test_whatever_comes_is_read_or_refused_in_words(bare: Flask, data: bytes, name: str) -> None:
    for wanted in (None, *ImportFormat):
        try:
            assert read_file(data, name=name, format=wanted).format in ImportFormat
        except Invalid as error:
            assert error.sentence


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
_PLACES = ("agents", "blocks", "core_memory", "passages", "messages", "tools", "created_at", "settings", "memories")
_REMEMBERED = st.fixed_dictionaries({"memory": _JSON}, optional={"metadata": _JSON, "categories": _JSON})
_HOSTILE = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(_PLACES, _JSON)
    | {"results": st.lists(_REMEMBERED), "format": st.sampled_from(["whetstone-bundle/1", "whetstone-bundle/2"])},
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(found=_HOSTILE)
def test_whatever_stands_where_a_list_should_is_read_or_refused_in_words(bare: Flask, found: dict[str, object]) -> None:
    for hostile in (found, {"agents": [found]}, {"core_memory": [found], **found}):
        for wanted in (None, *ImportFormat):
            try:
                read_file(written(hostile), format=wanted)
            except Invalid as error:
                assert error.sentence
